//! Rows that a reader returns. Times (`_ns`) are nanoseconds since the epoch.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::ledger::Tally;
use crate::period::{Period, Sampling};
use crate::run::Run;
use crate::series::{Labels, Processors, Roofs, contained};
use crate::step_level::StepLevel;
use crate::units;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRow {
    /// Key of the store. Job ids are reused, keys are not.
    pub job_key: i64,
    /// Id of the scheduler.
    pub job_id: String,
    pub cluster: Option<String>,
    pub owner: Option<String>,
    pub owner_uid: Option<i64>,
    /// Time at which the first node began to track the job.
    pub started_ns: i64,
    /// Time at which the job ended on its last node; none while it runs on any node.
    pub ended_ns: Option<i64>,
    /// Contains the times of all samples.
    pub sampled_ns: Range<i64>,
    /// Value by which jobs are listed, for [`JobFilter::before`](super::JobFilter): times in nanoseconds, by
    /// the clocks of its nodes where they differ from the collector's.
    #[serde(default)]
    pub listed: i64,
    /// Nodes whose agent was lost, so that the job's end there is unknown.
    pub lost_nodes: Vec<String>,
    /// Nodes on which the job was tracked, sorted.
    pub nodes: Vec<String>,
    /// All nodes as the scheduler writes them, `n[1-4]`.
    pub node_list: Option<String>,
    pub account: Option<String>,
    pub queue: Option<String>,
    /// Cores on all nodes.
    pub cores: Option<i64>,
    /// Final state in the scheduler's terms.
    pub state: Option<String>,
    pub exit_code: Option<i64>,
    pub exit_signal: Option<i64>,
    pub name: Option<String>,
    /// Id as the scheduler prints it, where that differs from the job's id.
    pub display_id: Option<String>,
    pub time_limit_s: Option<i64>,
    /// Requested memory on each node.
    pub memory_bytes: Option<i64>,
    /// GPUs on all nodes.
    pub gpus: Option<i64>,
    pub restarts: Option<i64>,
    /// What the scheduler said and could not be read, with the names of the fields.
    pub unread: Option<String>,
    /// Command, if `polymeter run` started the job.
    pub run: Option<Box<Run>>,
    pub scheduler: Option<String>,
    /// What the job used, once it has ended and a collector has summarised it.
    #[serde(default)]
    pub usage: Option<JobUsage>,
}

/// Figures of a job that has ended, as its report has them; none where a figure is unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobUsage {
    /// Seconds from the start to the end.
    pub elapsed_s: f64,
    pub nodes: Option<f64>,
    /// Cores on all nodes.
    pub cores: Option<f64>,
    /// CPU time on all nodes. Where the scheduler counts hardware threads, no node counts more at any time
    /// than the job's cores can give.
    pub cpu_s: Option<f64>,
    /// Largest number of cores in use at a time.
    pub cores_peak: Option<f64>,
    pub memory_request_bytes: Option<f64>,
    /// Peak of used memory, on the node with the most.
    pub memory_used_bytes: Option<f64>,
    /// Upper bound of the used memory, on the node with the most.
    pub memory_bound_bytes: Option<f64>,
    pub gpus: Option<f64>,
    /// GPUs that were in use at any time.
    pub gpus_used: Option<f64>,
    pub gpu_s: Option<f64>,
    /// Energy on all nodes where it is known; estimated on shared nodes.
    pub energy_j: Option<f64>,
}

impl JobUsage {
    /// Returns the mean number of cores in use over the job's time.
    pub fn cores_used(&self) -> Option<f64> {
        self.cpu_s.filter(|_| self.elapsed_s > 0.0).map(|cpu_s| cpu_s / self.elapsed_s)
    }

    /// Returns the wasted core-seconds: the requested ones less the CPU time. None for a job with GPUs, which
    /// needs few of the cores that come with them.
    pub fn wasted_core_s(&self) -> Option<f64> {
        let has_gpus = self.gpus.is_some_and(|gpus| gpus > 0.0);
        let (cores, cpu_s) = self.cores.zip(self.cpu_s).filter(|_| !has_gpus)?;
        Some((cores * self.elapsed_s - cpu_s).max(0.0))
    }
}

