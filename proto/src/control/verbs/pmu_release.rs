//! `pmu_release`: closes the hardware events of a job or node for a while, so that another program may use
//! the counters.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};

/// The fields of `pmu_release`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PmuReleaseRequest {
    /// The job's id; without it, the node with all its jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The duration; without it, the maximum that is allowed.
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

/// The answer to `pmu_release`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PmuReleaseAnswer {
    /// The time at which the events are opened again, in microseconds since the epoch.
    pub until_us: i64,
    /// The metrics whose samples are absent until then.
    pub metrics: Vec<String>,
}
