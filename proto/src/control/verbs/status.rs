//! `status`: the state of the agent, of the node and of the jobs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};
use crate::ledger::Tally;

/// The fields of `status`.
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

/// The state of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// The version of the control protocol.
    pub version: u32,
    pub agent_version: String,
    /// The agent's session.
    pub session: String,
    /// Totals of the agent.
    pub counts: AgentCounts,
    /// The connection to the collector.
    pub collector: CollectorStatus,
    /// The node and the jobs.
    pub subjects: Vec<SubjectStatus>,
}

/// Totals of an agent; for a user who sees only some subjects, those of these subjects, without the counts
/// that jobs of others change. The catalogue describes each under the same name, as `agent.samples.due`.
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

/// The connection to the collector. Times are in microseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorStatus {
    /// The endpoint of the collector.
    pub address: String,
    /// The version of the collector, which tells it within a minute of the connection; none if it has not, or
    /// the agent accepts no requests through it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// True while there is a connection.
    pub connected: bool,
    /// The time of the last change of `connected`.
    pub since_us: Option<i64>,
    /// The time of the last acknowledgement.
    pub acknowledged_us: Option<i64>,
    /// The time of this report.
    pub now_us: i64,
    /// Bytes that are not acknowledged yet, in memory and in the spool.
    pub backlog_bytes: u64,
}

/// The state of the node, or of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubjectStatus {
    /// The job's id; none for the node.
    pub job: Option<String>,
    /// Its owner's numeric id.
    pub uid: Option<u32>,
    /// Its owner's name.
    pub user: Option<String>,
    /// The time at which the agent began to track it, in microseconds since the epoch.
    pub started_us: Option<i64>,
    /// Its cgroup directories.
    pub cgroups: Vec<PathBuf>,
    pub sources: Vec<SourceStatus>,
    /// Metrics that are unavailable, with the reasons.
    pub unavailable: Vec<(String, String)>,
}

/// The state of one source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    pub name: String,
    /// The counts of its samples.
    pub tally: Tally,
    /// The number of reads.
    pub reads: u64,
    /// The mean duration of a read, in nanoseconds.
    pub read_mean_ns: u64,
    /// The longest duration of a read, in nanoseconds.
    pub read_max_ns: u64,
}
