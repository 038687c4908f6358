//! `time`: the time of the node's clock, by which its samples are dated.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};

/// The fields of `time`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeRequest {
    /// The version of the collector that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector_version: Option<String>,
}

impl Verb for TimeRequest {
    const NAME: &'static str = "time";
    const HELP: &'static str = "reports the time of the node's clock";
    const ACCESS: Access = Access::Everybody;
    const REMOTE: Remote = Remote::CollectorOnly;
    const EXAMPLE: &'static str = r#"{"verb":"time"}"#;
}

/// The answer to `time`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeAnswer {
    /// The time of the node's clock when the request was executed, in microseconds since the epoch.
    pub now_us: i64,
}
