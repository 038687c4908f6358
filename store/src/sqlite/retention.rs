//! Retention in SQLite: rows are deleted in small transactions, and their space is returned to the file
//! system.

use std::time::Duration;

use crate::StoreError;
use crate::backend::{Connection, Removal, Removed, Task};
use crate::error::{Context, DatabaseError};
use crate::removal::{record, remove_due};
use crate::retention::{Cutoffs, Level, Part, PartKind};
use crate::row::TimeUs;
use crate::stop::Stop;
use crate::value::Value;

use super::candidates::{self, Candidates, KEPT};
use super::rollups;

/// Removes what the policy does not keep.
pub(super) const REMOVE: Task = Task {
    name: "delete old samples",
    rounds: 10,
    run: |connection, stop| remove_due(connection, stop, &REMOVAL),
};

/// Returns the space of deleted rows to the file system.
pub(super) const SHRINK: Task = Task { name: "shrink the file", rounds: 10, run: shrink };

pub(super) const REMOVAL: Removal = Removal { due, prepare, remove, finish: shrink };

const ACTION: &str = "delete old samples";

/// Rows that a transaction deletes: it delays the writer by some 50 ms.
const STEP_ROWS: i64 = 10_000;

const STEP_SERIES: u32 = 1000;

const STEP_PAGES: i64 = 500;

/// Part of the pages that stays free for the next samples: the reciprocal of 5 %.
const RESERVE_PART: i64 = 20;

/// Value of `PRAGMA auto_vacuum` of a file whose free pages can be returned.
pub(super) const INCREMENTAL_VACUUM: u8 = 2;

/// Pause between two transactions, in which the writer can begin its own: it tries again after 25 ms.
const PAUSE: Duration = Duration::from_millis(60);

/// Condition that a row of `old` is not of a kept job.
const IS_NOT_KEPT: &str = "NOT EXISTS (SELECT 1 FROM temp.kept_series
     WHERE kept_series.series_id = old.series_id AND old.time BETWEEN kept_series.lower AND kept_series.upper)";

/// Condition that a sample is not the newest row: its rowid would be assigned again.
const IS_NOT_NEWEST: &str = "old.rowid < (SELECT max(rowid) FROM samples)";

/// Condition that a sample is in the rollups, and not the newest row.
const IS_DONE: &str =
    "old.rowid <= (SELECT min(samples_rowid) FROM rollup) AND old.rowid < (SELECT max(rowid) FROM samples)";

const fn table(level: Level) -> &'static str {
    match level {
        Level::Samples => "samples",
        Level::TenSeconds => "rollup_10s",
        Level::Minute => "rollup_1min",
        Level::Hour => "rollup_1h",
    }
}

/// Returns a part for each level that has rows before its cutoff, of which some are not of kept jobs.
fn due(connection: &mut dyn Connection, cutoffs: &Cutoffs) -> Result<Vec<Part>, StoreError> {
    let kept_jobs = select_kept(connection).context(ACTION)?;
    let mut parts = Vec::new();
    for level in Level::ALL {
        let Some(before_us) = cutoffs.of(level) else { continue };
        if let Some(oldest_us) = oldest(connection, level, before_us).context(ACTION)? {
            parts.push(Part {
                level,
                name: None,
                begin_us: oldest_us,
                end_us: before_us,
                bytes: None,
                kept_jobs: kept_jobs.clone(),
                kind: PartKind::Rows(table(level)),
            });
        }
    }
    Ok(parts)
}

/// Selects the series of kept jobs, and those of their nodes while they ran there, into a temporary table.
/// Returns the keys of the jobs.
fn select_kept(connection: &mut dyn Connection) -> Result<Vec<i64>, DatabaseError> {
    for statement in [
        "CREATE TEMP TABLE IF NOT EXISTS kept_series (series_id INTEGER, lower INTEGER, upper INTEGER)",
        "CREATE INDEX IF NOT EXISTS temp.kept_series_by_id ON kept_series (series_id)",
        "DELETE FROM temp.kept_series",
    ] {
        connection.execute(statement, &[])?;
    }
    connection.execute(
        &format!("INSERT INTO temp.kept_series SELECT series_id, 0, 9223372036854775807 FROM series WHERE job_key IN ({KEPT})"),
        &[],
    )?;
    connection.execute(
        &format!(
            "INSERT INTO temp.kept_series SELECT series_id, started - 3600000000000, coalesce(ended + 3600000000000, 9223372036854775807)
             FROM job_node JOIN series ON series.measured_node = job_node.node AND series.job_key IS NULL
             WHERE job_node.job_key IN ({KEPT})"
        ),
        &[],
    )?;
    connection.select(&format!("{KEPT} ORDER BY job_key"), &[])
}

