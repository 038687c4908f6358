//! `demand`: what a job asks of devices outside the nodes, by the agent that polls them.

use serde::{Deserialize, Serialize};

use crate::control::fields::PlanFields;
use crate::control::verb::{Access, Remote, Verb};

/// Number of an answer that an agent sends unasked: its [`DeviceReport`] has changed.
pub const UNASKED: u64 = 0;

/// Bytes of the names in each list of a [`DeviceReport`]. Both lists leave room for the rest of an answer,
/// and the nodes of a demand for its plan.
pub const REPORTED_BYTES: usize = 32 * 1024;

/// Replaces what the job has asked for before. It is the collector that knows whose the job is, and on which
/// nodes it runs; the requester is the owner of the job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DemandRequest {
    pub job: String,
    /// Nodes of the job: only what serves one of them is sampled.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Selectors of metrics of devices; empty ends what the job has asked for.
    #[serde(default)]
    pub plan: PlanFields,
    /// A duration such as `90s`.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
}

impl Verb for DemandRequest {
    const NAME: &'static str = "demand";
    const HELP: &'static str = "samples devices at other periods for a job whose nodes they serve";
    const ACCESS: Access = Access::Collector;
    const REMOTE: Remote = Remote::CollectorOnly;
    const EXAMPLE: &'static str =
        r#"{"verb":"demand","job":"4242","nodes":["node17"],"plan":{"device.*.power":"20ms"},"for":"90s"}"#;
}

/// Relation of an agent to devices outside the nodes. A collector asks for it with the time, and gets it
/// unasked when it changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Nodes that its devices serve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serves: Vec<String>,
    /// Demands of jobs on its node on the devices that serve it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub demands: Vec<JobDemand>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDemand {
    pub job: String,
    pub plan: PlanFields,
    /// End of the last lease, in microseconds since the epoch.
    pub until_us: i64,
}

impl DeviceReport {
    pub fn is_empty(&self) -> bool {
        self.serves.is_empty() && self.demands.is_empty()
    }
}
