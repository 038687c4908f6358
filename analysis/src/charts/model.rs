//! The contents of charts.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq)]
pub struct Charts {
    /// Of the start, since the epoch.
    pub begin_us: i64,
    /// Length of the time axis.
    pub span_s: f64,
    /// True if lines show the range of one node's values, not the range over nodes.
    pub is_of_one_node: bool,
    /// Of the heat maps.
    pub rows: Vec<HeatRow>,
    /// Main quantities first.
    pub charts: Vec<Chart>,
    /// Quantities that are left out because there are too many.
    pub left_out: usize,
    /// Phases, as bands of time.
    pub bands: Vec<Band>,
    /// Bands that are left out because there are too many.
    pub bands_left_out: usize,
    /// Marked instants.
    pub marks: Vec<MarkedTime>,
}

/// A node, or several successive ones, in a heat map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeatRow {
    /// First node.
    pub first: String,
    /// Last node.
    pub last: String,
    pub nodes: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Short name.
    pub id: String,
    pub title: String,
    /// Of a gauge, or of the rates of a counter.
    pub unit: String,
    pub metrics: Vec<String>,
    /// True for one of the important quantities.
    pub is_main: bool,
    pub extent: Extent,
    /// Distribution of the nodes' means; none for one node.
    pub over_nodes: Option<Spread>,
    /// Distribution of the values over time and nodes.
    pub over_time: Option<Spread>,
    pub lines: Lines,
    /// By node and time; none for one node.
    pub heat: Option<Heat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Extent {
    pub min: f64,
    /// Over time and nodes.
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
    /// Parts of the time.
    pub columns: usize,
    pub cells: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// Minimum, 5 %, 25 %, 50 %, 75 %, 95 %, maximum.
    pub quantiles: [f64; 7],
    pub histogram: Histogram,
}

/// Numbers of values in equal classes between two values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Histogram {
    /// Lower end of the first class.
    pub low: f64,
    /// Upper end of the last class.
    pub high: f64,
    /// Values in each class.
    pub counts: Vec<u64>,
}

/// Phase as a band of time, in seconds since the start. Phases of the same name that overlap on several nodes
/// are one band.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Band {
    pub name: String,
    pub begin_s: f64,
    pub end_s: f64,
}

/// In seconds since the start.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MarkedTime {
    pub name: String,
    pub at_s: f64,
}
