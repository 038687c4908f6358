//! The rows that a reader returns.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::ledger::Tally;
use crate::run::Run;
use crate::series::{Labels, Processors, Roofs, contained};
use crate::step_level::StepLevel;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRow {
    /// The store's key of the job. Job ids are reused, keys are not.
    pub job_key: i64,
    /// The scheduler's id of the job.
    pub job_id: String,
    /// The cluster, if known.
    pub cluster: Option<String>,
    /// The owner's name, if known.
    pub owner: Option<String>,
    /// The owner's numeric id, if known.
    pub owner_uid: Option<i64>,
    /// The time at which its first node began to track it, in nanoseconds since the epoch.
    pub started_ns: i64,
    /// The time at which it ended on its last node, in nanoseconds since the epoch; none while it runs on any
    /// node.
    pub ended_ns: Option<i64>,
    /// The time that contains all its samples, in nanoseconds since the epoch.
    pub sampled_ns: Range<i64>,
    /// The value by which jobs are listed, for [`JobFilter::before`](super::JobFilter): times in nanoseconds,
    /// by the clocks of its nodes where they differ from the collector's.
    #[serde(default)]
    pub listed: i64,
    /// The nodes whose agent was lost, so that the time of the job's end there is unknown.
    pub lost_nodes: Vec<String>,
    /// The nodes on which it was tracked, sorted.
    pub nodes: Vec<String>,
    /// All of its nodes as the scheduler writes them, `n[1-4]`, if the scheduler reported them.
    pub node_list: Option<String>,
    /// The account or project that it is charged to, if the scheduler reported it.
    pub account: Option<String>,
    /// The queue or partition that it was submitted to, if the scheduler reported it.
    pub queue: Option<String>,
    /// Its number of cores, if the scheduler reported it.
    pub cores: Option<i64>,
    /// Its final state in the scheduler's terms, if the scheduler reported it.
    pub state: Option<String>,
    /// The exit status of its script, if the scheduler reported it.
    pub exit_code: Option<i64>,
    /// The signal that ended its script, if the scheduler reported it.
    pub exit_signal: Option<i64>,
    /// The name that its owner gave it, if the scheduler reported it.
    pub name: Option<String>,
    /// Its id as the scheduler prints it, where that differs from the job's id.
    pub display_id: Option<String>,
    /// Its time limit in seconds, if the scheduler reported it.
    pub time_limit_s: Option<i64>,
    /// The memory that was requested on each node, in bytes, if the scheduler reported it.
    pub memory_bytes: Option<i64>,
    /// Its number of GPUs on all nodes, if the scheduler reported it.
    pub gpus: Option<i64>,
    /// The number of times that the scheduler started it again, if the scheduler reported it.
    pub restarts: Option<i64>,
    /// What the scheduler said and could not be read, with the names of the fields.
    pub unread: Option<String>,
    /// The command, if `polymeter run` started it.
    pub run: Option<Box<Run>>,
    /// The scheduler, `slurm` or `oar`, if its scripts announced the job.
    pub scheduler: Option<String>,
    /// What it used, once it has ended and a collector has summarised it.
    #[serde(default)]
    pub usage: Option<JobUsage>,
}

/// The figures of a job that has ended, as its report has them; none where a figure is not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobUsage {
    /// Seconds from the start to the end.
    pub elapsed_s: f64,
    /// The number of nodes.
    pub nodes: Option<f64>,
    /// The cores of the job on all nodes.
    pub cores: Option<f64>,
    /// CPU time on all nodes, in seconds; where the scheduler counts hardware threads, on each node at any
    /// time at most that of its cores.
    pub cpu_s: Option<f64>,
    /// The largest number of cores in use at a time.
    pub cores_peak: Option<f64>,
    /// The requested memory on each node, in bytes.
    pub memory_request_bytes: Option<f64>,
    /// The peak of used memory, on the node with the most, in bytes.
    pub memory_used_bytes: Option<f64>,
    /// What the memory on the node with the most may have been at most, in bytes.
    pub memory_bound_bytes: Option<f64>,
    /// The number of GPUs on all nodes.
    pub gpus: Option<f64>,
    /// The number of GPUs that were in use at any time.
    pub gpus_used: Option<f64>,
    /// The time of all GPUs multiplied by their utilization, in seconds.
    pub gpu_s: Option<f64>,
    /// The energy on all nodes where it is known, in joules; that of a shared node is an estimate.
    pub energy_j: Option<f64>,
}

