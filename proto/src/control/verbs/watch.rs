//! `watch`: a stream of samples as they are taken. Its answer consists of many lines.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};
use crate::ledger::Tally;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchRequest {
    /// None for the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Selectors of metrics; all metrics without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<String>,
}

impl Verb for WatchRequest {
    const NAME: &'static str = "watch";
    const HELP: &'static str = "streams samples while they are taken, until the job ends";
    const ACCESS: Access = Access::Viewer;
    const REMOTE: Remote = Remote::Refused;
    const EXAMPLE: &'static str = r#"{"verb":"watch","job":"4242","metrics":["cpu.*"]}"#;
}

/// Samples of one series since its last line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SamplesLine {
    pub metric: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// `counter` or `gauge`.
    pub kind: String,
    /// None for user-supplied values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
    /// Times of the values, in microseconds since the epoch.
    pub times_us: Vec<i64>,
    /// Null for NaN and infinities.
    pub values: Vec<Option<f64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProgressLine {
    /// Time since the stream began.
    pub seconds: f64,
    /// Samples of all sources of the job since the stream began.
    pub tally: Tally,
    /// Recent CPU time of the agent for all jobs and the node, in percent of one CPU.
    pub cpu_percent: f64,
}

/// Samples that are left out of the stream because the client reads too slowly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaggedLine {
    pub samples: u64,
}

/// Last line: the job has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedLine {}
