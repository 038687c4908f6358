//! Histograms of windows.

use polymeter_proto::histogram::least_of;
use polymeter_proto::units::to_f64;

use super::progress::key_of;
use crate::accepted::Accepted;
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::value::{Batch, Column, ColumnType, Value};

const BUCKET: [Column; 5] = [
    ("job_key", ColumnType::Integer),
    ("time", ColumnType::Time),
    ("series_id", ColumnType::Integer),
    ("least", ColumnType::Real),
    ("count", ColumnType::Integer),
];

pub(super) fn insert(connection: &mut dyn Connection, frames: &[&Accepted]) -> Result<(), DatabaseError> {
    let mut rows = Vec::new();
    for histogram in frames.iter().flat_map(|frame| &frame.histograms) {
        let job_key = key_of(histogram.series.job.as_ref());
        if job_key.is_none() && histogram.series.job.is_some() {
            continue;
        }
        let Some(series_id) = histogram.series.id.get() else { continue };
        rows.extend(histogram.counts.iter().map(|(bucket, count)| {
            let least = to_f64(least_of(*bucket));
            [
                job_key.into(),
                Value::time(histogram.time_us),
                series_id.into(),
                least.into(),
                Value::count(*count),
            ]
        }));
    }
    if rows.is_empty() {
        return Ok(());
    }
    let columns = "job_key, time, series_id, least, count";
    let statement = format!("INSERT INTO window_histogram ({columns}) SELECT {columns} FROM {{new}}");
    connection.execute_batch(&statement, &Batch::new(&BUCKET, rows)).map(drop)
}
