//! The rollups of an SQLite store: tables to which the maintenance adds new samples, and views that add the
//! samples behind them.
//!
//! Samples are added in the order of their rowids, which is the order in which they were inserted. Each
//! sample is therefore added once, however late it arrives, and nothing is computed again. A step adds a
//! bounded number of samples in a transaction, and lets the writer go first before the next one.

use std::time::Duration;

use crate::StoreError;
use crate::backend::{Connection, Task};
use crate::error::{Context, DatabaseError};
use crate::stop::Stop;

pub(super) const ADD: Task = Task { name: "add samples to the rollups", rounds: 1, run: add };

/// The number of samples that a transaction adds: it delays the writer by some 50 ms.
const STEP_ROWS: i64 = 20_000;

/// The pause between two transactions, in which the writer can begin its own: it tries again after 25 ms.
const PAUSE: Duration = Duration::from_millis(60);

/// Computes the buckets of 10 s of the samples with rowids from `$1` to `$2`, and how they change a sum of
/// means, as `polymeter_recent_bucket` does.
const DELTA: &str = "INSERT INTO temp.delta
     SELECT buckets.series_id, bucket, buckets.count, buckets.min, buckets.max, buckets.sum,
            buckets.first_time,
            (SELECT value FROM samples
             WHERE samples.series_id = buckets.series_id AND samples.time = buckets.first_time
                 AND samples.rowid BETWEEN $1 AND $2 ORDER BY samples.rowid LIMIT 1),
            buckets.last_time,
            (SELECT value FROM samples
             WHERE samples.series_id = buckets.series_id AND samples.time = buckets.last_time
                 AND samples.rowid BETWEEN $1 AND $2 ORDER BY samples.rowid DESC LIMIT 1),
            coalesce((old.sum + buckets.sum) / (old.count + buckets.count) - old.sum / old.count,
                     buckets.sum / buckets.count),
            old.series_id IS NULL, buckets.rate_min, buckets.rate_max
     FROM (
         SELECT series_id, time - time % 10000000000 AS bucket, sum(coalesce(count, 1)) AS count,
                min(CASE WHEN sum IS NULL THEN value ELSE min END) AS min,
                max(CASE WHEN sum IS NULL THEN value ELSE max END) AS max,
                sum(coalesce(sum, value * coalesce(count, 1))) AS sum, min(time) AS first_time,
                max(time) AS last_time, min(CASE WHEN sum IS NULL THEN min END) AS rate_min,
                max(CASE WHEN sum IS NULL THEN max END) AS rate_max
         FROM samples NOT INDEXED WHERE rowid BETWEEN $1 AND $2 AND value IS NOT NULL GROUP BY series_id, bucket
     ) AS buckets LEFT JOIN rollup_10s AS old ON old.series_id = buckets.series_id AND old.time = bucket";

/// The tables, with the width of their buckets in nanoseconds.
const TABLES: [(&str, i64); 3] =
    [("rollup_10s", 10_000_000_000), ("rollup_1min", 60_000_000_000), ("rollup_1h", 3_600_000_000_000)];

pub(super) fn add(connection: &mut dyn Connection, stop: &Stop) -> Result<(), StoreError> {
    const ACTION: &str = "add samples to the rollups";
    let delta = "CREATE TEMP TABLE IF NOT EXISTS delta (series_id INTEGER, time INTEGER, count INTEGER, min REAL, max REAL,
         sum REAL, first_time INTEGER, first REAL, last_time INTEGER, last REAL, mean_change REAL,
         parts_change INTEGER, rate_min REAL, rate_max REAL)";
    connection.execute(delta, &[]).context(ACTION)?;
    while !stop.is_requested() && add_step(connection).context(ACTION)? {
        if stop.is_requested_within(PAUSE) {
            break;
        }
    }
    Ok(())
}

/// Adds the next samples. Returns false if there may be no further ones.
fn add_step(connection: &mut dyn Connection) -> Result<bool, DatabaseError> {
    // Without a lock first: most steps find nothing to do.
    let (done, last) = position(connection)?;
    if done == last {
        return Ok(false);
    }
    connection.begin()?;
    let (done, last) = position(connection)?;
    let end = last.min(done + STEP_ROWS);
    connection.execute("DELETE FROM temp.delta", &[])?;
    connection.execute(DELTA, &[(done + 1).into(), end.into()])?;
    for (table, width_ns) in TABLES {
        connection.execute(&merge(table, width_ns), &[])?;
    }
    connection.execute("UPDATE rollup SET samples_rowid = $1", &[end.into()])?;
    connection.commit()?;
    Ok(end < last)
}

/// Returns the rowids of the newest sample in the tables, and of the newest sample.
fn position(connection: &mut dyn Connection) -> Result<(i64, i64), DatabaseError> {
    let select = "SELECT min(samples_rowid), (SELECT coalesce(max(rowid), 0) FROM samples) FROM rollup";
    let (done, last): (i64, i64) = connection.select_one(select, &[])?;
    // If the newest samples were deleted, their rowids are assigned again.
    Ok((done.min(last), last))
}

/// Returns the statement that adds the computed buckets of 10 s to a table with buckets of `width_ns`.
///
/// Several buckets of 10 s may belong to one: they are added one after the other, in the order of their
/// times.
fn merge(table: &str, width_ns: i64) -> String {
    let (parts, sum, more) = if table == "rollup_10s" {
        ("", "sum", "")
    } else {
        (", parts", "mean_change, parts_change", ", parts = parts + excluded.parts")
    };
    format!(
        "INSERT INTO {table}
             (series_id, time, count, min, max, sum{parts}, first_time, first, last_time, last, rate_min,
              rate_max)
         SELECT series_id, time - time % {width_ns}, count, min, max, {sum}, first_time, first,
             last_time, last, rate_min, rate_max
         FROM temp.delta WHERE true ORDER BY series_id, time
         ON CONFLICT (series_id, time) DO UPDATE SET
             count = count + excluded.count, min = min(min, excluded.min), max = max(max, excluded.max),
             sum = sum + excluded.sum{more},
             first = CASE WHEN excluded.first_time < first_time THEN excluded.first ELSE first END,
             first_time = min(first_time, excluded.first_time),
             last = CASE WHEN excluded.last_time >= last_time THEN excluded.last ELSE last END,
             last_time = max(last_time, excluded.last_time),
             rate_min = min(coalesce(rate_min, excluded.rate_min), coalesce(excluded.rate_min, rate_min)),
             rate_max = max(coalesce(rate_max, excluded.rate_max), coalesce(excluded.rate_max, rate_max))"
    )
}
