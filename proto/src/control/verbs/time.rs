//! `time`: the time by which the samples of a node are dated, and that of its clock.

use serde::{Deserialize, Serialize};

use super::demand::DeviceReport;
use crate::control::verb::{Access, Remote, Verb};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector_version: Option<String>,
}

impl Verb for TimeRequest {
    const NAME: &'static str = "time";
    const HELP: &'static str = "reports the time of the node's clock, and that by which samples are dated";
    const ACCESS: Access = Access::Everybody;
    const REMOTE: Remote = Remote::CollectorOnly;
    const EXAMPLE: &'static str = r#"{"verb":"time"}"#;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeAnswer {
    /// Time that dates samples, in microseconds since the epoch: the node's clock, unless it was set since
    /// the agent started.
    pub now_us: i64,
    /// Time of the node's clock, in microseconds since the epoch.
    pub clock_us: i64,
    #[serde(flatten)]
    pub devices: DeviceReport,
}