impl JobUsage {
    /// Returns the cores in use, on average over the job's time.
    pub fn cores_used(&self) -> Option<f64> {
        self.cpu_s.filter(|_| self.elapsed_s > 0.0).map(|cpu_s| cpu_s / self.elapsed_s)
    }

    /// Returns the core-seconds that were wasted: the requested ones less the CPU time; none for a job with
    /// GPUs, which needs few of the cores that come with them.
    pub fn wasted_core_s(&self) -> Option<f64> {
        let has_gpus = self.gpus.is_some_and(|gpus| gpus > 0.0);
        let (cores, cpu_s) = self.cores.zip(self.cpu_s).filter(|_| !has_gpus)?;
        Some((cores * self.elapsed_s - cpu_s).max(0.0))
    }
}

/// The sums over the jobs of a group that have ended. Core-hours are those of jobs whose cores and CPU time
/// are known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageRow {
    /// The value of the attribute; none for the jobs without one, and for all jobs.
    pub group: Option<String>,
    /// The owner of an array.
    pub user: Option<String>,
    /// The number of jobs.
    pub jobs: u64,
    /// Those that failed or ran out of memory.
    pub failed: u64,
    /// Those whose cores or CPU time are not known.
    pub unknown: u64,
    /// The cores multiplied by the elapsed time, in seconds.
    pub core_s: f64,
    /// CPU time, in seconds.
    pub cpu_s: f64,
    /// The time of cores that was wasted, in seconds.
    pub wasted_core_s: f64,
    /// The GPUs multiplied by the elapsed time, in seconds, of jobs whose utilization of GPUs is known.
    pub gpu_s: f64,
    /// The time of GPUs that was wasted, in seconds.
    pub wasted_gpu_s: f64,
    /// The requested memory on a node multiplied by the elapsed time, in byte seconds, of jobs whose used
    /// memory is known.
    pub memory_byte_s: f64,
    /// The peak of the used memory on a node multiplied by the elapsed time, in byte seconds, of these jobs.
    pub memory_used_byte_s: f64,
}

/// A notice to a person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeRow {
    pub number: i64,
    /// The time, in nanoseconds since the epoch.
    pub time_ns: i64,
    /// The id of the rule.
    pub rule: String,
    /// The scheduler's id of the job.
    pub job_id: String,
    /// The store's key of the job.
    pub job_key: i64,
    /// The numeric id of the job's owner, if known.
    pub uid: Option<i64>,
    /// The recipient of the mail, or the user's name.
    pub recipient: String,
    pub subject: String,
    pub text: String,
    /// What became of it; none while it is sent, or if its collector ended meanwhile.
    pub result: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesRow {
    /// The store's id of the series.
    pub series_id: i64,
    pub node: String,
    /// The metric's name.
    pub metric: String,
    /// The metric's unit.
    pub unit: String,
    /// The metric's kind: `counter` or `gauge`.
    pub kind: String,
    pub labels: Labels,
}

