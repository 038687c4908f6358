//! The space of a file.

use std::path::Path;

use crate::StoreError;
use crate::backend::Connection;
use crate::error::{Context, DatabaseError};
use crate::retention::{Level, LevelSize, Storage};
use crate::value::{Row, Value};

use super::retention::INCREMENTAL_VACUUM;

/// The days over which the growth is averaged.
const GROWTH_DAYS: i64 = 7;

const DAY_US: i64 = 86_400 * 1_000_000;

/// Returns the space of the store in the file at `path`. The number of samples is that of the rowids between the oldest and the
/// newest.
pub(super) fn measure(
    connection: &mut dyn Connection,
    path: &Path,
    now_us: i64,
) -> Result<Storage, StoreError> {
    measure_all(connection, path, now_us).context("measure the store")
}

fn measure_all(connection: &mut dyn Connection, path: &Path, now_us: i64) -> Result<Storage, DatabaseError> {
    let page_bytes = number(connection, "PRAGMA page_size", &[])?;
    let bytes = number(connection, "PRAGMA page_count", &[])? * page_bytes;
    let free_bytes = number(connection, "PRAGMA freelist_count", &[])? * page_bytes;
    let samples = number(connection, "SELECT coalesce(max(rowid) - min(rowid) + 1, 0) FROM samples", &[])?;
    // The samples of the last days, at the mean size of a sample with its summaries.
    let begin = Value::Time(now_us - GROWTH_DAYS * DAY_US);
    let recent =
        number(connection, "SELECT coalesce(sum(count), 0) FROM rollup_1h WHERE time >= $1", &[begin])?;
    let level = LevelSize {
        level: Level::Samples,
        bytes: bytes - free_bytes.min(bytes),
        growth_bytes: growth(recent, samples, bytes - free_bytes.min(bytes)),
    };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok(Storage {
        bytes,
        free_bytes,
        samples,
        jobs: number(connection, "SELECT count(*) FROM job", &[])?,
        levels: vec![level],
        parts: Vec::new(),
        directory: Ok(directory.unwrap_or(Path::new(".")).to_owned()),
        returns_space: number(connection, "PRAGMA auto_vacuum", &[])? == u64::from(INCREMENTAL_VACUUM),
    })
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn growth(recent: u64, samples: u64, bytes: u64) -> f64 {
    if samples == 0 { 0.0 } else { recent as f64 / GROWTH_DAYS as f64 * (bytes as f64 / samples as f64) }
}

fn number(
    connection: &mut dyn Connection,
    select: &str,
    parameters: &[Value<'_>],
) -> Result<u64, DatabaseError> {
    Ok(connection.query(select, parameters)?.first_mut().map_or(0, Row::count))
}
