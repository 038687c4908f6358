//! The ids of series.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::found::set_ids;
use super::progress::{distinct, key_of};
use crate::accepted::{Accepted, SeriesRecord};
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::labels::labels_json;
use crate::value::{Batch, Column, ColumnType, Value};

const METRIC: [Column; 3] =
    [("metric", ColumnType::Text), ("unit", ColumnType::Text), ("kind", ColumnType::Text)];

const SERIES: [Column; 6] = [
    ("position", ColumnType::Integer),
    ("node", ColumnType::Text),
    ("metric", ColumnType::Text),
    ("job_key", ColumnType::Integer),
    ("job_id", ColumnType::Text),
    ("labels", ColumnType::Json),
];

/// Returns the series of `frames` without an id, without duplicates, in an order that is the same for all
/// connections.
pub(super) fn without_id(frames: &[Accepted]) -> Vec<Arc<SeriesRecord>> {
    let mut series =
        distinct(frames.iter().flat_map(Accepted::series).filter(|series| series.id.get().is_none()));
    series.sort_by(|a, b| {
        let place = |series: &SeriesRecord| (series.node().clone(), series.metric.name.clone());
        (place(a), key_of(a.job.as_ref()), &a.labels).cmp(&(place(b), key_of(b.job.as_ref()), &b.labels))
    });
    series
}

fn batch(series: &[Arc<SeriesRecord>]) -> Batch<'_> {
    Batch::new(
        &SERIES,
        (0..).zip(series).map(|(position, series)| {
            [
                Value::Integer(position),
                series.node().as_str().into(),
                series.metric.name.as_str().into(),
                key_of(series.job.as_ref()).into(),
                series.job.as_ref().map(|job| job.descriptor.job_id.as_str()).into(),
                labels_json(&series.labels).into(),
            ]
        }),
    )
}

/// Sets the ids of those of `series` that are in the store.
pub(super) fn find(
    connection: &mut dyn Connection,
    series: &[Arc<SeriesRecord>],
) -> Result<(), DatabaseError> {
    if series.is_empty() {
        return Ok(());
    }
    // Each series is looked up in the index: a planner could otherwise read and hash all series of the store.
    let found = connection.query_batch(
        "SELECT new.position, (
             SELECT series.series_id FROM series
             WHERE series.node = new.node AND series.metric = new.metric
                 AND coalesce(series.job_key, 0) = coalesce(new.job_key, 0) AND {same_labels} LIMIT 1
         ) FROM {new}",
        &batch(series),
    )?;
    set_ids(found, series, |series| &series.id);
    Ok(())
}

/// Inserts `series` and their metrics, except for those that are in the store.
pub(super) fn insert(
    connection: &mut dyn Connection,
    series: &[Arc<SeriesRecord>],
) -> Result<(), DatabaseError> {
    if series.is_empty() {
        return Ok(());
    }
    insert_metrics(connection, series)?;
    connection.execute_batch(
        "INSERT INTO series (node, metric, job_key, job_id, labels)
         SELECT node, metric, job_key, job_id, labels FROM {new} WHERE true ON CONFLICT DO NOTHING",
        &batch(series),
    )?;
    Ok(())
}

fn insert_metrics(
    connection: &mut dyn Connection,
    series: &[Arc<SeriesRecord>],
) -> Result<u64, DatabaseError> {
    let metrics: BTreeMap<_, _> =
        series.iter().map(|series| (series.metric.name.as_str(), &series.metric)).collect();
    let rows = metrics
        .into_iter()
        .map(|(name, metric)| [name.into(), metric.unit.as_str().into(), metric.kind.as_str().into()]);
    connection.execute_batch(
        "INSERT INTO metric (metric, unit, kind) SELECT metric, unit, kind FROM {new} WHERE true ON CONFLICT DO NOTHING",
        &Batch::new(&METRIC, rows),
    )
}
