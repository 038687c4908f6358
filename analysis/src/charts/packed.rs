//! The compact form of charts: a JSON object, and the values in 16 bits.

use serde::Serialize;

use super::half;
use super::model::{Band, Chart, Charts, Extent, HeatRow, MarkedTime, Spread};

/// Charts in compact form.
#[derive(Debug, Clone, PartialEq)]
pub struct Packed<'a> {
    /// Everything but the values.
    pub charts: PackedCharts<'a>,
    /// The values: numbers of 16 bits (IEEE 754 binary16) in little-endian order.
    pub values: Vec<u8>,
}

/// Everything but the values of charts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PackedCharts<'a> {
    /// The time of the start, in microseconds since the epoch.
    pub begin_us: i64,
    /// The length of the time axis, in seconds.
    pub span_s: f64,
    /// True if lines show the range of one node's values.
    pub is_of_one_node: bool,
    /// The rows of the heat maps.
    pub rows: &'a [HeatRow],
    pub charts: Vec<PackedChart<'a>>,
    /// The phases.
    pub bands: &'a [Band],
    /// The marked instants.
    pub marks: &'a [MarkedTime],
}

/// A list of values: where they begin, how many there are, and by what they are multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Values {
    /// The position of the first value.
    pub at: usize,
    /// The number of values.
    pub count: usize,
    /// The factor.
    pub scale: f64,
}

/// The course of one quantity, without its values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PackedChart<'a> {
    /// A short name.
    pub id: &'a str,
    pub title: &'a str,
    pub unit: &'a str,
    /// The metrics from which it is computed.
    pub metrics: &'a [String],
    /// True for one of the important quantities.
    pub is_main: bool,
    /// The extent of the values.
    pub extent: Extent,
    /// The distribution of the nodes' means.
    pub over_nodes: Option<&'a Spread>,
    /// The distribution of the values.
    pub over_time: Option<&'a Spread>,
    /// The number of points of each line.
    pub points: usize,
    /// The lower, the middle and the upper line, one behind the other.
    pub lines: Values,
    /// The number of columns of the heat map.
    pub columns: usize,
    /// The values of the heat map, row by row.
    pub heat: Option<Values>,
}

pub fn pack(charts: &Charts) -> Packed<'_> {
    let mut values = Vec::new();
    let packed = charts.charts.iter().map(|chart| pack_chart(chart, &mut values)).collect();
    let charts = PackedCharts {
        begin_us: charts.begin_us,
        span_s: charts.span_s,
        is_of_one_node: charts.is_of_one_node,
        rows: &charts.rows,
        charts: packed,
        bands: &charts.bands,
        marks: &charts.marks,
    };
    Packed { charts, values: values.into_iter().flat_map(u16::to_le_bytes).collect() }
}

fn pack_chart<'a>(chart: &'a Chart, values: &mut Vec<u16>) -> PackedChart<'a> {
    let mut put = |list: &[f64]| {
        let (scale, halves) = half::scaled(list);
        let put = Values { at: values.len(), count: halves.len(), scale };
        values.extend(halves);
        put
    };
    let lines = [&chart.lines.low, &chart.lines.middle, &chart.lines.high];
    let lines: Vec<f64> = lines.into_iter().flatten().copied().collect();
    PackedChart {
        id: &chart.id,
        title: &chart.title,
        unit: &chart.unit,
        metrics: &chart.metrics,
        is_main: chart.is_main,
        extent: chart.extent,
        over_nodes: chart.over_nodes.as_ref(),
        over_time: chart.over_time.as_ref(),
        points: chart.lines.middle.len(),
        lines: put(&lines),
        columns: chart.heat.as_ref().map_or(0, |heat| heat.columns),
        heat: chart.heat.as_ref().map(|heat| put(&heat.cells)),
    }
}