impl SeriesRow {
    /// Returns for each series whether sums leave it out, as [`contained`] does: all are of nodes, or all of
    /// one job.
    pub fn contained<'a>(rows: impl IntoIterator<Item = &'a Self>) -> Vec<bool> {
        contained(rows.into_iter().map(|row| (row.node.as_str(), row.metric.as_str(), &row.labels)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SampleRow {
    /// The store's id of the series.
    pub series_id: i64,
    /// The time, in nanoseconds since the epoch.
    pub time_ns: i64,
    pub value: f64,
}

/// The samples of a series in an interval of time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BucketRow {
    /// The store's id of the series.
    pub series_id: i64,
    /// The begin of the interval, in nanoseconds since the epoch.
    pub time_ns: i64,
    /// The number of samples.
    pub count: u64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// Mean of the values; in a minute and an hour, of the means of 10 s, whatever their periods.
    pub mean: f64,
    /// The earliest value.
    pub first: f64,
    /// The latest value.
    pub last: f64,
    /// The increase of a counter from the earliest value to the latest.
    pub increase: f64,
}

/// The rollups of samples, by the length of their intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rollup {
    /// Intervals of 10 s.
    TenSeconds,
    /// Intervals of a minute.
    Minute,
    /// Intervals of an hour.
    Hour,
}

impl Rollup {
    /// All rollups, the shortest intervals first.
    pub const ALL: [Self; 3] = [Self::TenSeconds, Self::Minute, Self::Hour];

    /// Returns the length of its intervals, in nanoseconds.
    pub const fn length_ns(self) -> i64 {
        let seconds = match self {
            Self::TenSeconds => 10,
            Self::Minute => 60,
            Self::Hour => 3600,
        };
        seconds * 1_000_000_000
    }
}

/// The processors of a node of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpusRow {
    pub node: String,
    /// The number of its CPUs, if its agent reported it or its per-CPU series show it.
    pub cpus: Option<i64>,
    /// The number of its cores, if its agent reported it.
    pub cores: Option<i64>,
    /// The number of cores that the scheduler gave to the job there, if the scheduler reported it.
    pub job_cores: Option<i64>,
    /// The number of GPUs that the scheduler gave to the job there, if the scheduler reported it.
    pub job_gpus: Option<i64>,
    /// The roof of the memory, if it was measured: bytes per second.
    pub memory_bytes_per_s: Option<i64>,
    /// The roof of operations of double precision, if it was measured: per second.
    pub double_flop_per_s: Option<i64>,
    /// The roof of operations of single precision, if it was measured: per second.
    pub single_flop_per_s: Option<i64>,
}

impl CpusRow {
    pub fn processors(&self) -> Processors {
        let count = |stored: Option<i64>| stored.and_then(|stored| u32::try_from(stored).ok());
        Processors { cpus: count(self.cpus), cores: count(self.cores), roofs: self.roofs() }
    }

    /// Returns the roofs of the node; none unless all were measured.
    pub fn roofs(&self) -> Option<Roofs> {
        let rate = |stored: Option<i64>| stored.and_then(|stored| u64::try_from(stored).ok());
        Some(Roofs {
            memory_bytes_per_s: rate(self.memory_bytes_per_s)?,
            double_flop_per_s: rate(self.double_flop_per_s)?,
            single_flop_per_s: rate(self.single_flop_per_s)?,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMetricRow {
    /// The metric's name.
    pub metric: String,
    /// The level of its series; none for those of the whole job.
    pub level: Option<StepLevel>,
    /// The metric's unit.
    pub unit: String,
    /// The metric's kind: `counter` or `gauge`.
    pub kind: String,
    /// The number of its series.
    pub series: u64,
    /// The number of nodes that have some.
    pub nodes: u64,
}

/// The time of a job on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNodeRow {
    pub node: String,
    /// The time at which the node began to track the job, in nanoseconds since the epoch.
    pub started_ns: i64,
    /// The time at which it ended there, in nanoseconds since the epoch; none while it runs.
    pub ended_ns: Option<i64>,
    /// True if another job ran on the node meanwhile.
    pub is_shared: bool,
    /// The time by which the clock of the node was ahead of the collector's, in microseconds, if that is
    /// much: all times of the job on the node are without it.
    #[serde(default)]
    pub clock_offset_us: Option<i64>,
}

/// The balance of the samples of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRow {
    /// The agent's session.
    pub session_id: String,
    pub node: String,
    pub source: String,
    /// The counts since the session began, including samples that were stored after its newest tally.
    pub tally: Tally,
    /// Samples that were taken, and lost with frames that the agent dropped or gave up.
    pub skipped: u64,
    /// Samples that were taken, and rejected by the collector.
    pub rejected: u64,
    /// Samples that were taken, and quarantined because their times are out of range.
    pub quarantined: u64,
    /// Samples that were taken and stored.
    pub stored: u64,
    /// Samples that were taken, with an unknown fate.
    pub unknown: u64,
}

/// A change of the sampling plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanChangeRow {
    /// The time at which it took effect, in nanoseconds since the epoch.
    pub time_ns: i64,
    pub node: String,
    pub metric: String,
    /// The previous period, in microseconds; none if it was not sampled.
    pub old_period_us: Option<i64>,
    /// The new period, in microseconds; none if it is no longer sampled.
    pub new_period_us: Option<i64>,
    pub cause: String,
    /// The user that requested it, if any.
    pub actor: Option<String>,
    /// The time at which it expires, in nanoseconds since the epoch.
    pub until_ns: Option<i64>,
    /// `step` or `task` if it concerns each step or task of the job; none for the job as a whole.
    pub level: Option<String>,
}

/// A request at submission that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRow {
    /// The time of the refusal, in nanoseconds since the epoch.
    pub time_ns: i64,
    pub node: String,
    /// A selector, or the text of a request that could not be parsed.
    pub request: String,
    /// The requested period, in microseconds, if it could be parsed.
    pub period_us: Option<i64>,
    /// The user of the request, if known.
    pub actor: Option<String>,
    /// The reason of the refusal.
    pub reason: String,
}

