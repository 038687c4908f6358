//! A derived metric of a job on a node.

use serde::Serialize;

/// A derived metric, whether it is known or not.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DerivedReport {
    pub metric: String,
    pub node: String,
    /// The unit of the value.
    pub unit: &'static str,
    /// The value over all of the time in which its inputs were sampled.
    pub value: Option<f64>,
    /// The share of the time for which the hardware counted an input, if several groups of events shared its
    /// counters; the counts are scaled by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<f64>,
    /// The reason why it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
