//! The rows that a reader returns.

use polymeter_proto::ledger::Tally;
use polymeter_proto::series::Labels;

/// A job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    /// The store's key for it: job ids come again.
    pub job_key: i64,
    /// The scheduler's name for it.
    pub job_id: String,
    /// The cluster, where it is known.
    pub cluster: Option<String>,
    /// The owner's name, where it is known.
    pub owner: Option<String>,
    /// The owner's numeric id, where it is known.
    pub owner_uid: Option<i64>,
    /// The time at which the first of its nodes began to track it, in nanoseconds since the epoch.
    pub started_ns: i64,
    /// The time at which it ended on the last of its nodes, in nanoseconds since the epoch; none while it runs on any.
    pub ended_ns: Option<i64>,
    /// The nodes on which it ended together with its agent, at an unknown time.
    pub lost_nodes: Vec<String>,
    /// Its nodes, sorted.
    pub nodes: Vec<String>,
    /// The account or project that it is charged to, where the scheduler reported that.
    pub account: Option<String>,
    /// The queue or partition that it was submitted to, where the scheduler reported that.
    pub queue: Option<String>,
    /// Its number of cores, where the scheduler reported that.
    pub cores: Option<i64>,
    /// Its final state in the scheduler's terms, where the scheduler reported that.
    pub state: Option<String>,
    /// The exit status of its script, where the scheduler reported that.
    pub exit_code: Option<i64>,
    /// The signal that ended its script, where the scheduler reported that.
    pub exit_signal: Option<i64>,
}

/// A series, and the extent of its samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesRow {
    /// The store's id for it.
    pub series_id: i64,
    /// The node.
    pub node: String,
    /// The metric's name.
    pub metric: String,
    /// The metric's unit.
    pub unit: String,
    /// The metric's kind: `counter` or `gauge`.
    pub kind: String,
    /// The labels.
    pub labels: Labels,
    /// The number of its samples.
    pub count: u64,
    /// The time of the first one, in nanoseconds since the epoch.
    pub first_time_ns: Option<i64>,
    /// The time of the last one, in nanoseconds since the epoch.
    pub last_time_ns: Option<i64>,
}

/// The owner of series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesScope<'a> {
    /// A job, by the store's key.
    Job(i64),
    /// A node, for its own series.
    Node(&'a str),
}

/// Statistics of the samples of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeriesSummary {
    /// The number of samples.
    pub count: u64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// The mean of the values, each with the same weight.
    pub mean: f64,
    /// The earliest value.
    pub first: f64,
    /// The latest value.
    pub last: f64,
}

/// The balance of the samples of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerRow {
    /// The agent's session.
    pub session_id: String,
    /// The node.
    pub node: String,
    /// The source.
    pub source: String,
    /// The counts since the session began, including the samples that came after its newest tally.
    pub tally: Tally,
    /// Taken, and lost with frames that the agent dropped or gave up.
    pub skipped: u64,
    /// Taken, and rejected by the collector.
    pub rejected: u64,
    /// Taken, and quarantined, since their times are out of range.
    pub quarantined: u64,
    /// Taken and stored.
    pub stored: u64,
    /// Taken, with an unknown fate.
    pub unknown: u64,
}

/// A change of the sampling plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanChangeRow {
    /// The time at which it took effect, in nanoseconds since the epoch.
    pub time_ns: i64,
    /// The node.
    pub node: String,
    /// The metric.
    pub metric: String,
    /// The period until then, in microseconds; none where it was not sampled.
    pub old_period_us: Option<i64>,
    /// The period from then on, in microseconds; none where it is not sampled any more.
    pub new_period_us: Option<i64>,
    /// The cause.
    pub cause: String,
    /// The user who requested it, where there is one.
    pub actor: Option<String>,
    /// The time at which it ends by itself, in nanoseconds since the epoch.
    pub until_ns: Option<i64>,
}

/// A request at submission that was not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRow {
    /// The time of the refusal, in nanoseconds since the epoch.
    pub time_ns: i64,
    /// The node.
    pub node: String,
    /// A selector, or the text of a request that could not be read.
    pub request: String,
    /// The requested period, in microseconds, where it could be read.
    pub period_us: Option<i64>,
    /// The user whose request it was, where that is known.
    pub actor: Option<String>,
    /// The reason for which it was refused.
    pub reason: String,
}

/// An instant that a user marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkRow {
    /// The time, in nanoseconds since the epoch.
    pub time_ns: i64,
    /// The node.
    pub node: String,
    /// The name of the mark.
    pub name: String,
    /// `instant`, or `begin` or `end` of a phase.
    pub kind: String,
    /// The user who marked it.
    pub actor: Option<String>,
}

/// Samples that are not in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LossRow {
    /// The time at which the collector noticed it, in nanoseconds since the epoch.
    pub time_ns: i64,
    /// The node.
    pub node: String,
    /// The agent's session.
    pub session_id: String,
    /// The store's key of the job; none for the node's own sources, and where the job is unknown.
    pub job_key: Option<i64>,
    /// The source; none where it is unknown.
    pub source: Option<String>,
    /// The number of samples.
    pub samples: u64,
    /// The reason.
    pub reason: String,
    /// The time of the oldest of them, in nanoseconds since the epoch.
    pub first_time_ns: i64,
    /// The time of the newest of them, in nanoseconds since the epoch.
    pub last_time_ns: i64,
}
