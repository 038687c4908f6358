//! Quarantined samples, losses and marks.

use std::sync::Arc;

use super::progress::key_of;
use crate::accepted::{Accepted, JobRecord, SampleBlock};
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::value::{Batch, Column, ColumnType, Value};

const QUARANTINED: [Column; 8] = [
    ("time", ColumnType::Time),
    ("series_id", ColumnType::Integer),
    ("value", ColumnType::Real),
    ("received", ColumnType::Time),
    ("count", ColumnType::Integer),
    ("min", ColumnType::Real),
    ("max", ColumnType::Real),
    ("sum", ColumnType::Real),
];

const LOSS: [Column; 9] = [
    ("time", ColumnType::Time),
    ("node", ColumnType::Text),
    ("session_id", ColumnType::Text),
    ("samples", ColumnType::Integer),
    ("reason", ColumnType::Text),
    ("first_time", ColumnType::Time),
    ("last_time", ColumnType::Time),
    ("job_key", ColumnType::Integer),
    ("source", ColumnType::Text),
];

const MARK: [Column; 7] = [
    ("time", ColumnType::Time),
    ("node", ColumnType::Text),
    ("job_key", ColumnType::Integer),
    ("job_id", ColumnType::Text),
    ("name", ColumnType::Text),
    ("actor", ColumnType::Text),
    ("detail", ColumnType::Json),
];

/// Returns the number of quarantined samples.
pub(super) fn insert_quarantined(
    connection: &mut dyn Connection,
    frames: &[&Accepted],
) -> Result<u64, DatabaseError> {
    let mut rows = Vec::new();
    for frame in frames {
        for (series, column) in frame.quarantined.iter().flat_map(|samples| samples.rows()) {
            let (id, received) = (series.id.get(), frame.received_us);
            rows.extend(column.map(|(time_us, value, window)| {
                [
                    Value::time(time_us),
                    id.into(),
                    value.into(),
                    Value::time(received),
                    window.map_or(Value::Null, |window| Value::count(window.count)),
                    known(window.map(|window| window.min)),
                    known(window.map(|window| window.max)),
                    known(window.map(|window| window.sum)),
                ]
            }));
        }
    }
    insert(
        connection,
        "INSERT INTO samples_quarantine (time, series_id, value, received, count, min, max, sum)
         SELECT time, series_id, value, received, count, min, max, sum FROM {new}",
        &Batch::new(&QUARANTINED, rows),
    )?;
    Ok(frames.iter().flat_map(|frame| &frame.quarantined).map(SampleBlock::samples).sum())
}

/// Returns a number of a window that may be unknown.
fn known(number: Option<f64>) -> Value<'static> {
    number.filter(|number| !number.is_nan()).into()
}

pub(super) fn insert_losses(
    connection: &mut dyn Connection,
    frames: &[&Accepted],
) -> Result<u64, DatabaseError> {
    let losses = frames.iter().flat_map(|frame| frame.losses.iter().map(move |loss| (frame, loss)));
    let rows = losses.map(|(frame, loss)| {
        [
            Value::time(frame.received_us),
            frame.session.descriptor.node.as_str().into(),
            frame.session.id.to_string().into(),
            Value::count(loss.samples),
            loss.reason.as_str().into(),
            Value::time(loss.span_us.0),
            Value::time(loss.span_us.1),
            loss.line.as_ref().and_then(|line| key_of(line.job.as_ref())).into(),
            loss.line.as_ref().map(|line| line.source.as_str()).into(),
        ]
    });
    insert(
        connection,
        "INSERT INTO loss (time, node, session_id, samples, reason, first_time, last_time, job_key, source)
         SELECT time, node, session_id, samples, reason, first_time, last_time, job_key, source FROM {new}",
        &Batch::new(&LOSS, rows),
    )
}

pub(super) fn insert_marks(
    connection: &mut dyn Connection,
    frames: &[&Accepted],
) -> Result<u64, DatabaseError> {
    let mut rows = Vec::new();
    for frame in frames {
        rows.extend(frame.marks.iter().map(|(job, mark)| {
            [
                Value::time(mark.at_us),
                frame.session.descriptor.node.as_str().into(),
                key_of(job.as_ref()).into(),
                job_id(job.as_ref()),
                mark.name.as_str().into(),
                mark.by.as_ref().map(|user| user.as_str()).into(),
                serde_json::json!({ "kind": mark.kind.as_str() }).to_string().into(),
            ]
        }));
    }
    insert(
        connection,
        "INSERT INTO mark (time, node, job_key, job_id, name, actor, detail)
         SELECT time, node, job_key, job_id, name, actor, detail FROM {new}",
        &Batch::new(&MARK, rows),
    )
}

fn job_id(job: Option<&Arc<JobRecord>>) -> Value<'_> {
    job.map(|job| job.descriptor.job_id.as_str()).into()
}

fn insert(connection: &mut dyn Connection, statement: &str, batch: &Batch<'_>) -> Result<u64, DatabaseError> {
    if batch.is_empty() { Ok(0) } else { connection.execute_batch(statement, batch) }
}