/// Sums over the ended jobs of a group. Core-seconds count only jobs whose cores and CPU time are known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageRow {
    /// Value of the attribute; none for jobs without one, and for all jobs.
    pub group: Option<String>,
    /// Owner of an array.
    pub user: Option<String>,
    pub jobs: u64,
    /// Jobs that failed or ran out of memory.
    pub failed: u64,
    /// Jobs whose cores or CPU time are unknown.
    pub unknown: u64,
    /// Cores multiplied by the elapsed time.
    pub core_s: f64,
    pub cpu_s: f64,
    /// Core-seconds without use.
    pub wasted_core_s: f64,
    /// GPUs multiplied by the elapsed time, of jobs whose utilization of GPUs is known.
    pub gpu_s: f64,
    /// GPU-seconds without use.
    pub wasted_gpu_s: f64,
    /// Requested memory on a node multiplied by the elapsed time, of jobs whose used memory is known.
    pub memory_byte_s: f64,
    /// Peak of the used memory on a node multiplied by the elapsed time, of the same jobs.
    pub memory_used_byte_s: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeRow {
    pub number: i64,
    pub time_ns: i64,
    pub rule: String,
    pub job_id: String,
    /// Key of the store.
    pub job_key: i64,
    /// Numeric id of the job's owner, if known.
    pub uid: Option<i64>,
    /// Recipient of the mail, or the user's name.
    pub recipient: String,
    pub subject: String,
    pub text: String,
    /// None while the notice is being sent, or if its collector ended meanwhile.
    pub result: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesRow {
    /// Key of the store.
    pub series_id: i64,
    pub node: String,
    pub metric: String,
    pub unit: String,
    /// `counter` or `gauge`.
    pub kind: String,
    pub labels: Labels,
}

impl SeriesRow {
    /// Returns for each series whether sums leave it out, as [`contained`] does. All rows must be of nodes,
    /// or all of one job.
    pub fn contained<'a>(rows: impl IntoIterator<Item = &'a Self>) -> Vec<bool> {
        contained(rows.into_iter().map(|row| (row.node.as_str(), row.metric.as_str(), &row.labels)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SampleRow {
    /// Key of the store.
    pub series_id: i64,
    pub time_ns: i64,
    /// The last value of a window.
    pub value: f64,
    /// None for one sample.
    pub window: Option<SampleWindow>,
}

/// Summary of the samples of a window. What is unknown is NaN.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SampleWindow {
    pub count: u64,
    /// Smallest value; of a counter the smallest rate between two samples, per second.
    pub min: f64,
    /// Largest value; of a counter the largest rate between two samples, per second.
    pub max: f64,
    /// Sum of the values; NaN for a counter.
    pub sum: f64,
}

impl SampleWindow {
    /// Returns the mean of the values of a gauge.
    pub fn mean(&self) -> Option<f64> {
        let mean = self.sum / units::to_f64(self.count.max(1));
        (!mean.is_nan()).then_some(mean)
    }
}

impl SampleRow {
    /// Returns the number of samples that the row stands for.
    pub fn count(&self) -> u64 {
        self.window.map_or(1, |window| window.count)
    }

    /// Returns the mean of a window of a gauge, otherwise the value.
    pub fn mean(&self) -> f64 {
        self.window.and_then(|window| window.mean()).unwrap_or(self.value)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BucketRow {
    /// Key of the store.
    pub series_id: i64,
    pub time_ns: i64,
    pub count: u64,
    pub min: f64,
    pub max: f64,
    /// Mean of the values; in a minute and an hour, of the means of 10 s, whatever their periods.
    pub mean: f64,
    pub first: f64,
    pub last: f64,
    /// Increase of a counter from `first` to `last`.
    pub increase: f64,
    /// Smallest rate of a counter within windows, per second; NaN without windows.
    pub rate_min: f64,
    /// Largest rate of a counter within windows, per second; NaN without windows.
    pub rate_max: f64,
}

/// Rollup of samples, by the length of its intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rollup {
    TenSeconds,
    Minute,
    Hour,
}

impl Rollup {
    pub const ALL: [Self; 3] = [Self::TenSeconds, Self::Minute, Self::Hour];

    pub const fn length_ns(self) -> i64 {
        let seconds = match self {
            Self::TenSeconds => 10,
            Self::Minute => 60,
            Self::Hour => 3600,
        };
        seconds * 1_000_000_000
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpusRow {
    pub node: String,
    /// Online CPUs, if the agent reported them or the per-CPU series show them.
    pub cpus: Option<i64>,
    /// Cores, if the agent reported them.
    pub cores: Option<i64>,
    /// Cores that the scheduler gave to the job there, if it reported them.
    pub job_cores: Option<i64>,
    /// GPUs that the scheduler gave to the job there, if it reported them.
    pub job_gpus: Option<i64>,
    pub memory_bytes_per_s: Option<i64>,
    pub double_flop_per_s: Option<i64>,
    pub single_flop_per_s: Option<i64>,
}

impl CpusRow {
    pub fn processors(&self) -> Processors {
        let count = |stored: Option<i64>| stored.and_then(|stored| u32::try_from(stored).ok());
        Processors { cpus: count(self.cpus), cores: count(self.cores), roofs: self.roofs() }
    }

    /// Returns none unless all roofs were measured.
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
    pub metric: String,
    /// Level of the series; none for those of the whole job.
    pub level: Option<StepLevel>,
    pub unit: String,
    /// `counter` or `gauge`.
    pub kind: String,
    pub series: u64,
    /// Number of nodes that have some.
    pub nodes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNodeRow {
    pub node: String,
    pub started_ns: i64,
    /// None while the job runs there.
    pub ended_ns: Option<i64>,
    /// True if another job ran on the node meanwhile.
    pub is_shared: bool,
    /// How far the clock of the node was ahead of the collector's, if that is much. All times of the job on
    /// the node are without it.
    #[serde(default)]
    pub clock_offset_us: Option<i64>,
}

/// Balance of the samples of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRow {
    pub session_id: String,
    pub node: String,
    pub source: String,
    /// Counts since the session began, including samples that were stored after its newest tally.
    pub tally: Tally,
    /// Samples that were taken, and lost with frames that the agent dropped or gave up.
    pub skipped: u64,
    /// Samples that were taken, and rejected by the collector.
    pub rejected: u64,
    pub quarantined: u64,
    pub stored: u64,
    /// Samples that were taken, and whose fate is unknown.
    pub unknown: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanChangeRow {
    pub time_ns: i64,
    pub node: String,
    pub metric: String,
    /// None if the metric was not sampled.
    pub old_period_us: Option<i64>,
    /// None if the metric is no longer sampled.
    pub new_period_us: Option<i64>,
    /// Length of the windows; none if each sample was sent.
    pub old_window_us: Option<i64>,
    /// Length of the windows; none if each sample is sent.
    pub new_window_us: Option<i64>,
    pub cause: String,
    pub actor: Option<String>,
    pub until_ns: Option<i64>,
    /// `step` or `task` if it concerns each step or task of the job; none for the job as a whole.
    pub level: Option<String>,
}

impl PlanChangeRow {
    /// None if the metric was not sampled.
    pub fn old_sampling(&self) -> Option<Sampling> {
        sampling(self.old_period_us, self.old_window_us)
    }

    /// None if the metric is no longer sampled.
    pub fn new_sampling(&self) -> Option<Sampling> {
        sampling(self.new_period_us, self.new_window_us)
    }
}

/// None without a valid period.
fn sampling(period_us: Option<i64>, window_us: Option<i64>) -> Option<Sampling> {
    let period = |micros: i64| Period::from_micros(u64::try_from(micros).ok()?).ok();
    let window = window_us.and_then(period);
    Some(Sampling { period: period(period_us?)?, window, has_histogram: false })
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRow {
    pub time_ns: i64,
    pub node: String,
    /// Selector, or the text of a request that could not be parsed.
    pub request: String,
    /// None if the period could not be parsed.
    pub period_us: Option<i64>,
    /// Requested length of windows.
    pub window_us: Option<i64>,
    pub actor: Option<String>,
    pub reason: String,
}

impl RefusedRow {
    /// None if the period could not be parsed.
    pub fn sampling(&self) -> Option<Sampling> {
        sampling(self.period_us, self.window_us)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkRow {
    pub time_ns: i64,
    pub node: String,
    pub name: String,
    /// `instant`, or `begin` or `end` of a phase.
    pub kind: String,
    pub actor: Option<String>,
}

/// Bucket of the histogram of a series.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HistogramRow {
    pub series_id: i64,
    /// Smallest value in the bucket; of a counter the smallest rate per second.
    pub least: f64,
    /// Samples in it.
    pub count: u64,
}

/// Interval of a job on a node of which a ring kept the samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptIntervalRow {
    pub node: String,
    pub begin_ns: i64,
    pub end_ns: i64,
    /// The same on all nodes that kept the interval.
    pub trigger: i64,
    /// Why it was kept, for people.
    pub reason: String,
    /// Samples that the node sent of it.
    pub samples: u64,
}

/// Trigger of a job that fired.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FiringRow {
    pub time_ns: i64,
    /// Where it fired.
    pub node: String,
    /// Name of the rule.
    pub rule: String,
    /// User who added the rule; none for one of the site.
    pub actor: Option<String>,
    pub why: String,
    /// What was done on the node, with its predicted cost, or why it could not be done.
    pub actions: String,
    /// That of the kept intervals that are due to it.
    pub trigger: i64,
    /// Begin and end of what all nodes of the job were asked to keep; none if nothing was.
    pub begin_ns: Option<i64>,
    pub end_ns: Option<i64>,
    /// None until the collector has asked the other nodes.
    pub nodes_asked: Option<u64>,
    /// Nodes that could not keep it, with the reasons.
    pub nodes_missing: BTreeMap<String, String>,
}

/// Samples of a call stack in a process of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackRow {
    /// A metric such as `stacks.cpu`.
    pub metric: String,
    pub node: String,
    /// Process id on the node.
    pub process: u32,
    /// Key of the store, the same on all nodes of the job.
    pub stack_id: i64,
    pub samples: u64,
    /// Time that the samples stand for.
    pub time_us: u64,
    /// Middle of the interval; none for sums of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ns: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackNodeRow {
    pub stack_id: i64,
    /// Stack of the caller; none for an outermost function.
    pub parent_id: Option<i64>,
    /// Innermost function; empty without a symbol.
    pub function: String,
    /// Base name of the function's file, `[kernel]` or `[jit]`; empty if unknown.
    pub module: String,
}

/// Sums over intervals of call stacks of a job on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackIntervalRow {
    /// A metric such as `stacks.cpu`.
    pub metric: String,
    pub node: String,
    pub first_ns: i64,
    pub last_ns: i64,
    /// Longest time between two samples.
    pub period_us: u64,
    pub samples: u64,
    /// Samples that did not arrive at the agent.
    pub lost: u64,
    /// How often the kernel slowed the sampling.
    pub throttled: u64,
    /// Samples without their outermost functions.
    pub cut: u64,
    /// Samples whose innermost function has no symbol.
    pub unresolved: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossRow {
    /// Time at which the collector detected the loss.
    pub time_ns: i64,
    pub node: String,
    pub session_id: String,
    /// None for the node's own sources, or if the job is unknown.
    pub job_key: Option<i64>,
    /// None if the source is unknown.
    pub source: Option<String>,
    pub samples: u64,
    pub reason: String,
    pub first_time_ns: i64,
    pub last_time_ns: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRow {
    pub node: String,
    pub session_id: String,
    pub version: String,
    /// Start of the session by the clock of the node.
    pub started_ns: i64,
    /// Time of the last frame by the clock of a collector.
    pub last_seen_ns: i64,
    /// Time of the newest sample by the clock of the node; none before the first.
    pub last_sample_ns: Option<i64>,
    /// End of the session; none while it lasts.
    pub ended_ns: Option<i64>,
    pub end_reason: Option<String>,
    /// Samples of the node's own sources that were due in the session.
    pub due: u64,
    pub taken: u64,
    pub late: u64,
    pub missed: u64,
    /// Samples of the node that were lost after the time of the query.
    pub lost: u64,
}

/// Rows of one type; the answer to a query is any number of blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RowBlock {
    Jobs(Vec<JobRow>),
    Usage(Vec<UsageRow>),
    Notices(Vec<NoticeRow>),
    Series(Vec<SeriesRow>),
    Samples(Vec<SampleRow>),
    Buckets(Vec<BucketRow>),
    Ledger(Vec<LedgerRow>),
    PlanChanges(Vec<PlanChangeRow>),
    RefusedRequests(Vec<RefusedRow>),
    Marks(Vec<MarkRow>),
    Losses(Vec<LossRow>),
    Cpus(Vec<CpusRow>),
    Rollups(Vec<Rollup>),
    JobIds(Vec<String>),
    JobNodes(Vec<JobNodeRow>),
    Agents(Vec<AgentRow>),
    JobMetrics(Vec<JobMetricRow>),
    Stacks(Vec<StackRow>),
    StackIntervals(Vec<StackIntervalRow>),
    StackNodes(Vec<StackNodeRow>),
    KeptIntervals(Vec<KeptIntervalRow>),
    Firings(Vec<FiringRow>),
    Histograms(Vec<HistogramRow>),
}

/// Type of row, which has one form of block.
pub trait ReadRow: Sized {
    fn block(rows: Vec<Self>) -> RowBlock;

    /// Returns none if the block has rows of another type.
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
    KeptIntervalRow => KeptIntervals,
    FiringRow => Firings,
    HistogramRow => Histograms,
}

impl RowBlock {
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
            Self::KeptIntervals(rows) => rows.len(),
            Self::Firings(rows) => rows.len(),
            Self::Histograms(rows) => rows.len(),
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
