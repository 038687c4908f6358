//! Courses of a job's quantities over its time, for charts, heat maps and distributions. Pure, except for
//! [`refine`].
//!
//! The size is bounded, whatever the number of nodes and metrics: many nodes share rows of a heat map, and
//! the more metrics there are the fewer parts of the time each of them has.

mod bands;
mod cells;
mod courses;
mod distribution;
mod half;
mod heat;
mod lines;
mod model;
mod packed;
mod quantities;
mod refine;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::model::{Report, SeriesReport};

use cells::{NodeCells, Span};
pub use courses::{Course, Grid, NodeMean, NodeSums};
pub use heat::ROWS_MAX as HEAT_ROWS_MAX;
pub use model::{Band, Chart, Charts, Extent, Heat, HeatRow, Histogram, Lines, MarkedTime, Spread};
pub use packed::{Packed, PackedChart, PackedCharts, pack};
use quantities::Quantity;
pub(crate) use quantities::main_metrics;
pub use quantities::{MAIN as MAIN_QUANTITIES, Main as MainQuantity};
pub use refine::refine;

const MAIN_POINTS: usize = 600;

/// Parts of the time, and all cells, of the heat map of a main quantity.
const MAIN_PARTS: usize = 300;
const MAIN_CELLS: usize = 30_000;

/// Points in time of the charts of all other quantities together, and the limits for one of them.
const OTHER_POINTS: usize = 40_000;
const OTHER_POINTS_RANGE: (usize, usize) = (60, 300);

/// Cells of the heat maps of all other quantities together, and the limits of the parts of the time for one
/// of them.
const OTHER_CELLS: usize = 120_000;
const OTHER_PARTS_RANGE: (usize, usize) = (10, 120);

/// The names of metrics that users send are arbitrary.
const OTHERS_MAX: usize = 400;

pub fn of(report: &Report) -> Charts {
    let (begin_ns, end_ns) = report.time_ns();
    let span = Span { begin_ns, end_ns: end_ns.max(begin_ns) };
    let nodes = nodes(report);
    let quantities = quantities::of(report, &nodes);
    let (main, mut others): (Vec<Quantity<'_>>, Vec<_>) =
        quantities.into_iter().partition(|quantity| quantity.is_main);
    let left_out = others.len().saturating_sub(OTHERS_MAX);
    others.truncate(OTHERS_MAX);
    let rows = heat::rows(&nodes);
    let limits = Limits::of(others.len(), rows.len());
    let mut charts: Vec<Chart> = Vec::new();
    charts.extend(main.iter().filter_map(|quantity| chart(quantity, span, &rows, limits)));
    charts.extend(others.iter().filter_map(|quantity| chart(quantity, span, &rows, limits)));
    let (bands, bands_left_out) = bands::of(report, span);
    Charts {
        begin_us: begin_ns.div_euclid(1000),
        span_s: span.length_s(),
        is_of_one_node: nodes.len() < 2,
        rows: rows.into_iter().map(|row| row.described(&nodes)).collect(),
        charts,
        left_out,
        bands,
        bands_left_out,
        marks: bands::marks(report),
    }
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    main_parts: usize,
    other_points: usize,
    other_parts: usize,
}

impl Limits {
    fn of(others: usize, rows: usize) -> Self {
        let (others, rows) = (others.max(1), rows.max(1));
        let within = |value: usize, (min, max): (usize, usize)| value.clamp(min, max);
        Self {
            main_parts: (MAIN_CELLS / rows).min(MAIN_PARTS),
            other_points: within(OTHER_POINTS / others, OTHER_POINTS_RANGE),
            other_parts: within(OTHER_CELLS / others / rows, OTHER_PARTS_RANGE),
        }
    }
}

/// Nodes with series or a part in the job, sorted.
fn nodes(report: &Report) -> Vec<&str> {
    let with_series = report.series.iter().map(|series: &SeriesReport| series.node.as_str());
    let names: BTreeSet<&str> = report.nodes.iter().map(String::as_str).chain(with_series).collect();
    names.into_iter().collect()
}

/// None if the quantity has no values.
fn chart(quantity: &Quantity<'_>, span: Span, rows: &[heat::Rows], limits: Limits) -> Option<Chart> {
    let (points, parts) = if quantity.is_main {
        (MAIN_POINTS, limits.main_parts)
    } else {
        (limits.other_points, limits.other_parts)
    };
    let resolution_ns = quantity.resolution_ns();
    let cells: Vec<NodeCells> =
        quantity.nodes.iter().map(|node| node.cells(span, span.columns(points, resolution_ns))).collect();
    let extent = lines::extent(&cells)?;
    let lines = lines::of(&cells);
    let heat = (rows.len() > 1).then(|| {
        let columns = span.columns(parts, resolution_ns);
        heat::of(&quantity.nodes, rows, |node| Cow::Owned(node.cells(span, columns).mean))
    });
    Some(Chart {
        id: quantity.id.clone(),
        title: quantity.title.clone(),
        unit: quantity.unit.clone(),
        metrics: quantity.metrics.clone(),
        is_main: quantity.is_main,
        extent,
        over_nodes: distribution::of_node_means(&cells),
        over_time: distribution::of_values(&cells),
        lines,
        heat,
    })
}
