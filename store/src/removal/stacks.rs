//! Removal of call stacks. They are kept as long as samples.

use polymeter_proto::units::counted;
use tracing::info;

use super::old_rows::{ALL, IS_NOT_KEPT, OldRows};
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::stop::Stop;

/// Intervals before `{before}` with their samples.
const INTERVALS: OldRows = OldRows {
    table: "stack_interval",
    key: "time",
    of: "time < {before}",
    delete: &[
        (
            "stack_sample",
            &[
                "{step}",
                "time < {before}",
                "job_key IN (SELECT job_key FROM stack_interval WHERE {step} AND time < {before})",
                IS_NOT_KEPT,
            ],
        ),
        ("stack_interval", &["{step}", "time < {before}", IS_NOT_KEPT]),
    ],
    ..ALL
};

/// Removes the call stacks before `before_us`, and the names of functions of jobs without any left. The times
/// are microseconds since the epoch.
pub(super) fn remove(
    connection: &mut dyn Connection,
    before_us: i64,
    now_us: i64,
    stop: &Stop,
) -> Result<(), DatabaseError> {
    let times = [("{before}", before_us), ("{now}", now_us)];
    let removed = INTERVALS.remove(connection, &times, &[], stop)?;
    if removed > 0 {
        info!("removed {} of call stacks", counted(removed, "interval"));
    }
    remove_names(connection, before_us, stop)
}

const JOBS: usize = 1000;

/// Jobs with names that ended before `{before}`, and have no interval left. The index finds the jobs with
/// names one after the other, in one statement. Subqueries rather than joins keep PostgreSQL from reading the
/// tables of jobs and intervals as a whole.
const WITHOUT_INTERVALS: &str = "
    WITH RECURSIVE named (job_key) AS (
        SELECT min(job_key) FROM stack_function
        UNION ALL
        SELECT (SELECT min(next.job_key) FROM stack_function AS next WHERE next.job_key > named.job_key)
        FROM named WHERE named.job_key IS NOT NULL)
    SELECT job_key FROM named
    WHERE (SELECT job.ended FROM job WHERE job.job_key = named.job_key) < {before}
        AND (SELECT min(used.job_key) FROM stack_interval AS used WHERE used.job_key = named.job_key) IS NULL
    LIMIT {limit}";

fn remove_names(connection: &mut dyn Connection, before_us: i64, stop: &Stop) -> Result<(), DatabaseError> {
    let before = (connection.dialect().time)(before_us);
    let select = WITHOUT_INTERVALS.replace("{before}", &before).replace("{limit}", &JOBS.to_string());
    while !stop.is_requested() {
        let jobs: Vec<i64> = connection.select(&select, &[])?;
        if jobs.is_empty() {
            break;
        }
        // The names of a job may be tens of thousands of rows, so each job has a transaction of its own.
        for job_key in jobs {
            if stop.is_requested() {
                break;
            }
            connection.begin()?;
            for table in ["stack_node", "stack_function"] {
                connection.execute(&format!("DELETE FROM {table} WHERE job_key = $1"), &[job_key.into()])?;
            }
            connection.commit()?;
        }
    }
    Ok(())
}
