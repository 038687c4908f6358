//! Ledger of samples: counts of every sample that was due, and the events that explain the data.

use serde::{Deserialize, Serialize};

use crate::name::MetricName;
use crate::period::Sampling;
use crate::run::Run;
use crate::series::{Identifier, JobHandle};
use crate::step_level::StepLevel;
use crate::text::Text;

/// Counts of samples of one source and job since the session began. Later tallies replace earlier ones, so
/// lost and repeated ones are harmless.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Samples that should have been taken.
    pub due: u64,
    /// Samples that were read, late ones included.
    pub taken: u64,
    /// Samples that were taken more than a tenth of their period after the deadline.
    pub late: u64,
    /// Samples that were not taken because the next one was already due.
    pub missed: u64,
    /// Samples that the source did not have: the file or the line did not exist.
    pub absent: u64,
    /// Samples that were read, then dropped because a queue before the outbox was full.
    pub dropped: u64,
    /// Samples that a ring held in memory and let go, since no trigger wanted them.
    pub not_kept: u64,
}

impl Tally {
    pub const fn add(&mut self, other: &Self) {
        self.due += other.due;
        self.taken += other.taken;
        self.late += other.late;
        self.missed += other.missed;
        self.absent += other.absent;
        self.dropped += other.dropped;
        self.not_kept += other.not_kept;
    }

    /// Returns the number of due samples that no frame has.
    pub const fn lost(&self) -> u64 {
        self.missed + self.absent + self.dropped
    }

    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            due: self.due.saturating_sub(earlier.due),
            taken: self.taken.saturating_sub(earlier.taken),
            late: self.late.saturating_sub(earlier.late),
            missed: self.missed.saturating_sub(earlier.missed),
            absent: self.absent.saturating_sub(earlier.absent),
            dropped: self.dropped.saturating_sub(earlier.dropped),
            not_kept: self.not_kept.saturating_sub(earlier.not_kept),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// None for the node's own sources.
    pub job: Option<JobHandle>,
    /// Name of a file such as `memory.stat`, or `perf.software`.
    pub source: Identifier,
    pub tally: Tally,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    PlanChange(PlanChange),
    JobEnded {
        job: JobHandle,
        at_us: i64,
    },
    Mark(Mark),
    JobFacts(JobFactsUpdate),
    /// The owner of a job became known after the job was announced.
    JobOwner(JobOwner),
    RequestRefused(RequestRefused),
    /// The agent stopped normally and all samples were sent. The fate of a session without this event is
    /// unknown.
    SessionEnded {
        /// Microseconds since the epoch.
        at_us: i64,
    },
    JobDetails(JobDetailsUpdate),
    /// All samples of a kept interval were sent.
    Kept(KeptInterval),
    /// A trigger fired.
    Fired(Firing),
}

impl Event {
    pub const fn job(&self) -> Option<JobHandle> {
        match self {
            Self::PlanChange(change) => change.job,
            Self::JobEnded { job, .. } => Some(*job),
            Self::Mark(mark) => mark.job,
            Self::JobFacts(update) => Some(update.job),
            Self::JobOwner(owner) => Some(owner.job),
            Self::RequestRefused(refused) => Some(refused.job),
            Self::JobDetails(update) => Some(update.job),
            Self::Kept(kept) => Some(kept.job),
            Self::Fired(firing) => Some(firing.job),
            Self::SessionEnded { .. } => None,
        }
    }
}

/// Owner of a job that became known after the job was announced: from its processes, from the owner's name,
/// or from a late prolog. It adds to the known owner and never replaces it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOwner {
    pub job: JobHandle,
    pub uid: Option<u32>,
    pub name: Option<Identifier>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRefused {
    pub at_us: i64,
    pub job: JobHandle,
    /// Selector, or the original text of a request that cannot be parsed.
    pub request: Text,
    /// Requested period; none if it cannot be parsed.
    pub period: Option<Sampling>,
    pub by: Option<Identifier>,
    pub reason: Text,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFactsUpdate {
    pub job: JobHandle,
    /// True if the job had ended before, so that no later event concerns it.
    pub is_over: bool,
    pub facts: JobFacts,
}

/// What only the scheduler of a job knows; later facts add to earlier ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFacts {
    pub account: Option<Identifier>,
    pub queue: Option<Identifier>,
    /// Nodes in the scheduler's notation: `n[1-4]`.
    pub nodes: Option<Identifier>,
    /// Cores on all nodes.
    pub cores: Option<u32>,
    /// Final state in the scheduler's terms: `COMPLETED`.
    pub state: Option<Identifier>,
    pub exit_code: Option<u32>,
    pub exit_signal: Option<u32>,
    /// What the scheduler said and could not be read, with the names of the fields.
    pub unread: Option<Text>,
}

