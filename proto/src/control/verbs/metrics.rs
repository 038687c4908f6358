//! `metrics`: the catalogue, as a job or the node has it.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};

/// The fields of `metrics`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricsRequest {
    /// The job's id; without it, the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

impl Verb for MetricsRequest {
    const NAME: &'static str = "metrics";
    const HELP: &'static str =
        "lists the metrics that are available, the reasons for the others, and the cost of a read";
    const ACCESS: Access = Access::Viewer;
    const REMOTE: Remote = Remote::Refused;
    const EXAMPLE: &'static str = r#"{"verb":"metrics","job":"4242"}"#;
}

/// The answer to `metrics`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricsAnswer {
    /// The catalogue.
    pub metrics: Vec<MetricLine>,
}

/// One metric of the catalogue, as a job or the node has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricLine {
    /// The metric.
    pub metric: String,
    /// Its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// True where it can be sampled now.
    pub available: bool,
    /// The reason where it is unavailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The source that it is read from, together with the other metrics of that source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The duration of one read of the source, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ns: Option<f64>,
    /// The period at which it is sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
}