/// A mark of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkRow {
    /// The time, in nanoseconds since the epoch.
    pub time_ns: i64,
    pub node: String,
    pub name: String,
    /// `instant`, or `begin` or `end` of a phase.
    pub kind: String,
    /// The user that made the mark.
    pub actor: Option<String>,
}

/// The samples of a call stack in a process of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackRow {
    /// The metric, such as `stacks.cpu`.
    pub metric: String,
    pub node: String,
    /// The id of the process on the node.
    pub process: u32,
    /// The store's id of the stack, the same on all nodes of the job.
    pub stack_id: i64,
    /// The number of samples.
    pub samples: u64,
    /// The time that they stand for, in microseconds.
    pub time_us: u64,
    /// The middle of their interval, in nanoseconds since the epoch; none for sums of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ns: Option<i64>,
}

/// A call stack of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackNodeRow {
    /// The store's id.
    pub stack_id: i64,
    /// The stack of the caller; none for an outermost function.
    pub parent_id: Option<i64>,
    /// The name of the function that is called; empty without a symbol.
    pub function: String,
    /// The base name of its file, `[kernel]` or `[jit]`; empty if unknown.
    pub module: String,
}

/// The sums over intervals of call stacks of a job on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackIntervalRow {
    /// The metric, such as `stacks.cpu`.
    pub metric: String,
    pub node: String,
    /// The middle of the first interval, in nanoseconds since the epoch.
    pub first_ns: i64,
    /// The middle of the last interval, in nanoseconds since the epoch.
    pub last_ns: i64,
    /// The longest time between two samples, in microseconds.
    pub period_us: u64,
    /// The number of samples.
    pub samples: u64,
    /// Samples that did not arrive at the agent.
    pub lost: u64,
    /// The number of times that the kernel slowed the sampling.
    pub throttled: u64,
    /// Samples without their outermost functions.
    pub cut: u64,
    /// Samples whose innermost function has no symbol.
    pub unresolved: u64,
}

/// Samples that are missing in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossRow {
    /// The time at which the collector detected the loss, in nanoseconds since the epoch.
    pub time_ns: i64,
    pub node: String,
    /// The agent's session.
    pub session_id: String,
    /// The store's key of the job; none for the node's own sources, or if the job is unknown.
    pub job_key: Option<i64>,
    /// The source; none if it is unknown.
    pub source: Option<String>,
    /// The number of samples.
    pub samples: u64,
    pub reason: String,
    /// The time of the oldest lost sample, in nanoseconds since the epoch.
    pub first_time_ns: i64,
    /// The time of the newest lost sample, in nanoseconds since the epoch.
    pub last_time_ns: i64,
}

/// The newest session of the agent of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRow {
    pub node: String,
    pub session_id: String,
    pub version: String,
    /// The start of the session by the clock of the node, in nanoseconds since the epoch.
    pub started_ns: i64,
    /// The time of the last frame by the clock of a collector, in nanoseconds since the epoch.
    pub last_seen_ns: i64,
    /// The time of the newest sample by the clock of the node, in nanoseconds since the epoch; none before
    /// the first.
    pub last_sample_ns: Option<i64>,
    /// The end of the session, in nanoseconds since the epoch; none while it lasts.
    pub ended_ns: Option<i64>,
    pub end_reason: Option<String>,
    /// The samples of the node's own sources that were due in the session.
    pub due: u64,
    /// Those that were taken.
    pub taken: u64,
    /// Those that were taken late.
    pub late: u64,
    /// Those that were missed.
    pub missed: u64,
    /// The samples of the node that were lost after the time of the query.
    pub lost: u64,
}

