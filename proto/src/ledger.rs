//! The ledger of samples: counts of every sample that was due, and the events that explain the data.

use serde::{Deserialize, Serialize};

use crate::name::MetricName;
use crate::period::Period;
use crate::run::Run;
use crate::series::{Identifier, JobHandle};
use crate::step_level::StepLevel;
use crate::text::Text;

/// Counts of samples of one source and job since the session began. Later entries replace earlier ones, so
/// that lost and repeated entries are harmless.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Samples that were due.
    pub due: u64,
    /// Samples that were read, late ones included.
    pub taken: u64,
    /// Samples that were taken late, by more than a tenth of their period.
    pub late: u64,
    /// Samples that were not taken, because the next one was already due.
    pub missed: u64,
    /// Samples that the source did not have when it was read: the file or the line did not exist.
    pub absent: u64,
    /// Samples that were read, and dropped because a queue before the outbox was full.
    pub dropped: u64,
}

impl Tally {
    /// Adds the counts of another tally.
    pub const fn add(&mut self, other: &Self) {
        self.due += other.due;
        self.taken += other.taken;
        self.late += other.late;
        self.missed += other.missed;
        self.absent += other.absent;
        self.dropped += other.dropped;
    }

    /// Returns the number of samples that were due and that no frame has.
    pub const fn lost(&self) -> u64 {
        self.missed + self.absent + self.dropped
    }

    /// Returns the counts since an earlier tally of the same source.
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            due: self.due.saturating_sub(earlier.due),
            taken: self.taken.saturating_sub(earlier.taken),
            late: self.late.saturating_sub(earlier.late),
            missed: self.missed.saturating_sub(earlier.missed),
            absent: self.absent.saturating_sub(earlier.absent),
            dropped: self.dropped.saturating_sub(earlier.dropped),
        }
    }
}

/// The tally of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// The job of the source; none for the node's own.
    pub job: Option<JobHandle>,
    /// The source: a file's name such as `memory.stat`, or `perf.software`.
    pub source: Identifier,
    /// The counts.
    pub tally: Tally,
}

/// An event that explains the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A metric is sampled at another period.
    PlanChange(PlanChange),
    /// The last sample of a job has been taken.
    JobEnded {
        job: JobHandle,
        /// The time, in microseconds since the epoch.
        at_us: i64,
    },
    /// A user marked an instant, or the begin or end of a phase.
    Mark(Mark),
    /// The scheduler reported facts of a job.
    JobFacts(JobFactsUpdate),
    /// The owner of a job became known after the job was announced.
    JobOwner(JobOwner),
    /// A sampling request at submission was refused.
    RequestRefused(RequestRefused),
    /// The agent stopped normally: all samples were sent. A session without this event ended in an unknown
    /// state.
    SessionEnded {
        /// The time, in microseconds since the epoch.
        at_us: i64,
    },
    /// The scheduler reported details of a job.
    JobDetails(JobDetailsUpdate),
}

impl Event {
    /// Returns the job of the event; none for the node.
    pub const fn job(&self) -> Option<JobHandle> {
        match self {
            Self::PlanChange(change) => change.job,
            Self::JobEnded { job, .. } => Some(*job),
            Self::Mark(mark) => mark.job,
            Self::JobFacts(update) => Some(update.job),
            Self::JobOwner(owner) => Some(owner.job),
            Self::RequestRefused(refused) => Some(refused.job),
            Self::JobDetails(update) => Some(update.job),
            Self::SessionEnded { .. } => None,
        }
    }
}

/// The owner of a job, if it became known after the job was announced: from its processes, from the owner's
/// name, or from a late prolog. It adds to the known owner and never replaces it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOwner {
    pub job: JobHandle,
    /// The numeric id.
    pub uid: Option<u32>,
    pub name: Option<Identifier>,
}

/// A sampling request at submission that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRefused {
    /// The time of the refusal, in microseconds since the epoch.
    pub at_us: i64,
    pub job: JobHandle,
    /// The selector, or the original text of a request that cannot be parsed.
    pub request: Text,
    /// The requested period, if it can be parsed.
    pub period: Option<Period>,
    /// The user of the request, if known.
    pub by: Option<Identifier>,
    /// The reason of the refusal.
    pub reason: Text,
}

/// Facts that a scheduler reported when a job began or ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFactsUpdate {
    pub job: JobHandle,
    /// True if no later event concerns the job, because it had ended before.
    pub is_over: bool,
    pub facts: JobFacts,
}

