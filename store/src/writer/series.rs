//! The ids of series.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use polymeter_proto::series::Labels;

use super::found::set_found_ids;
use super::progress::{distinct, key_of};
use crate::accepted::{Accepted, SeriesRecord};
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::labels::{labels_json, parse_labels};
use crate::value::{Batch, Column, ColumnType, Row, Value};

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
    series.sort_by(|a, b| identity(a).cmp(&identity(b)));
    series
}

/// Returns the values that identify a series, in the order of the unique index.
fn identity(series: &SeriesRecord) -> (Option<i64>, &str, &str, &Labels) {
    (key_of(series.job.as_ref()), series.node().as_str(), series.metric.name.as_str(), &series.labels)
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
    let (of_jobs, of_node): (Vec<_>, Vec<_>) =
        series.iter().cloned().partition(|series| key_of(series.job.as_ref()).is_some());
    find_by(connection, &of_jobs, "{same_job}")?;
    find_by(connection, &of_node, "{without_job}")
}

fn find_by(
    connection: &mut dyn Connection,
    series: &[Arc<SeriesRecord>],
    of_job: &str,
) -> Result<(), DatabaseError> {
    if series.is_empty() {
        return Ok(());
    }
    // Each series is looked up in the index: a planner could otherwise read and hash all series of the store.
    let statement = format!(
        "SELECT new.position, (
             SELECT series.series_id FROM series
             WHERE {of_job} AND series.node = new.node AND series.metric = new.metric AND {{same_labels}} LIMIT 1
         ) FROM {{new}}"
    );
    let found = connection.query_batch(&statement, &batch(series))?;
    set_found_ids(found, series, |series| &series.id);
    Ok(())
}

/// Inserts `series` and their metrics, except for those that are in the store. Returns the positions and ids of
/// the inserted ones.
pub(super) fn insert(
    connection: &mut dyn Connection,
    series: &[Arc<SeriesRecord>],
) -> Result<Vec<(usize, i64)>, DatabaseError> {
    if series.is_empty() {
        return Ok(Vec::new());
    }
    insert_metrics(connection, series)?;
    let inserted = connection.query_batch(
        "INSERT INTO series (node, metric, job_key, job_id, labels)
         SELECT node, metric, job_key, job_id, labels FROM {new} WHERE true ON CONFLICT DO NOTHING
         RETURNING job_key, node, metric, CAST(labels AS text), series_id",
        &batch(series),
    )?;
    let positions: HashMap<_, _> = series.iter().map(|series| identity(series)).zip(0..).collect();
    let pair = |mut row: Row| {
        let (key, node, metric, labels) = (row.optional_integer(), row.text(), row.text(), row.text());
        let identity = (key, node.as_str(), metric.as_str(), &parse_labels(&labels));
        Some((*positions.get(&identity)?, row.integer()))
    };
    Ok(inserted.into_iter().filter_map(pair).collect())
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
