//! Series as the store keeps them: blocks of series of one node, each with a shape, whose members nodes of a
//! kind share. Shapes are read once, whatever the number of nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use polymeter_proto::read::{JobMetricRow, SeriesRow};
use polymeter_proto::series::{DEVICE_METRICS, Labels};
use polymeter_proto::step_level::StepLevel;

use super::read::SeriesScope;
use super::recorded_statements::Reader;
use crate::StoreError;
use crate::row::from_row;
use crate::value::Value;

/// Series of a node that were registered together.
#[derive(Debug)]
struct Block {
    /// Node that the values are about.
    node: String,
    first_id: i64,
    shape_id: i64,
}

from_row!(Block { node, first_id, shape_id });

#[derive(Debug)]
struct Member {
    shape_id: i64,
    /// Id of the series less the first id of the block.
    position: i64,
    metric: String,
    unit: String,
    kind: String,
    labels: Labels,
}

from_row!(Member { shape_id, position, metric, unit, kind, labels });

impl Member {
    fn level(&self) -> Option<StepLevel> {
        StepLevel::of_labels(|label| self.labels.get(label).is_some())
    }
}

/// Blocks of series, sorted by node, with the members of their shapes.
#[derive(Debug)]
pub(super) struct ShapedSeries {
    blocks: Vec<Block>,
    members: HashMap<i64, Vec<Member>>,
}

/// Expression for the node that the values of a block are about, or that took them if they are of no node.
const MEASURED_NODE: &str = "ltrim(coalesce(served_node, node), '/')";

/// Returns tables and the condition for the blocks of an owner, and its parameter. The order of a cross join
/// is that in which SQLite reads: the nodes of a job are few. The concatenation takes the affinity of a
/// column off, which an expression of an index lacks.
fn blocks(of: SeriesScope<'_>) -> (&'static str, Value<'_>) {
    match of {
        SeriesScope::Job(key) => ("series_block WHERE job_key = $1", Value::Integer(key)),
        SeriesScope::Node(node) => (
            "(SELECT first_id, shape_id, node, served_node FROM series_block
              WHERE job_key IS NULL AND coalesce(served_node, node) = $1
              UNION SELECT first_id, shape_id, node, served_node FROM series_block
              WHERE job_key IS NULL AND node = $1) AS block WHERE 1 = 1",
            node.into(),
        ),
        SeriesScope::NodesOf(key) => (
            "(SELECT node AS own_node FROM job_node WHERE job_key = $1 UNION SELECT '*') AS own CROSS JOIN series_block
             WHERE job_key IS NULL AND coalesce(served_node, node) = own_node || ''",
            Value::Integer(key),
        ),
    }
}

impl Reader {
    /// Returns the blocks of an owner, of one of its nodes if it is given, with their shapes.
    pub(super) fn shaped_series(
        &mut self,
        of: SeriesScope<'_>,
        node: Option<&str>,
    ) -> Result<ShapedSeries, StoreError> {
        let (blocks, parameter) = blocks(of);
        let mut parameters = vec![parameter];
        let of_node = if node.is_some() { " AND node = $2" } else { "" };
        parameters.extend(node.map(Value::from));
        let select = format!("SELECT {MEASURED_NODE}, first_id, shape_id FROM {blocks}{of_node}");
        let blocks = self.rows::<Block>(&select, &parameters)?;
        self.with_members(blocks, "")
    }

    /// Returns the series of devices outside the nodes that are about a job's nodes.
    pub(super) fn device_series(&mut self, job_key: i64) -> Result<ShapedSeries, StoreError> {
        let (blocks, parameter) = blocks(SeriesScope::NodesOf(job_key));
        let select = format!("SELECT {MEASURED_NODE}, first_id, shape_id FROM {blocks}");
        let blocks = self.rows::<Block>(&select, &[parameter])?;
        self.with_members(blocks, &format!(" AND metric LIKE '{DEVICE_METRICS}%'"))
    }

    /// Returns the series of blocks that have the members of their shapes for which `is_wanted` holds.
    fn with_members(&mut self, blocks: Vec<Block>, is_wanted: &str) -> Result<ShapedSeries, StoreError> {
        let shapes: BTreeSet<i64> = blocks.iter().map(|block| block.shape_id).collect();
        let members = self.members_of_shapes(&shapes.into_iter().collect::<Vec<_>>(), is_wanted)?;
        Ok(ShapedSeries::new(blocks, members))
    }

    /// Returns the first ids of an owner's blocks, each with the node that sampled it.
    pub(super) fn blocks_of(&mut self, of: SeriesScope<'_>) -> Result<Vec<(i64, String)>, StoreError> {
        let (blocks, parameter) = blocks(of);
        self.rows(&format!("SELECT first_id, node FROM {blocks}"), &[parameter])
    }

    /// Returns the members of shapes, which are named: a planner might look for the blocks of each member,
    /// which all jobs share.
    fn members_of_shapes(&mut self, shapes: &[i64], is_wanted: &str) -> Result<Vec<Member>, StoreError> {
        if shapes.is_empty() {
            return Ok(Vec::new());
        }
        let statement = format!(
            "SELECT shape_id, CAST(position AS bigint), metric, unit, kind, CAST(labels AS text), role
             FROM series_shape_member JOIN metric USING (metric) WHERE shape_id {}{is_wanted}",
            (self.dialect().is_one_of)(shapes)
        );
        self.rows(&statement, &[])
    }
}

