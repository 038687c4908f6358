//! Compact form of charts: a JSON object, and the values in 16 bits.

use serde::Serialize;

use super::half;
use super::model::{Band, Chart, Charts, Extent, HeatRow, MarkedTime, Spread};

#[derive(Debug, Clone, PartialEq)]
pub struct Packed<'a> {
    /// Everything but the values.
    pub charts: PackedCharts<'a>,
    /// Numbers of 16 bits (IEEE 754 binary16) in little-endian order.
    pub values: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PackedCharts<'a> {
    /// Start of the job, since the epoch.
    pub begin_us: i64,
    pub span_s: f64,
    pub is_of_one_node: bool,
    pub rows: &'a [HeatRow],
    pub charts: Vec<PackedChart<'a>>,
    pub bands: &'a [Band],
    pub marks: &'a [MarkedTime],
}

/// Begin and number of a list of values, and their factor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Values {
    pub at: usize,
    pub count: usize,
    pub scale: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PackedChart<'a> {
    pub id: &'a str,
    pub title: &'a str,
    pub unit: &'a str,
    pub metrics: &'a [String],
    pub is_main: bool,
    pub extent: Extent,
    pub over_nodes: Option<&'a Spread>,
    pub over_time: Option<&'a Spread>,
    pub points: usize,
    /// Lower, middle and upper line, one behind the other.
    pub lines: Values,
    pub columns: usize,
    /// Heat map, row by row.
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
