//! Ids of series.
//!
//! The series of a job on a node that are registered together are a block: a row with the id of the first
//! one, which refers to a list of metrics and labels. Jobs share these lists.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use polymeter_proto::series::{Labels, MetricDescriptor, role_of};

use super::found::{not_inserted, stored};
use super::progress::{distinct, key_of};
use super::shared_lists::{self, ListTables};
use crate::accepted::{Accepted, SeriesRecord};
use crate::backend::Connection;
use crate::digest::digest;
use crate::error::DatabaseError;
use crate::labels::labels_json;
use crate::value::{Batch, Column, ColumnType, Value};

/// Series that one query looks up. Thousands of agents can announce theirs within a second, and each series
/// takes some hundred bytes in a query.
const SERIES_OF_A_QUERY: usize = 4096;

const METRIC: [Column; 3] =
    [("metric", ColumnType::Text), ("unit", ColumnType::Text), ("kind", ColumnType::Text)];

const NODE: [Column; 1] = [("node", ColumnType::Text)];

const SERIES: [Column; 6] = [
    ("position", ColumnType::Integer),
    ("job_key", ColumnType::Integer),
    ("node", ColumnType::Text),
    ("measured_node", ColumnType::Text),
    ("metric", ColumnType::Text),
    ("labels", ColumnType::Json),
];

const BLOCK: [Column; 6] = [
    ("first_id", ColumnType::Integer),
    ("shape_id", ColumnType::Integer),
    ("job_key", ColumnType::Integer),
    ("node", ColumnType::Text),
    ("job_id", ColumnType::Text),
    ("served_node", ColumnType::Text),
];

const SHAPES: ListTables<5> = ListTables {
    table: "series_shape",
    id: "shape_id",
    columns: &[
        ("shape_id", ColumnType::Integer),
        ("position", ColumnType::Integer),
        ("metric", ColumnType::Text),
        ("labels", ColumnType::Json),
        ("role", ColumnType::Text),
    ],
    insert_members: "INSERT INTO series_shape_member (shape_id, position, metric, labels, role)
        SELECT shape_id, position, metric, labels, role FROM {new}",
};

/// Ids of series of one list, by their positions in the list.
pub(super) type Ids = Vec<(usize, i64)>;

/// Series with its position in the list.
type Numbered<'a> = (usize, &'a Arc<SeriesRecord>);

/// Returns the series of `frames` without an id, without duplicates, in an order that is the same for all
/// connections.
pub(super) fn without_id(frames: &[Accepted]) -> Vec<Arc<SeriesRecord>> {
    let mut series =
        distinct(frames.iter().flat_map(Accepted::series).filter(|series| series.id.get().is_none()));
    series.sort_by(|a, b| (place(a), member(a)).cmp(&(place(b), member(b))));
    series
}

/// Job and nodes that the series of a block share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place<'a> {
    job_key: Option<i64>,
    node: &'a str,
    /// `/` and the node if the values are of no node: see [`SeriesRecord::names_other_job`].
    served_node: Option<Cow<'a, str>>,
}

impl Place<'_> {
    /// Returns the node that the values are about.
    fn measured_node(&self) -> &str {
        self.served_node.as_deref().unwrap_or(self.node)
    }
}

fn place(series: &SeriesRecord) -> Place<'_> {
    let node = series.stored_node().as_str();
    let served_node = if series.names_other_job() {
        Some(format!("/{node}").into())
    } else {
        series.served_node().map(Into::into)
    };
    Place { job_key: key_of(series.job.as_ref()), node, served_node }
}

/// Returns what distinguishes a series from others of its job and node.
fn member(series: &SeriesRecord) -> (&str, &str) {
    (series.metric.name.as_str(), series.labels.identity())
}

