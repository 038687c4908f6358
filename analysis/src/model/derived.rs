//! A derived metric of a job on a node.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DerivedReport {
    pub metric: String,
    pub node: String,
    pub unit: &'static str,
    /// Mean over all of the time in which its inputs were sampled.
    pub value: Option<f64>,
    /// Share of the time for which the hardware counted an input, if several groups of events shared its
    /// counters; the counts are scaled by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
