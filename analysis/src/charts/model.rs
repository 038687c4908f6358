//! The contents of charts.

use serde::Serialize;

/// The charts of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Charts {
    /// The time of the start, in microseconds since the epoch.
    pub begin_us: i64,
    /// The length of the time axis, in seconds.
    pub span_s: f64,
    /// True if lines show the range of one node's values, not the range over nodes.
    pub is_of_one_node: bool,
    /// The rows of the heat maps.
    pub rows: Vec<HeatRow>,
    /// The charts, the main quantities first.
    pub charts: Vec<Chart>,
    /// The number of quantities that are left out because there are too many.
    pub left_out: usize,
    /// The phases, as bands of time.
    pub bands: Vec<Band>,
    /// The number of bands that are left out because there are too many.
    pub bands_left_out: usize,
    /// The marked instants.
    pub marks: Vec<MarkedTime>,
}

/// A row of a heat map: a node, or several successive ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeatRow {
    /// The name of the first node.
    pub first: String,
    /// The name of the last node.
    pub last: String,
    /// The number of nodes.
    pub nodes: usize,
}

/// The course of one quantity.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// A short name.
    pub id: String,
    pub title: String,
    /// The unit of the values: that of a gauge, or of the rates of a counter.
    pub unit: String,
    /// The metrics from which it is computed.
    pub metrics: Vec<String>,
    /// True for one of the important quantities.
    pub is_main: bool,
    /// The extent of the values.
    pub extent: Extent,
    /// The distribution of the nodes' means; none for one node.
    pub over_nodes: Option<Spread>,
    /// The distribution of the values over time and nodes.
    pub over_time: Option<Spread>,
    /// The lines over time.
    pub lines: Lines,
    /// The values by node and time; none for one node.
    pub heat: Option<Heat>,
}

/// The extent of values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Extent {
    /// The smallest value.
    pub min: f64,
    /// The mean over time and nodes.
    pub mean: f64,
    /// The largest value.
    pub max: f64,
}

/// Values in equal parts of the time; NaN where nothing was sampled. Of several nodes they are the minimum,
/// the median and the maximum over the nodes, of one node the minimum, the mean and the maximum in each part.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lines {
    /// The lower values.
    pub low: Vec<f64>,
    /// The middle values.
    pub middle: Vec<f64>,
    /// The upper values.
    pub high: Vec<f64>,
}

/// The values of the rows of a heat map in equal parts of the time, row by row; NaN where nothing was
/// sampled.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Heat {
    /// The number of parts of the time.
    pub columns: usize,
    /// The values.
    pub cells: Vec<f64>,
}

/// The distribution of values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// The quantiles: minimum, 5 %, 25 %, 50 %, 75 %, 95 %, maximum.
    pub quantiles: [f64; 7],
    pub histogram: Histogram,
}

/// The numbers of values in equal classes between two values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Histogram {
    /// The lower end of the first class.
    pub low: f64,
    /// The upper end of the last class.
    pub high: f64,
    /// The number of values in each class.
    pub counts: Vec<u64>,
}

/// A phase as a band of time, in seconds since the start. Phases of the same name that overlap on several
/// nodes are one band.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Band {
    pub name: String,
    pub begin_s: f64,
    pub end_s: f64,
}

/// A marked instant, in seconds since the start.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MarkedTime {
    pub name: String,
    pub at_s: f64,
}
