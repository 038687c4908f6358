//! `pmu_release`: closes the hardware events of a job or node for a while, so that another program may use
//! the counters.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PmuReleaseRequest {
    /// None for the node with all its jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The allowed maximum if none.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
}

impl Verb for PmuReleaseRequest {
    const NAME: &'static str = "pmu_release";
    const HELP: &'static str = "closes hardware events for a while, so that other programs may count";
    const ACCESS: Access = Access::Owner;
    const REMOTE: Remote = Remote::GrantsLeases;
    const EXAMPLE: &'static str = r#"{"verb":"pmu_release","job":"4242","for":"10min"}"#;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PmuReleaseAnswer {
    /// Time at which the events are opened again, in microseconds since the epoch.
    pub until_us: i64,
    /// Metrics whose samples are absent until then.
    pub metrics: Vec<String>,
}
