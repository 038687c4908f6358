//! A quantity over the nodes and the time of a job, from the parts of its series. Pure.

use std::borrow::Cow;

use polymeter_proto::units;
use serde::Serialize;

use super::cells::NodeCells;
use super::heat;
use super::lines;
use super::model::{Extent, Heat, HeatRow, Lines};
use crate::downsample::Part;

/// Parts without values are a gap if they are more than so many usual distances long.
const GAP_DISTANCES: usize = 3;

/// Distances on each side of one among which the usual distance is found: the period may change while a job
/// runs.
const AROUND: usize = 3;

/// Nodes with the highest and with the lowest means that are listed, if there are more of them.
const ENDS: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Begin of the first part, since the epoch.
    pub begin_ns: i64,
    pub part_ns: i64,
    pub parts: usize,
}

impl Grid {
    fn position(&self, time_ns: i64) -> usize {
        let parts = time_ns.saturating_sub(self.begin_ns).div_euclid(self.part_ns.max(1));
        usize::try_from(parts).unwrap_or_default()
    }
}

/// Sums over the series of each node.
#[derive(Debug)]
pub struct NodeSums {
    grid: Grid,
    nodes: Vec<NodeSum>,
    /// Usual distance between the values of the most frequent series, in parts.
    distance: Option<usize>,
}