/// Rows of one type, as they are passed on: a query has any number of blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RowBlock {
    Jobs(Vec<JobRow>),
    /// Sums over jobs.
    Usage(Vec<UsageRow>),
    Notices(Vec<NoticeRow>),
    Series(Vec<SeriesRow>),
    Samples(Vec<SampleRow>),
    /// Intervals of a rollup.
    Buckets(Vec<BucketRow>),
    /// The balance of samples, by source.
    Ledger(Vec<LedgerRow>),
    /// Changes of the sampling plan.
    PlanChanges(Vec<PlanChangeRow>),
    RefusedRequests(Vec<RefusedRow>),
    Marks(Vec<MarkRow>),
    Losses(Vec<LossRow>),
    /// Numbers of CPUs.
    Cpus(Vec<CpusRow>),
    Rollups(Vec<Rollup>),
    JobIds(Vec<String>),
    /// The times of a job on its nodes.
    JobNodes(Vec<JobNodeRow>),
    /// Sessions of agents.
    Agents(Vec<AgentRow>),
    JobMetrics(Vec<JobMetricRow>),
    /// Samples of call stacks.
    Stacks(Vec<StackRow>),
    /// Intervals of call stacks.
    StackIntervals(Vec<StackIntervalRow>),
    /// Call stacks.
    StackNodes(Vec<StackNodeRow>),
}

/// A type of row, which has one form of block.
pub trait ReadRow: Sized {
    fn block(rows: Vec<Self>) -> RowBlock;

    /// Returns the rows of a block; none if it has rows of another type.
    fn rows(block: RowBlock) -> Option<Vec<Self>>;
}

macro_rules! read_rows {
    ($($row:ty => $block:ident),* $(,)?) => {$(
        impl ReadRow for $row {
            fn block(rows: Vec<Self>) -> RowBlock {
                RowBlock::$block(rows)
            }

            fn rows(block: RowBlock) -> Option<Vec<Self>> {
                if let RowBlock::$block(rows) = block { Some(rows) } else { None }
            }
        }
    )*};
}

read_rows! {
    JobRow => Jobs,
    UsageRow => Usage,
    NoticeRow => Notices,
    SeriesRow => Series,
    SampleRow => Samples,
    BucketRow => Buckets,
    LedgerRow => Ledger,
    PlanChangeRow => PlanChanges,
    RefusedRow => RefusedRequests,
    MarkRow => Marks,
    LossRow => Losses,
    CpusRow => Cpus,
    Rollup => Rollups,
    String => JobIds,
    JobNodeRow => JobNodes,
    AgentRow => Agents,
    JobMetricRow => JobMetrics,
    StackRow => Stacks,
    StackIntervalRow => StackIntervals,
    StackNodeRow => StackNodes,
}

impl RowBlock {
    /// Returns the number of rows.
    pub const fn len(&self) -> usize {
        match self {
            Self::Jobs(rows) => rows.len(),
            Self::Usage(rows) => rows.len(),
            Self::Notices(rows) => rows.len(),
            Self::Series(rows) => rows.len(),
            Self::Samples(rows) => rows.len(),
            Self::Buckets(rows) => rows.len(),
            Self::Ledger(rows) => rows.len(),
            Self::PlanChanges(rows) => rows.len(),
            Self::RefusedRequests(rows) => rows.len(),
            Self::Marks(rows) => rows.len(),
            Self::Losses(rows) => rows.len(),
            Self::Cpus(rows) => rows.len(),
            Self::Rollups(rows) => rows.len(),
            Self::JobIds(rows) => rows.len(),
            Self::JobNodes(rows) => rows.len(),
            Self::Agents(rows) => rows.len(),
            Self::JobMetrics(rows) => rows.len(),
            Self::Stacks(rows) => rows.len(),
            Self::StackIntervals(rows) => rows.len(),
            Self::StackNodes(rows) => rows.len(),
        }
    }

    /// Returns true if there are no rows.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