impl ShapedSeries {
    fn new(mut blocks: Vec<Block>, members: Vec<Member>) -> Self {
        blocks.sort_unstable_by(|one, other| (&one.node, one.first_id).cmp(&(&other.node, other.first_id)));
        let mut of_shape: HashMap<i64, Vec<Member>> = HashMap::new();
        for member in members {
            of_shape.entry(member.shape_id).or_default().push(member);
        }
        Self { blocks, members: of_shape }
    }

    fn nodes(&self) -> impl Iterator<Item = &[Block]> {
        self.blocks.chunk_by(|one, next| one.node == next.node)
    }

    fn members(&self, block: &Block) -> &[Member] {
        self.members.get(&block.shape_id).map_or(&[], Vec::as_slice)
    }

    /// Sorted by node, metric and id.
    pub(super) fn rows(&self) -> impl Iterator<Item = SeriesRow> {
        self.nodes().flat_map(|blocks| {
            let mut series: Vec<(&Block, &Member)> = blocks
                .iter()
                .flat_map(|block| self.members(block).iter().map(move |member| (block, member)))
                .collect();
            let key = |(block, member): &(&Block, &Member)| block.first_id.saturating_add(member.position);
            series
                .sort_unstable_by(|one, other| (&one.1.metric, key(one)).cmp(&(&other.1.metric, key(other))));
            series.into_iter().map(move |(block, member)| SeriesRow {
                series_id: block.first_id.saturating_add(member.position),
                node: block.node.clone(),
                metric: member.metric.clone(),
                unit: member.unit.clone(),
                kind: member.kind.clone(),
                labels: member.labels.clone(),
            })
        })
    }

    /// Returns the metrics, sorted by name and level, with the numbers of their series and nodes. Nodes with
    /// the same shapes are counted together.
    pub(super) fn metrics(&self) -> Vec<JobMetricRow> {
        let mut nodes_with: BTreeMap<Vec<i64>, u64> = BTreeMap::new();
        for blocks in self.nodes() {
            let mut shapes: Vec<i64> = blocks.iter().map(|block| block.shape_id).collect();
            shapes.sort_unstable();
            *nodes_with.entry(shapes).or_default() += 1;
        }
        let mut found: BTreeMap<(&str, Option<StepLevel>), JobMetricRow> = BTreeMap::new();
        for (shapes, nodes) in nodes_with {
            let mut seen = BTreeSet::new();
            for member in shapes.iter().filter_map(|shape| self.members.get(shape)).flatten() {
                let key = (member.metric.as_str(), member.level());
                let row = found.entry(key).or_insert_with(|| JobMetricRow {
                    metric: member.metric.clone(),
                    level: member.level(),
                    unit: member.unit.clone(),
                    kind: member.kind.clone(),
                    series: 0,
                    nodes: 0,
                });
                row.series = row.series.saturating_add(nodes);
                if seen.insert(key) {
                    row.nodes = row.nodes.saturating_add(nodes);
                }
            }
        }
        found.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(shape_id: i64, position: i64, metric: &str, labels: &[(&str, &str)]) -> Member {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Member {
            shape_id,
            position,
            metric: metric.to_owned(),
            unit: "bytes".to_owned(),
            kind: "gauge".to_owned(),
            labels: Labels::new(labels).unwrap(),
        }
    }

    fn block(node: &str, first_id: i64, shape_id: i64) -> Block {
        Block { node: node.to_owned(), first_id, shape_id }
    }

    /// Two nodes with the series of the job, one of which has a step with two tasks and twice the same shape,
    /// and one without series.
    fn series() -> ShapedSeries {
        let members = vec![
            member(1, 0, "y", &[("device", "1")]),
            member(1, 1, "x", &[]),
            member(2, 0, "x", &[("step", "0")]),
            member(2, 1, "x", &[("step", "0"), ("task", "0")]),
            member(2, 2, "x", &[("step", "0"), ("task", "1")]),
        ];
        let blocks = vec![
            block("b", 10, 1),
            block("a", 30, 2),
            block("a", 20, 1),
            block("a", 40, 2),
            block("c", 50, 3),
        ];
        ShapedSeries::new(blocks, members)
    }

    #[test]
    fn series_are_sorted_by_node_metric_and_id() {
        let rows: Vec<_> = series().rows().map(|row| (row.node, row.metric, row.series_id)).collect();
        let expected = [
            ("a", "x", 21),
            ("a", "x", 30),
            ("a", "x", 31),
            ("a", "x", 32),
            ("a", "x", 40),
            ("a", "x", 41),
            ("a", "x", 42),
            ("a", "y", 20),
            ("b", "x", 11),
            ("b", "y", 10),
        ];
        assert_eq!(rows, expected.map(|(node, metric, id)| (node.to_owned(), metric.to_owned(), id)));
    }

    #[test]
    fn series_are_counted_by_metric_and_level() {
        let rows = series().metrics();
        let found: Vec<_> =
            rows.iter().map(|row| (row.metric.as_str(), row.level, row.series, row.nodes)).collect();
        let expected = [
            ("x", None, 2, 2),
            ("x", Some(StepLevel::Step), 2, 1),
            ("x", Some(StepLevel::Task), 4, 1),
            ("y", None, 2, 2),
        ];
        assert_eq!(found, expected);
    }
}
