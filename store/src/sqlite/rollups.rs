//! The rollups of an SQLite store: tables of computed buckets, and views that compute the buckets of the
//! samples behind them.
//!
//! Samples are added in the order of their rowids, which is the order in which they were inserted. A step
//! computes the buckets that a bounded number of samples changes, however late they arrive, in a transaction,
//! and lets the writer go first before the next one.

use std::time::Duration;

use crate::StoreError;
use crate::backend::{Connection, Task};
use crate::error::{Context, DatabaseError};
use crate::stop::Stop;

pub(super) const ADD: Task = Task { name: "add samples to the rollups", rounds: 1, run: add };

/// The number of samples that a transaction adds: it delays the writer by some 200 ms.
const STEP_ROWS: i64 = 20_000;

/// The pause between two transactions, in which the writer can begin its own: it tries again after 25 ms.
const PAUSE: Duration = Duration::from_millis(60);

/// The wider rollups: the table, the width of its buckets in nanoseconds, and the table from which it is
/// computed.
const WIDER: [(&str, i64, &str); 2] =
    [("1min", 60_000_000_000, "rollup_10s"), ("1h", 3_600_000_000_000, "rollup_1min")];

pub(super) fn add(connection: &mut dyn Connection, stop: &Stop) -> Result<(), StoreError> {
    const ACTION: &str = "add samples to the rollups";
    let changed = "CREATE TEMP TABLE IF NOT EXISTS changed (series_id INTEGER, time INTEGER)";
    connection.execute(changed, &[]).context(ACTION)?;
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
    connection
        .execute("UPDATE rollup SET samples_rowid = $1, step_rowid = $2", &[done.into(), end.into()])?;
    connection.execute("DELETE FROM temp.changed", &[])?;
    connection
        .execute("INSERT INTO temp.changed SELECT series_id, time FROM polymeter_changed_bucket", &[])?;
    connection.execute("INSERT OR REPLACE INTO rollup_10s SELECT * FROM polymeter_changed_10s", &[])?;
    for (name, width_ns, finer) in WIDER {
        connection.execute(&widen(name, width_ns, finer), &[])?;
    }
    connection.execute("UPDATE rollup SET samples_rowid = $1, step_rowid = NULL", &[end.into()])?;
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

/// Returns the statement that computes the changed buckets of `width_ns` from those of the table `finer`.
fn widen(name: &str, width_ns: i64, finer: &str) -> String {
    format!(
        "INSERT OR REPLACE INTO rollup_{name}
         SELECT series_id, wide, sum(count), min(min), max(max), sum(integral), sum(covered_s), min(first), min(last) FROM (
             SELECT part.series_id, wide, count, min, max, integral, covered_s, first_value(first) OVER line AS first,
                    last_value(last) OVER line AS last
             FROM (SELECT DISTINCT series_id, time - time % {width_ns} AS wide FROM temp.changed) AS part
             CROSS JOIN {finer} AS bucket ON bucket.series_id = part.series_id AND bucket.time >= wide AND bucket.time < wide + {width_ns}
             WHERE wide >= coalesce((SELECT final_before FROM rollup WHERE relation = 'samples_{name}'), 0)
             WINDOW line AS (PARTITION BY part.series_id, wide ORDER BY bucket.time
                 ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
         ) GROUP BY series_id, wide"
    )
}
