//! `status`: the state of the agent, of the node and of the jobs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};
use crate::ledger::Tally;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusRequest {}

impl Verb for StatusRequest {
    const NAME: &'static str = "status";
    const HELP: &'static str = "reports the state of the agent, the node and the jobs";
    const ACCESS: Access = Access::Viewer;
    const REMOTE: Remote = Remote::Refused;
    const EXAMPLE: &'static str = r#"{"verb":"status"}"#;
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    pub version: u32,
    pub agent_version: String,
    pub session: String,
    pub counts: AgentCounts,
    pub collector: CollectorStatus,
    pub subjects: Vec<SubjectStatus>,
}

/// Totals of an agent. A user who sees only some subjects gets their totals, without the counts that jobs of
/// others change. The catalogue describes each under the same name, as `agent.samples.due`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentCounts {
    pub due: u64,
    pub taken: u64,
    pub late: u64,
    pub missed: u64,
    pub absent: u64,
    pub dropped: u64,
    pub refused: u64,
    pub frames_sent: u64,
    pub frames_acknowledged: u64,
    pub bytes_sent: u64,
    pub outbox_bytes: u64,
    pub spool_bytes: u64,
    pub cpu_ns: u64,
    pub resident_bytes: u64,
    pub jobs: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs_left_out: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptors: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptor_limit: Option<u64>,
    pub unknown_lines: u64,
}

/// Connection to the collector. Times are microseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorStatus {
    pub address: String,
    /// Version of the collector, which it tells within a minute of the connection; none before, or if the
    /// agent accepts no requests through it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub connected: bool,
    /// Last change of `connected`.
    pub since_us: Option<i64>,
    pub acknowledged_us: Option<i64>,
    pub now_us: i64,
    /// Bytes that are not acknowledged yet, in memory and in the spool.
    pub backlog_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubjectStatus {
    /// None for the node.
    pub job: Option<String>,
    pub uid: Option<u32>,
    pub user: Option<String>,
    /// Time at which the agent began to track it, in microseconds since the epoch.
    pub started_us: Option<i64>,
    pub cgroups: Vec<PathBuf>,
    pub sources: Vec<SourceStatus>,
    /// Metrics with the reasons why they are unavailable.
    pub unavailable: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    pub name: String,
    pub tally: Tally,
    pub reads: u64,
    pub read_mean_ns: u64,
    pub read_max_ns: u64,
}