/// Returns the ids of those of `series` that are in the store.
pub(super) fn find(connection: &mut dyn Connection, series: &[Numbered<'_>]) -> Result<Ids, DatabaseError> {
    let (of_jobs, of_nodes): (Vec<_>, Vec<_>) =
        series.iter().partition(|(_, series)| key_of(series.job.as_ref()).is_some());
    let of_job = "series_block.job_key = new.job_key AND series_block.node = new.node";
    let mut ids = find_by(connection, &of_jobs, of_job)?;
    // The concatenation keeps planners from reading all blocks of an agent that polls thousands of devices.
    let of_node = "series_block.job_key IS NULL
         AND coalesce(series_block.served_node, series_block.node) = new.measured_node
         AND series_block.node || '' = new.node";
    ids.extend(find_by(connection, &of_nodes, of_node)?);
    Ok(ids)
}

fn find_by(
    connection: &mut dyn Connection,
    series: &[Numbered<'_>],
    of_place: &str,
) -> Result<Ids, DatabaseError> {
    if series.is_empty() {
        return Ok(Vec::new());
    }
    // Each series is looked up in the indexes: a planner could otherwise read and hash all blocks of the
    // store.
    let statement = format!(
        "SELECT new.position, (
             SELECT series_block.first_id + its.position FROM series_block
             JOIN series_shape_member AS its ON its.shape_id = series_block.shape_id
             WHERE {of_place} AND its.metric = new.metric AND {{same_labels}} LIMIT 1
         ) FROM {{new}}"
    );
    let mut ids = Vec::with_capacity(series.len());
    for some in series.chunks(SERIES_OF_A_QUERY) {
        let rows = some.iter().map(|(position, series)| {
            let place = place(series);
            [
                i64::try_from(*position).unwrap_or(i64::MAX).into(),
                place.job_key.into(),
                place.node.into(),
                place.measured_node().to_owned().into(),
                series.metric.name.as_str().into(),
                labels_json(&series.labels).into(),
            ]
        });
        let batch = Batch::new(&SERIES, rows);
        ids.extend(stored(connection.select_batch(&statement, &batch)?));
    }
    Ok(ids)
}

/// Returns the names and labels of at most `limit` series of a job on a node, of metrics whose names begin
/// with `begin`.
pub(super) fn beginning_with(
    connection: &mut dyn Connection,
    begin: &str,
    (job_key, node): (i64, &str),
    limit: usize,
) -> Result<Vec<(String, Labels)>, DatabaseError> {
    let select = format!(
        "SELECT its.metric, CAST(its.labels AS text), its.role FROM series_block
         JOIN series_shape_member AS its ON its.shape_id = series_block.shape_id
         WHERE series_block.job_key = $1 AND series_block.node = $2 AND its.metric LIKE $3 LIMIT {limit}"
    );
    connection.select(&select, &[job_key.into(), node.into(), format!("{begin}%").into()])
}

/// Inserts `series` and their metrics, except for those that are in the store, and returns the ids of all.
/// The rows of their nodes are in the store.
pub(super) fn insert(
    connection: &mut dyn Connection,
    series: &[Arc<SeriesRecord>],
) -> Result<Ids, DatabaseError> {
    if series.is_empty() {
        return Ok(Vec::new());
    }
    // No unique index prevents that connections register the same series in two blocks.
    lock_nodes(connection, series, "{for_update}")?;
    insert_metrics(connection, series.iter().map(|series| &*series.metric))?;
    let numbered: Vec<_> = series.iter().enumerate().collect();
    let places: Vec<_> = numbered.chunk_by(|(_, a), (_, b)| place(a) == place(b)).collect();
    let has_blocks = have_blocks(connection, &places)?;
    let of_known = places.iter().zip(&has_blocks).filter(|(_, has)| **has).flat_map(|(place, _)| *place);
    let mut ids = find(connection, &of_known.copied().collect::<Vec<_>>())?;
    let known: HashMap<usize, i64> = ids.iter().copied().collect();
    let missing: Vec<Vec<Numbered<'_>>> = places
        .iter()
        .map(|place| place.iter().copied().filter(|(position, _)| !known.contains_key(position)).collect())
        .collect();
    ids.extend(insert_blocks(connection, &missing)?);
    Ok(ids)
}

/// Locks the rows of the nodes of `series` until the end of the transaction, so that retention does not
/// remove their series meanwhile.
pub(super) fn share_nodes(
    connection: &mut dyn Connection,
    series: &[Arc<SeriesRecord>],
) -> Result<(), DatabaseError> {
    lock_nodes(connection, series, "{for_key_share}")
}

fn lock_nodes(
    connection: &mut dyn Connection,
    series: &[Arc<SeriesRecord>],
    lock: &str,
) -> Result<(), DatabaseError> {
    if connection.dialect().for_update.is_empty() {
        return Ok(());
    }
    let mut nodes: Vec<_> = series.iter().map(|series| place(series).node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    connection.query_batch(
        &format!("SELECT node FROM node WHERE node IN (SELECT node FROM {{new}}) ORDER BY node{lock}"),
        &Batch::new(&NODE, nodes.into_iter().map(|node| [node.into()])),
    )?;
    Ok(())
}

/// Returns for each of `places` whether it has series in the store.
fn have_blocks(
    connection: &mut dyn Connection,
    places: &[&[Numbered<'_>]],
) -> Result<Vec<bool>, DatabaseError> {
    let rows = (0_i64..).zip(places).filter_map(|(number, place_series)| {
        let place = place(place_series.first()?.1);
        let (key, node, measured) = (place.job_key, place.node, place.measured_node().to_owned());
        Some([number.into(), key.into(), node.into(), measured.into(), Value::Null, Value::Null])
    });
    // The first block is looked up in the index: for EXISTS a planner may read and hash all blocks of the
    // store.
    let found: Vec<usize> = connection.select_batch(
        "SELECT new.position FROM {new} WHERE coalesce((
             SELECT series_block.first_id FROM series_block
             WHERE series_block.job_key = new.job_key AND series_block.node = new.node LIMIT 1
         ), (
             SELECT series_block.first_id FROM series_block
             WHERE new.job_key IS NULL AND series_block.job_key IS NULL
                 AND coalesce(series_block.served_node, series_block.node) = new.measured_node LIMIT 1
         )) IS NOT NULL",
        &Batch::new(&SERIES, rows),
    )?;
    let mut have = vec![false; places.len()];
    for position in found {
        if let Some(has) = have.get_mut(position) {
            *has = true;
        }
    }
    Ok(have)
}

/// Inserts a block for each of `places` that has series, which are sorted, and returns their ids.
fn insert_blocks(
    connection: &mut dyn Connection,
    places: &[Vec<Numbered<'_>>],
) -> Result<Ids, DatabaseError> {
    // The same series may be in the list twice: announced by two sessions of the node.
    let blocks: Vec<Vec<&[Numbered<'_>]>> = places
        .iter()
        .filter(|place| !place.is_empty())
        .map(|place| place.chunk_by(|(_, a), (_, b)| member(a) == member(b)).collect())
        .collect();
    if blocks.is_empty() {
        return Ok(Vec::new());
    }
    let (mut shapes, mut digests) = (BTreeMap::new(), Vec::with_capacity(blocks.len()));
    for block in &blocks {
        let members = members(block);
        let digest = digest(&serde_json::json!(members).to_string());
        shapes.entry(digest.clone()).or_insert_with(|| {
            members
                .into_iter()
                .map(|(metric, labels, role)| {
                    [Value::Null, Value::Null, Value::from(metric), Value::from(labels), Value::from(role)]
                })
                .collect()
        });
        digests.push(digest);
    }
    let shape_ids = shared_lists::ids(connection, &SHAPES, shapes)?;
    let mut next_id = reserve_ids(connection, blocks.iter().map(Vec::len).sum())?;
    let (mut rows, mut ids) = (Vec::with_capacity(blocks.len()), Vec::new());
    for (block, digest) in blocks.iter().zip(&digests) {
        let Some((_, series)) = block.first().and_then(|same| same.first()) else { continue };
        let place = place(series);
        let job_id = series.job.as_ref().map(|job| job.descriptor.job_id.as_str());
        let shape_id = shape_ids.get(digest).copied();
        rows.push([
            next_id.into(),
            shape_id.into(),
            place.job_key.into(),
            place.node.into(),
            job_id.into(),
            place.served_node.map(Cow::into_owned).into(),
        ]);
        for same in block {
            ids.extend(same.iter().map(|(position, _)| (*position, next_id)));
            next_id += 1;
        }
    }
    let inserted = connection.execute_batch(
        "INSERT INTO series_block (first_id, shape_id, job_key, node, job_id, served_node)
         SELECT first_id, shape_id, job_key, node, job_id, served_node FROM {new}",
        &Batch::new(&BLOCK, rows),
    )?;
    if inserted < blocks.len() as u64 { Err(not_inserted("series_block")) } else { Ok(ids) }
}

/// Member of a shape: the metric, the labels, and the role of the device that they name.
type Member<'a> = (&'a str, String, Option<String>);

/// Returns the members of the shape of a block.
fn members<'a>(block: &[&[Numbered<'a>]]) -> Vec<Member<'a>> {
    let series = block.iter().filter_map(|same| same.first());
    series
        .map(|(_, series)| {
            let metric = series.metric.name.as_str();
            let role = role_of(metric, &series.labels).map(|role| role.to_string());
            (metric, labels_json(&series.labels), role)
        })
        .collect()
}

