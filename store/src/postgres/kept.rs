//! Rows of kept jobs in parts that are removed.

use crate::StoreError;
use crate::backend::Connection;
use crate::error::{Context, DatabaseError};
use crate::retention::{Level, Part};
use crate::row::{TimeUs, from_row};
use crate::value::Value;

use super::statement::DIALECT;
use super::{citus, parts};

const ACTION: &str = "keep the samples of jobs";

/// Returns the time of the samples of each kept job.
const JOBS: &str = "SELECT job_key, lower, upper FROM kept_job
     CROSS JOIN LATERAL (SELECT min(started) - interval '1 h' AS lower, max(coalesce(ended, now())) + interval '1 h' AS upper
                         FROM job_node WHERE job_node.job_key = kept_job.job_key) AS span
     WHERE (until IS NULL OR until > (SELECT accepted FROM clock_check)) AND lower IS NOT NULL ORDER BY job_key";

/// Condition that `row` is of one of the series that [`select_series`] selected.
pub(super) const IS_KEPT: &str = "EXISTS (SELECT FROM kept_series WHERE kept_series.series_id = row.series_id
     AND row.time >= kept_series.lower AND row.time <= kept_series.upper)";

/// Same condition for rows of a distributed table: Citus accepts a local table only as a subquery, which it
/// sends to the workers.
const IS_KEPT_BY_SHARD: &str =
    "EXISTS (SELECT FROM (SELECT * FROM kept_series OFFSET 0) AS kept WHERE kept.series_id = row.series_id
     AND row.time >= kept.lower AND row.time <= kept.upper)";

struct KeptJob {
    job_key: i64,
    begin_us: i64,
    end_us: i64,
}

from_row!(KeptJob { job_key, begin_us: TimeUs, end_us: TimeUs });

fn jobs(connection: &mut dyn Connection) -> Result<Vec<KeptJob>, DatabaseError> {
    connection.select(JOBS, &[])
}

fn keys_of(jobs: &[KeptJob], part: &Part) -> Vec<i64> {
    jobs.iter()
        .filter(|job| job.begin_us < part.end_us && job.end_us >= part.begin_us)
        .map(|job| job.job_key)
        .collect()
}

/// Returns the keys of the kept jobs in the time of a part, within the transaction that removes it.
pub(super) fn jobs_of(connection: &mut dyn Connection, part: &Part) -> Result<Vec<i64>, DatabaseError> {
    Ok(keys_of(&jobs(connection)?, part))
}

/// Sets the kept jobs of each part, and takes out the parts that have no other rows any more.
pub(super) fn mark(connection: &mut dyn Connection, parts: &mut Vec<Part>) -> Result<(), DatabaseError> {
    let jobs = jobs(connection)?;
    let reduced: Vec<(String, TimeUs, String)> =
        connection.select("SELECT relation, begin_at, job_keys FROM kept_part", &[])?;
    parts.iter_mut().for_each(|part| part.kept_jobs = keys_of(&jobs, part));
    parts.retain(|part| {
        let keys = joined(&part.kept_jobs);
        part.kept_jobs.is_empty()
            || !reduced.iter().any(|(relation, TimeUs(begin_us), reduced_to)| {
                relation == part.level.relation() && *begin_us == part.begin_us && *reduced_to == keys
            })
    });
    Ok(())
}

fn joined(keys: &[i64]) -> String {
    keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

pub(super) fn forget(connection: &mut dyn Connection, part: &Part) -> Result<(), DatabaseError> {
    let delete = "DELETE FROM kept_part WHERE relation = $1 AND begin_at = $2";
    connection.execute(delete, &[part.level.relation().into(), Value::Time(part.begin_us)]).map(drop)
}

/// Selects the series of `jobs` in the time of a part, and the series of their nodes while they ran there.
pub(super) fn select_series(
    connection: &mut dyn Connection,
    part: &Part,
    jobs: &[i64],
) -> Result<(), DatabaseError> {
    connection.execute(
        "CREATE TEMP TABLE kept_series (series_id int8 NOT NULL, lower timestamptz NOT NULL, upper timestamptz NOT NULL) ON COMMIT DROP",
        &[],
    )?;
    let keys = (DIALECT.is_one_of)(jobs);
    let (begin, end) = (parts::time(part.begin_us), parts::time(part.end_us));
    connection.execute(
        &format!(
            "INSERT INTO kept_series
             SELECT series_id, '-infinity', 'infinity' FROM series WHERE job_key {keys}
             UNION ALL
             SELECT series_id, lower, upper FROM job_node
             CROSS JOIN LATERAL (SELECT started - interval '1 h' AS lower, coalesce(ended, now()) + interval '1 h' AS upper) AS span
             JOIN series ON series.measured_node = job_node.node AND series.job_key IS NULL
             WHERE job_node.job_key {keys} AND lower < {end} AND upper >= {begin}"
        ),
        &[],
    )?;
    connection.execute("CREATE INDEX ON kept_series (series_id)", &[])?;
    connection.execute("ANALYZE kept_series", &[]).map(drop)
}

/// Removes the rows of a part, except for those of its kept jobs, by the function `remove_all`. Returns the
/// number of rows that stay.
pub(super) fn reduce(
    connection: &mut dyn Connection,
    part: &Part,
    remove_all: impl Fn(&mut dyn Connection, &Part) -> Result<(), DatabaseError>,
) -> Result<u64, StoreError> {
    let (copied, written) = replace_rows(connection, part, remove_all).context(ACTION)?;
    if copied != written {
        return Err(StoreError::Unusable(format!(
            "cannot keep the samples of jobs in {}: {written} of {copied} would remain; nothing was changed",
            part.name.as_deref().unwrap_or(parts::table(part))
        )));
    }
    Ok(written)
}

/// Returns how many rows were copied, and how many were written back.
fn replace_rows(
    connection: &mut dyn Connection,
    part: &Part,
    remove_all: impl Fn(&mut dyn Connection, &Part) -> Result<(), DatabaseError>,
) -> Result<(u64, u64), DatabaseError> {
    let table = parts::table(part);
    // No row is added between the copy and the removal.
    connection
        .execute(&format!("LOCK TABLE {} IN SHARE MODE", part.name.as_deref().unwrap_or(table)), &[])?;
    select_series(connection, part, &part.kept_jobs)?;
    connection.execute(&format!("CREATE TEMP TABLE kept_rows (LIKE {table}) ON COMMIT DROP"), &[])?;
    let is_distributed = part.level == Level::Samples && citus::has_functions(connection)?;
    let is_kept = if is_distributed { IS_KEPT_BY_SHARD } else { IS_KEPT };
    let copy = format!(
        "INSERT INTO kept_rows SELECT * FROM {table} AS row WHERE {} AND {is_kept}",
        parts::range(part)
    );
    let copied = connection.execute(&copy, &[])?;
    remove_all(connection, part)?;
    let back = format!("INSERT INTO {table} SELECT * FROM kept_rows ORDER BY series_id, time");
    let written = connection.execute(&back, &[])?;
    forget(connection, part)?;
    connection.execute(
        "INSERT INTO kept_part (relation, begin_at, job_keys) VALUES ($1, $2, $3)",
        &[part.level.relation().into(), Value::Time(part.begin_us), joined(&part.kept_jobs).into()],
    )?;
    Ok((copied, written))
}
