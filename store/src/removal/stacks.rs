//! The removal of call stacks. They are kept as long as samples.

use tracing::info;

use super::old_rows::{ALL, OldRows};
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::stop::Stop;
use polymeter_proto::units::counted;

/// The condition that a row is not of a job that is kept at `{now}`.
const IS_NOT_KEPT: &str =
    "job_key NOT IN (SELECT job_key FROM kept_job WHERE until IS NULL OR until > {now})";

/// The intervals before `{before}` with their samples.
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

/// Removes the call stacks before `before_us`, and the names of jobs of which none are left. The times are in
/// microseconds since the epoch.
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

/// Removes the names of jobs that ended before `before_us`, and of which no interval is left.
fn remove_names(connection: &mut dyn Connection, before_us: i64, stop: &Stop) -> Result<(), DatabaseError> {
    let before = (connection.dialect().time)(before_us);
    let next = "SELECT min(job_key) FROM stack_function WHERE job_key > $1";
    let without = format!(
        "SELECT count(*) FROM job WHERE job_key = $1 AND ended < {before}
             AND NOT EXISTS (SELECT 1 FROM stack_interval AS used WHERE used.job_key = job.job_key)"
    );
    let mut job_key = i64::MIN;
    while !stop.is_requested() {
        let Some(next): Option<i64> =
            connection.select_first::<Option<i64>>(next, &[job_key.into()])?.flatten()
        else {
            break;
        };
        job_key = next;
        if connection.select_first(&without, &[job_key.into()])? == Some(0_i64) {
            continue;
        }
        connection.begin()?;
        for table in ["stack_node", "stack_function"] {
            connection.execute(&format!("DELETE FROM {table} WHERE job_key = $1"), &[job_key.into()])?;
        }
        connection.commit()?;
    }
    Ok(())
}
