//! Distribution of the samples of a metric in a report.

use serde::Serialize;

/// Quantiles of the samples in the windows of the job, on all nodes and devices. Each is within
/// [`polymeter_proto::histogram::ERROR`] of a sample's value.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DistributionReport {
    pub metric: String,
    /// Unit of the quantiles, which are rates of a counter.
    pub unit: String,
    pub samples: u64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
}