/// Facts of a job that only its scheduler knows; each is optional. Later facts add to earlier ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFacts {
    /// The account or project that it is charged to.
    pub account: Option<Identifier>,
    /// The queue or partition that it was submitted to.
    pub queue: Option<Identifier>,
    /// Its nodes, in the scheduler's notation: `n[1-4]`.
    pub nodes: Option<Identifier>,
    /// The number of its cores on all nodes.
    pub cores: Option<u32>,
    /// The final state in the scheduler's terms: `COMPLETED`.
    pub state: Option<Identifier>,
    /// The exit status of its script.
    pub exit_code: Option<u32>,
    /// The signal that ended its script.
    pub exit_signal: Option<u32>,
    /// What the scheduler said and could not be read, with the names of the fields.
    pub unread: Option<Text>,
}

impl JobFacts {
    /// True if no fact is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Details that a scheduler reported when a job began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDetailsUpdate {
    pub job: JobHandle,
    pub details: JobDetails,
}

/// The name of a job, the resources that its owner requested and the command of a run, which only its
/// scheduler knows; each is optional. Later details add to earlier ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobDetails {
    /// The name that its owner gave it.
    pub name: Option<Text>,
    /// Its id as the scheduler prints it, where that differs from the job's id: `4009_1` for a task of an
    /// array, `4009+1` for a component of a heterogeneous job.
    pub display_id: Option<Identifier>,
    /// The time limit, in seconds.
    pub time_limit_s: Option<u64>,
    /// The memory that was requested on each node, in bytes.
    pub memory_bytes: Option<u64>,
    /// The number of GPUs on all nodes.
    pub gpus: Option<u32>,
    /// The number of times that the scheduler started it again.
    pub restarts: Option<u32>,
    /// The command, if `polymeter run` is its scheduler.
    pub run: Option<Box<Run>>,
    /// The scheduler: `slurm` or `oar`.
    pub scheduler: Option<Identifier>,
    /// The number of its cores on the reporting node, in the unit of the scheduler, which may count hardware
    /// threads.
    pub node_cores: Option<u32>,
    /// The number of its GPUs on the reporting node.
    pub node_gpus: Option<u32>,
}

impl JobDetails {
    /// True if no detail is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A named instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The time, in microseconds since the epoch.
    pub at_us: i64,
    /// The job; none for the node.
    pub job: Option<JobHandle>,
    /// The name of the instant or phase.
    pub name: Identifier,
    /// An instant, or the begin or end of a phase.
    pub kind: MarkKind,
    /// The user that marked it.
    pub by: Option<Identifier>,
}

/// The meaning of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MarkKind {
    Instant,
    /// A phase of this name began.
    Begin,
    /// The phase of this name ended.
    End,
}

impl MarkKind {
    /// Returns the name of the kind in requests and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Instant => "instant",
            Self::Begin => "begin",
            Self::End => "end",
        }
    }

    /// Returns the kind with this name.
    pub fn of(text: &str) -> Option<Self> {
        [Self::Instant, Self::Begin, Self::End].into_iter().find(|kind| kind.as_str() == text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanChange {
    /// The time at which it takes effect, in microseconds since the epoch.
    pub at_us: i64,
    /// The job of the metric; none for the node's own.
    pub job: Option<JobHandle>,
    /// The level, if the change is of all steps, or of all tasks, of the job; none for the job as a whole.
    pub level: Option<StepLevel>,
    pub metric: MetricName,
    /// The previous period; none if it was not sampled.
    pub old: Option<Period>,
    /// The new period; none if it is no longer sampled.
    pub new: Option<Period>,
    pub cause: Cause,
    /// The user that requested it, if any.
    pub by: Option<Identifier>,
    /// The time at which it ends, in microseconds since the epoch.
    pub until_us: Option<i64>,
}

/// The cause of a change of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The administrator's baseline.
    Baseline,
    /// The request at the job's registration.
    Registration,
    JobEnd,
    /// The configuration was reloaded.
    Reload,
    /// A user's lease.
    Lease,
    /// A user's lease ended: it expired, or was reset.
    LeaseEnd,
    /// The governor stretched leases because sampling exceeded its CPU budget, or restored them.
    Governor,
    /// The plan asks for a shorter period than the interval at which the hardware updates its values.
    RefreshInterval,
}

impl Cause {
    /// Returns the name of the cause in the database.
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
