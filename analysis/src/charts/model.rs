//! Contents of charts.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq)]
pub struct Charts {
    /// Start of the job, since the epoch.
    pub begin_us: i64,
    /// Length of the time axis.
    pub span_s: f64,
    /// True if lines show the range of one node's values, not the range over nodes.
    pub is_of_one_node: bool,
    pub rows: Vec<HeatRow>,
    /// Main quantities first.
    pub charts: Vec<Chart>,
    pub left_out: usize,
    pub bands: Vec<Band>,
    pub bands_left_out: usize,
    pub marks: Vec<MarkedTime>,
}

/// One node of a heat map, or several successive ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeatRow {
    pub first: String,
    pub last: String,
    pub nodes: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    pub id: String,
    pub title: String,
    /// Unit of a gauge, or of the rates of a counter.
    pub unit: String,
    pub metrics: Vec<String>,
    /// True for one of the important quantities.
    pub is_main: bool,
    pub extent: Extent,
    /// None for one node.
    pub over_nodes: Option<Spread>,
    pub over_time: Option<Spread>,
    pub lines: Lines,
    /// Grouped by node and time; none for one node.
    pub heat: Option<Heat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Extent {
    pub min: f64,
    pub mean: f64,
    pub max: f64,
}

/// Values in equal parts of the time; NaN where nothing was sampled. For several nodes they are the minimum,
/// the median and the maximum over the nodes; for one node the minimum, the mean and the maximum in each
/// part.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lines {
    pub low: Vec<f64>,
    pub middle: Vec<f64>,
    pub high: Vec<f64>,
}

/// Values of the rows of a heat map in equal parts of the time, row by row; NaN where nothing was sampled.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Heat {
    pub columns: usize,
    pub cells: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// Minimum, 5 %, 25 %, 50 %, 75 %, 95 %, maximum.
    pub quantiles: [f64; 7],
    pub histogram: Histogram,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Histogram {
    pub low: f64,
    pub high: f64,
    pub counts: Vec<u64>,
}

/// Phase, or kept interval, as a band of time, in seconds since the start. Phases of the same name that
/// overlap on several nodes are one band.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Band {
    pub name: String,
    pub begin_s: f64,
    pub end_s: f64,
}

/// Seconds since the start.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MarkedTime {
    pub name: String,
    pub at_s: f64,
}