/// Reserves `count` consecutive ids, and returns the first one. Others wait until the end of the transaction.
fn reserve_ids(connection: &mut dyn Connection, count: usize) -> Result<i64, DatabaseError> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let next_id: Option<i64> = connection.select_first(
        "UPDATE series_counter SET next_id = next_id + CAST($1 AS bigint) RETURNING next_id",
        &[count.into()],
    )?;
    next_id.map(|next_id| next_id - count).ok_or_else(|| not_inserted("series_counter"))
}

/// Inserts the metrics that the store lacks, and returns the name, the unit and the kind of each as the store
/// has them.
pub(super) fn define_metrics(
    connection: &mut dyn Connection,
    metrics: &[MetricDescriptor],
) -> Result<Vec<(String, String, String)>, DatabaseError> {
    insert_metrics(connection, metrics)?;
    connection.select_batch(
        "SELECT metric.metric, metric.unit, metric.kind FROM metric JOIN {new} ON new.metric = metric.metric",
        &metric_rows(metrics),
    )
}

fn insert_metrics<'a>(
    connection: &mut dyn Connection,
    metrics: impl IntoIterator<Item = &'a MetricDescriptor>,
) -> Result<u64, DatabaseError> {
    connection.execute_batch(
        "INSERT INTO metric (metric, unit, kind) SELECT metric, unit, kind FROM {new} WHERE true ON CONFLICT DO NOTHING",
        &metric_rows(metrics),
    )
}

/// Sorted by name, so that connections lock them in the same order.
fn metric_rows<'a>(metrics: impl IntoIterator<Item = &'a MetricDescriptor>) -> Batch<'a> {
    let metrics: BTreeMap<_, _> = metrics.into_iter().map(|metric| (metric.name.as_str(), metric)).collect();
    let rows = metrics
        .into_iter()
        .map(|(name, metric)| [name.into(), metric.unit.as_str().into(), metric.kind.as_str().into()]);
    Batch::new(&METRIC, rows)
}
