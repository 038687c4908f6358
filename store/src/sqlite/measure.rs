//! Space of a file.

use std::path::Path;

use crate::StoreError;
use crate::backend::Connection;
use crate::error::{Context, DatabaseError};
use crate::retention::{Level, LevelSize, Storage};
use crate::row::TimeUs;

use super::retention::INCREMENTAL_VACUUM;

/// Days over which the growth is averaged.
const GROWTH_DAYS: i64 = 7;

const DAY_US: i64 = 86_400 * 1_000_000;

/// Samples that were inserted together and one of which is probably not late.
const TOGETHER: u32 = 100;

/// Returns the space of the store in the file at `path`. The number of samples is that of the rowids between
/// the oldest and the newest.
pub(super) fn measure(
    connection: &mut dyn Connection,
    path: &Path,
    now_us: i64,
) -> Result<Storage, StoreError> {
    measure_all(connection, path, now_us).context("measure the store")
}

fn measure_all(connection: &mut dyn Connection, path: &Path, now_us: i64) -> Result<Storage, DatabaseError> {
    let page_bytes = number(connection, "PRAGMA page_size")?;
    let bytes = number(connection, "PRAGMA page_count")? * page_bytes;
    let free_bytes = number(connection, "PRAGMA freelist_count")? * page_bytes;
    // One statement for both would read the whole table.
    let first = number(connection, "SELECT coalesce(min(rowid), 1) FROM samples")?;
    let last = number(connection, "SELECT coalesce(max(rowid), 0) FROM samples")?;
    let samples = (last + 1).saturating_sub(first);
    let used_bytes = bytes - free_bytes.min(bytes);
    let of_day = if samples == 0 { None } else { samples_per_day(connection, first, last, now_us)? };
    let growth_bytes = of_day.map(|of_day| of_day * float(used_bytes) / float(samples));
    let level = LevelSize { level: Level::Samples, bytes: used_bytes, growth_bytes };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok(Storage {
        form: "SQLite",
        is_timescale: false,
        is_citus: false,
        bytes,
        free_bytes,
        samples,
        jobs: number(connection, "SELECT count(*) FROM job")?,
        levels: vec![level],
        parts: Vec::new(),
        directory: Ok(directory.unwrap_or(Path::new(".")).to_owned()),
        returns_space: number(connection, "PRAGMA auto_vacuum")? == u64::from(INCREMENTAL_VACUUM),
    })
}

/// Returns the number of samples per day, the mean of the last days; none if the first is younger than a day.
/// Rowids are in the order of insertion, which is that of the times except for late samples.
fn samples_per_day(
    connection: &mut dyn Connection,
    first: u64,
    last: u64,
    now_us: i64,
) -> Result<Option<f64>, DatabaseError> {
    let time_of = format!(
        "SELECT max(time) FROM (SELECT time FROM samples WHERE rowid >= $1 ORDER BY rowid LIMIT {TOGETHER})"
    );
    let mut time_us = |rowid: u64| -> Result<i64, DatabaseError> {
        let TimeUs(time_us): TimeUs<Option<i64>> =
            connection.select_one(&time_of, &[rowid.cast_signed().into()])?;
        // Retention may have deleted the rows meanwhile.
        Ok(time_us.unwrap_or_default())
    };
    let begin_us = (now_us - GROWTH_DAYS * DAY_US).max(time_us(first)?);
    if begin_us > now_us - DAY_US {
        return Ok(None);
    }
    let (mut low, mut high) = (first, last + 1);
    while low < high {
        let middle = low.midpoint(high);
        if time_us(middle)? >= begin_us {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let days = float((now_us - begin_us).cast_unsigned()) / float(DAY_US.cast_unsigned());
    Ok(Some(float(last + 1 - low) / days))
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
const fn float(number: u64) -> f64 {
    number as f64
}

fn number(connection: &mut dyn Connection, select: &str) -> Result<u64, DatabaseError> {
    connection.select_one(select, &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::new_store;

    const NOW_US: i64 = 20_000 * DAY_US;

    /// Samples per day of a store with one each minute since `hours`.
    fn per_day(hours: i64) -> Option<f64> {
        let (_directory, mut connection) = new_store();
        let minutes = 60 * hours;
        let each_minute = "WITH RECURSIVE ago(minutes) AS (SELECT $1 UNION ALL SELECT minutes - 1 FROM ago WHERE minutes > 1)
             INSERT INTO samples (time, series_id, value) SELECT ($2 - minutes * 60000000) * 1000, 1, minutes FROM ago";
        connection.execute(each_minute, &[minutes.into(), NOW_US.into()]).unwrap();
        samples_per_day(connection.as_mut(), 1, minutes.cast_unsigned(), NOW_US).unwrap()
    }

    #[test]
    fn the_growth_is_known_after_a_day() {
        assert_eq!([1, 23].map(per_day), [None, None]);
        for days in [3, 7, 40] {
            let of_day = per_day(24 * days).unwrap();
            // The first time is that of the hundredth sample: one of them may be late.
            assert!((1440.0..1440.0 * 1.03).contains(&of_day), "{days} d: {of_day}");
        }
    }
}