/// Returns the time of the oldest row of a level that can be deleted; none if there is none.
fn oldest(
    connection: &mut dyn Connection,
    level: Level,
    before_us: i64,
) -> Result<Option<i64>, DatabaseError> {
    let is_done = if level == Level::Samples { IS_NOT_NEWEST } else { "1" };
    let is_due = format!("{is_done} AND {IS_NOT_KEPT}");
    let mut oldest_us: Option<i64> = None;
    for old in candidates::of_relation(connection, level.relation(), before_us)? {
        let first_us = old.oldest(connection, table(level), &is_due)?;
        oldest_us = oldest_us.into_iter().chain(first_us).min();
    }
    Ok(oldest_us)
}

/// Adds all samples to the rollups.
fn prepare(connection: &mut dyn Connection, stop: &Stop) -> Result<(), StoreError> {
    rollups::add(connection, stop)
}

/// Progress in a list of series: the number of the next one, and the time from which on its rows are left.
struct Position {
    number: usize,
    from_us: i64,
}

/// Deletes the rows of a level, series by series.
fn remove(connection: &mut dyn Connection, part: &Part, stop: &Stop) -> Result<Removed, StoreError> {
    for old in candidates::of_relation(connection, part.level.relation(), part.end_us).context(ACTION)? {
        let mut last_block = i64::MIN;
        while let Some((block, series)) = old.next_series(connection, last_block).context(ACTION)? {
            last_block = block;
            let mut position = Some(Position { number: 0, from_us: old.from_us });
            while let Some(begin) = position {
                if stop.is_requested_within(PAUSE) {
                    return Ok(Removed::Postponed);
                }
                connection.begin().context(ACTION)?;
                // A job may be kept since the last transaction.
                select_kept(connection).context(ACTION)?;
                record(connection, part.level, part.end_us).context(ACTION)?;
                position = remove_step(connection, part, &old, &series, begin).context(ACTION)?;
                connection.commit().context(ACTION)?;
            }
        }
    }
    Ok(Removed::Done { kept_rows: 0 })
}

/// Deletes a bounded number of rows of `series` from `position` on. Returns the next position; none at the
/// end.
fn remove_step(
    connection: &mut dyn Connection,
    part: &Part,
    old: &Candidates,
    series: &[i64],
    mut position: Position,
) -> Result<Option<Position>, DatabaseError> {
    let table = table(part.level);
    let is_done = if part.level == Level::Samples { IS_DONE } else { "1" };
    let bound = format!(
        "SELECT time FROM {table} WHERE series_id = $1 AND time > $2 AND time < $3 ORDER BY time LIMIT 1 OFFSET {STEP_ROWS}"
    );
    let delete = format!(
        "DELETE FROM {table} AS old WHERE series_id = $1 AND time >= $2 AND time < $3 AND {is_done} AND {IS_NOT_KEPT}"
    );
    let mut deleted = 0;
    for _ in 0..STEP_SERIES {
        let Some(id) = series.get(position.number) else { return Ok(None) };
        let range = [(*id).into(), Value::Time(position.from_us), Value::Time(part.end_us)];
        let bound_us = connection.select_first(&bound, &range)?;
        let to_us = bound_us.map_or(part.end_us, |TimeUs(time_us)| time_us);
        deleted += connection
            .execute(&delete, &[(*id).into(), Value::Time(position.from_us), Value::Time(to_us)])?;
        position = if to_us < part.end_us {
            Position { from_us: to_us, ..position }
        } else {
            Position { number: position.number + 1, from_us: old.from_us }
        };
        if deleted >= STEP_ROWS.cast_unsigned() {
            break;
        }
    }
    Ok(Some(position))
}

/// Returns free pages to the file system, except for a reserve for the next samples.
fn shrink(connection: &mut dyn Connection, stop: &Stop) -> Result<(), StoreError> {
    const ACTION: &str = "shrink the file";
    let vacuum: i64 = connection.select_one("PRAGMA auto_vacuum", &[]).context(ACTION)?;
    if vacuum != i64::from(INCREMENTAL_VACUUM) {
        return Ok(());
    }
    loop {
        let free: i64 = connection.select_one("PRAGMA freelist_count", &[]).context(ACTION)?;
        let all: i64 = connection.select_one("PRAGMA page_count", &[]).context(ACTION)?;
        let surplus = free - all / RESERVE_PART;
        if surplus <= 0 {
            return Ok(());
        }
        let pages = surplus.min(STEP_PAGES);
        connection.query(&format!("PRAGMA incremental_vacuum({pages})"), &[]).context(ACTION)?;
        if stop.is_requested_within(PAUSE) {
            return Ok(());
        }
    }
}
