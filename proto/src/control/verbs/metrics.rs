//! `metrics`: the catalogue, with the availability of each metric for a job or the node.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricsRequest {
    /// None for the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

impl Verb for MetricsRequest {
    const NAME: &'static str = "metrics";
    const HELP: &'static str =
        "lists the available metrics with their read costs, and the reasons why others are unavailable";
    const ACCESS: Access = Access::Viewer;
    const REMOTE: Remote = Remote::Refused;
    const EXAMPLE: &'static str = r#"{"verb":"metrics","job":"4242"}"#;
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricsAnswer {
    pub metrics: Vec<MetricLine>,
}

/// Metric of the catalogue, with its availability for a job or the node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricLine {
    pub metric: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    pub available: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Source that it is read from, together with the other metrics of that source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ns: Option<f64>,
    /// Interval at which the hardware updates it, at least; shorter periods are granted at this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_interval: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
}
