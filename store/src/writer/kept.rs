//! Samples that rings kept, and their intervals.

use super::progress::key_of;
use crate::accepted::Accepted;
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::value::{Batch, Column, ColumnType, Value};

const SAMPLE: [Column; 3] =
    [("time", ColumnType::Time), ("series_id", ColumnType::Integer), ("value", ColumnType::Real)];

const INTERVAL: [Column; 7] = [
    ("job_key", ColumnType::Integer),
    ("node", ColumnType::Text),
    ("started", ColumnType::Time),
    ("ended", ColumnType::Time),
    ("trigger_id", ColumnType::Integer),
    ("reason", ColumnType::Text),
    ("samples", ColumnType::Integer),
];

/// Inserts the kept samples of `frames` and their intervals. Returns the number of samples.
pub(super) fn insert(connection: &mut dyn Connection, frames: &[&Accepted]) -> Result<u64, DatabaseError> {
    let (mut samples, mut intervals) = (Vec::new(), Vec::new());
    for frame in frames {
        for (series, column) in frame.kept.iter().flat_map(|block| block.iter()) {
            let id = series.id.get();
            samples.extend(column.map(|(time_us, value)| [Value::time(time_us), id.into(), value.into()]));
        }
        for (job, interval) in &frame.kept_intervals {
            let Some(job_key) = key_of(Some(job)) else { continue };
            intervals.push([
                job_key.into(),
                frame.session.descriptor.node.as_str().into(),
                Value::time(interval.begin_us),
                Value::time(interval.end_us),
                interval.trigger.cast_signed().into(),
                interval.reason.as_str().into(),
                Value::count(interval.samples),
            ]);
        }
    }
    if !intervals.is_empty() {
        connection.execute_batch(
            "INSERT INTO kept_interval (job_key, node, started, ended, trigger_id, reason, samples)
             SELECT job_key, node, started, ended, trigger_id, reason, samples FROM {new}",
            &Batch::new(&INTERVAL, intervals),
        )?;
    }
    if samples.is_empty() {
        return Ok(0);
    }
    connection.execute_batch(
        "INSERT INTO kept_sample (time, series_id, value) SELECT time, series_id, value FROM {new}",
        &Batch::new(&SAMPLE, samples),
    )
}