impl JobFacts {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDetailsUpdate {
    pub job: JobHandle,
    pub details: JobDetails,
}

/// Name, requested resources and command of a job, which only its scheduler knows. Later details add to
/// earlier ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobDetails {
    pub name: Option<Text>,
    /// Job id as the scheduler prints it, where that differs: `4009_1` for a task of an array, `4009+1` for a
    /// component of a heterogeneous job.
    pub display_id: Option<Identifier>,
    pub time_limit_s: Option<u64>,
    /// Requested memory on each node, in bytes.
    pub memory_bytes: Option<u64>,
    /// GPUs on all nodes.
    pub gpus: Option<u32>,
    pub restarts: Option<u32>,
    /// Command, if `polymeter run` is the scheduler.
    pub run: Option<Box<Run>>,
    /// `slurm` or `oar`.
    pub scheduler: Option<Identifier>,
    /// Cores on the reporting node, in the unit of the scheduler, which may count hardware threads.
    pub node_cores: Option<u32>,
    /// GPUs on the reporting node.
    pub node_gpus: Option<u32>,
}

impl JobDetails {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Interval whose samples a ring held and sent, because a trigger or a user wanted them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptInterval {
    pub job: JobHandle,
    /// Microseconds since the epoch.
    pub begin_us: i64,
    /// Microseconds since the epoch.
    pub end_us: i64,
    /// The same on all nodes that kept the interval.
    pub trigger: u64,
    /// Why it was kept, for people.
    pub reason: Text,
    /// Samples in it.
    pub samples: u64,
}

/// A trigger that fired on the node of the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firing {
    pub job: JobHandle,
    /// Number of the intervals that were kept because of it, on all nodes.
    pub trigger: u64,
    /// Name of the rule.
    pub rule: Identifier,
    /// User who added the rule; none for one of the site.
    pub by: Option<Identifier>,
    /// Microseconds since the epoch.
    pub at_us: i64,
    /// Begin and end of the interval that all nodes keep, in microseconds since the epoch; none if nothing is
    /// kept.
    pub keeps_us: Option<(i64, i64)>,
    /// The collector logs it, and tells the owner of the job.
    pub notice: bool,
    pub why: Text,
    /// What was done on the node, with its predicted cost, or why it could not be done.
    pub actions: Text,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub at_us: i64,
    /// None for the node.
    pub job: Option<JobHandle>,
    pub name: Identifier,
    pub kind: MarkKind,
    pub by: Option<Identifier>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MarkKind {
    Instant,
    Begin,
    End,
}

impl MarkKind {
    /// Returns the name in requests and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Instant => "instant",
            Self::Begin => "begin",
            Self::End => "end",
        }
    }

    pub fn of(text: &str) -> Option<Self> {
        [Self::Instant, Self::Begin, Self::End].into_iter().find(|kind| kind.as_str() == text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanChange {
    pub at_us: i64,
    /// None for the node's own metrics.
    pub job: Option<JobHandle>,
    /// Set if the change concerns all steps, or all tasks, of the job; none for the job as a whole.
    pub level: Option<StepLevel>,
    pub metric: MetricName,
    /// None if the metric was not sampled.
    pub old: Option<Sampling>,
    /// None if the metric is no longer sampled.
    pub new: Option<Sampling>,
    pub cause: Cause,
    pub by: Option<Identifier>,
    /// Expiry of the change, in microseconds since the epoch.
    pub until_us: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    Baseline,
    /// Request at the job's registration.
    Registration,
    JobEnd,
    Reload,
    Lease,
    /// A lease expired or was reset.
    LeaseEnd,
    /// The governor stretched leases because sampling exceeded its CPU budget, or restored them.
    Governor,
    /// The plan asks for a shorter period than the interval at which the hardware updates its values.
    RefreshInterval,
}

impl Cause {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Registration => "registration",
            Self::JobEnd => "job_end",
            Self::Reload => "reload",
            Self::Lease => "lease",
            Self::LeaseEnd => "lease_end",
            Self::Governor => "governor",
            Self::RefreshInterval => "refresh_interval",
        }
    }
}