#[derive(Debug, Clone)]
struct NodeSum {
    cells: NodeCells,
    /// Sum of the series that are subtracted; none without such series.
    minus: Option<NodeCells>,
    series: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Course {
    pub lines: Lines,
    /// None without values.
    pub extent: Option<Extent>,
    pub rows: Vec<HeatRow>,
    /// Means of these rows.
    pub heat: Heat,
    /// Nodes with the highest means over the time; empty if there are not more nodes than both lists have.
    pub highest: Vec<NodeMean>,
    /// Lowest first.
    pub lowest: Vec<NodeMean>,
    /// Usual distance between the values of the most frequent series, in parts: more than 1 if the parts are
    /// shorter than its period.
    pub distance: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeMean {
    pub node: String,
    pub mean: f64,
}

impl NodeSums {
    pub fn new(nodes: usize, grid: Grid) -> Self {
        let nodes = vec![NodeSum { cells: NodeCells::empty(grid.parts), minus: None, series: 0 }; nodes];
        Self { grid, nodes, distance: None }
    }

    /// Adds a series to the sum of a node, or subtracts it. A value holds until the next one, unless that is
    /// a gap, so that a series that is sampled more rarely than there are parts has no gaps between its
    /// samples.
    pub fn add(&mut self, node: usize, parts: &[Part], is_subtracted: bool) {
        let (cells, distance) = cells_of(parts, self.grid);
        let Some(sum) = self.nodes.get_mut(node) else { return };
        if is_subtracted {
            sum.minus.get_or_insert_with(|| NodeCells::empty(self.grid.parts)).add_with_extremes(&cells);
        } else {
            sum.cells.add_with_extremes(&cells);
        }
        sum.series += 1;
        self.distance = Some(self.distance.map_or(distance, |shortest| shortest.min(distance)));
    }

    /// Returns the course over the nodes with these names. With `is_mean` the mean of the series of a node
    /// counts, not their sum.
    pub fn finish(self, names: &[&str], is_mean: bool) -> Course {
        let mut nodes: Vec<NodeCells> = Vec::new();
        for mut node in self.nodes {
            if let Some(minus) = &node.minus {
                node.cells.subtract(minus);
                node.cells.raise_to_zero();
            }
            if is_mean && node.series > 1 {
                node.cells.scale(1.0 / units::to_f64(node.series));
            }
            nodes.push(node.cells);
        }
        let rows = heat::rows(names);
        let (highest, lowest) = ends(&nodes, names);
        Course {
            highest,
            lowest,
            lines: lines::of(&nodes),
            extent: lines::extent(&nodes),
            heat: heat::of(&nodes, &rows, |node| Cow::Borrowed(node.mean.as_slice())),
            rows: rows.into_iter().map(|row| row.described(names)).collect(),
            distance: self.distance.unwrap_or(1),
        }
    }
}

fn ends(nodes: &[NodeCells], names: &[&str]) -> (Vec<NodeMean>, Vec<NodeMean>) {
    let known = nodes.iter().zip(names).filter_map(|(cells, name)| Some((*name, cells.mean()?)));
    let mut means: Vec<(&str, f64)> = known.collect();
    if means.len() <= 2 * ENDS {
        return (Vec::new(), Vec::new());
    }
    means.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let of = |(node, mean): &(&str, f64)| NodeMean { node: (*node).to_owned(), mean: *mean };
    (means.iter().take(ENDS).map(of).collect(), means.iter().rev().take(ENDS).map(of).collect())
}

/// Values of a series in all parts, and the usual distance between its values.
fn cells_of(parts: &[Part], grid: Grid) -> (NodeCells, usize) {
    let positions: Vec<usize> = parts.iter().map(|part| grid.position(part.time_ns)).collect();
    let distances = distances(&positions);
    let mut cells = NodeCells::empty(grid.parts);
    for (number, (part, position)) in parts.iter().zip(&positions).enumerate() {
        let distance = distances.get(number).copied().unwrap_or(1);
        let end = distances.len().min(number + AROUND + 1);
        let around = distances.get(number.saturating_sub(AROUND)..end).unwrap_or_default();
        let is_gap = distance > GAP_DISTANCES && distance > GAP_DISTANCES * median(around);
        let held = if is_gap { 1 } else { distance };
        let columns = [(&mut cells.min, part.min), (&mut cells.mean, part.mean), (&mut cells.max, part.max)];
        for (values, value) in columns {
            values.iter_mut().skip(*position).take(held).for_each(|cell| *cell = value);
        }
    }
    let sampled = parts.iter().zip(&positions).filter(|(part, _)| part.count > 0);
    let sampled: Vec<usize> = sampled.map(|(_, position)| *position).collect();
    (cells, median(&self::distances(&sampled)))
}

fn distances(positions: &[usize]) -> Vec<usize> {
    let pairs = positions.iter().zip(positions.iter().skip(1));
    pairs.map(|(position, next)| next.saturating_sub(*position)).collect()
}

/// 1 without distances.
fn median(distances: &[usize]) -> usize {
    let mut sorted = distances.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid { begin_ns: 0, part_ns: 1_000_000_000, parts: 24 };

    fn parts(values: &[(i64, f64)]) -> Vec<Part> {
        values
            .iter()
            .map(|(second, value): &(i64, f64)| Part {
                time_ns: second * 1_000_000_000,
                count: 1,
                min: value - 0.5,
                max: value + 0.5,
                mean: *value,
            })
            .collect()
    }

    fn known(values: &[f64]) -> Vec<Option<f64>> {
        values.iter().map(|value| (!value.is_nan()).then_some(*value)).collect()
    }

    #[test]
    fn values_hold_within_the_period_and_not_over_a_gap() {
        let series = parts(&[(0, 1.0), (2, 2.0), (4, 3.0), (20, 4.0), (21, 5.0), (22, 6.0)]);
        let (cells, distance) = cells_of(&series, GRID);
        let mut expected = vec![None; 24];
        for (position, value) in
            [(0, 1.0), (1, 1.0), (2, 2.0), (3, 2.0), (4, 3.0), (20, 4.0), (21, 5.0), (22, 6.0)]
        {
            expected[position] = Some(value);
        }
        assert_eq!((known(&cells.mean), distance), (expected, 2));
    }

    #[test]
    fn lines_are_those_over_the_nodes_and_rows_those_of_each() {
        let grid = Grid { parts: 2, ..GRID };
        let mut sums = NodeSums::new(3, grid);
        sums.add(0, &parts(&[(0, 1.0), (1, 5.0)]), false);
        sums.add(1, &parts(&[(0, 2.0)]), false);
        sums.add(2, &parts(&[(0, 4.0), (1, 7.0)]), false);
        sums.add(2, &parts(&[(0, 5.0)]), false);
        let course = sums.finish(&["a", "b", "c"], false);
        assert_eq!(course.lines.low, [1.0, 5.0]);
        assert_eq!(course.lines.middle, [2.0, 6.0]);
        assert_eq!(course.lines.high, [9.0, 7.0]);
        let means = [Some(1.0), Some(5.0), Some(2.0), None, Some(9.0), Some(7.0)];
        assert_eq!((course.heat.columns, known(&course.heat.cells)), (2, means.to_vec()));
        assert_eq!(course.rows.iter().map(|row| row.first.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn differences_are_not_negative_and_means_are_over_series() {
        let grid = Grid { parts: 1, ..GRID };
        let mut sums = NodeSums::new(1, grid);
        sums.add(0, &parts(&[(0, 1.0)]), false);
        sums.add(0, &parts(&[(0, 3.0)]), true);
        let course = sums.finish(&["a"], false);
        assert_eq!((course.lines.low[0], course.lines.middle[0], course.lines.high[0]), (0.0, 0.0, 0.0));
        let mut sums = NodeSums::new(2, grid);
        sums.add(0, &parts(&[(0, 9.0)]), false);
        sums.add(0, &parts(&[(0, 2.0)]), true);
        sums.add(1, &parts(&[(0, 2.0)]), true);
        let course = sums.finish(&["a", "b"], false);
        assert_eq!(known(&course.heat.cells), [Some(7.0), None], "nothing is subtracted from nothing");
        let mut sums = NodeSums::new(1, grid);
        sums.add(0, &parts(&[(0, 10.0)]), false);
        sums.add(0, &parts(&[(0, 30.0)]), false);
        let course = sums.finish(&["a"], true);
        assert_eq!((course.lines.low[0], course.lines.middle[0], course.lines.high[0]), (19.5, 20.0, 20.5));
        let empty = NodeSums::new(2, grid).finish(&["a", "b"], false);
        assert_eq!((empty.extent, empty.distance, empty.heat.cells.len()), (None, 1, 2));
    }

    #[test]
    fn many_nodes_share_rows() {
        let names: Vec<String> = (0..1000).map(|number| format!("n{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut sums = NodeSums::new(1000, Grid { parts: 3, ..GRID });
        (0..1000).for_each(|node| {
            let value = f64::from(u16::try_from(node).unwrap());
            sums.add(node, &parts(&[(0, value), (1, value + 1.0), (2, value + 2.0)]), false);
        });
        let course = sums.finish(&names, false);
        let mean = |node: &str, mean| NodeMean { node: node.to_owned(), mean };
        assert_eq!(
            (course.highest.len(), &course.highest[0], &course.highest[9]),
            (10, &mean("n999", 1000.0), &mean("n990", 991.0))
        );
        assert_eq!((course.lowest.len(), &course.lowest[0]), (10, &mean("n0", 1.0)));
        assert_eq!((course.rows.len(), course.rows[0].nodes, course.heat.cells.len()), (200, 5, 600));
    }
}
