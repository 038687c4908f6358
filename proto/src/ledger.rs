//! What became of every sample that was due, and the events that explain the data.

use serde::{Deserialize, Serialize};

use crate::name::MetricName;
use crate::period::Period;
use crate::series::{Identifier, JobHandle};
use crate::text::Text;

/// Counts of samples of one source and job since the session began. Later entries replace earlier ones, so that a lost
/// or repeated entry does no harm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Whose samples had a deadline.
    pub due: u64,
    /// Which were read, late ones included.
    pub taken: u64,
    /// Which were read later than a tenth of their period after the deadline.
    pub late: u64,
    /// Which were never read, because the next deadline had passed already.
    pub missed: u64,
    /// Which the source did not have when it was read: the file was gone, or had no such line.
    pub absent: u64,
    /// Which were read, and found no room on the way to the outbox.
    pub dropped: u64,
}

impl Tally {
    /// Adds the counts of another source.
    pub const fn add(&mut self, other: &Self) {
        self.due += other.due;
        self.taken += other.taken;
        self.late += other.late;
        self.missed += other.missed;
        self.absent += other.absent;
        self.dropped += other.dropped;
    }

    /// What has been counted since an earlier tally of the same source.
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
    /// Whose source it is; none for the node's own.
    pub job: Option<JobHandle>,
    /// The source: a file's name such as `memory.stat`, or `perf.software`.
    pub source: Identifier,
    /// The counts.
    pub tally: Tally,
}

/// Something that happened, and that whoever reads the data must know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// From `at_us` on a metric is sampled at another period.
    PlanChange(PlanChange),
    /// A job's last sample has been taken.
    JobEnded {
        /// Which.
        job: JobHandle,
        /// When, in microseconds since the epoch.
        at_us: i64,
    },
    /// Somebody marked an instant, or the begin or end of a phase.
    Mark(Mark),
    /// The scheduler told something of a job.
    JobTold(JobTold),
    /// The owner of a job became known after the job was announced.
    JobOwner(JobOwner),
    /// What was requested when a job was submitted is not granted.
    RequestRefused(RequestRefused),
    /// The agent stopped in order: nothing was sampled and not sent. A session without it ended in an unknown state.
    SessionEnded {
        /// When, in microseconds since the epoch.
        at_us: i64,
    },
}

impl Event {
    /// The job that it is about; none for the node.
    pub const fn job(&self) -> Option<JobHandle> {
        match self {
            Self::PlanChange(change) => change.job,
            Self::JobEnded { job, .. } => Some(*job),
            Self::Mark(mark) => mark.job,
            Self::JobTold(told) => Some(told.job),
            Self::JobOwner(owner) => Some(owner.job),
            Self::RequestRefused(refused) => Some(refused.job),
            Self::SessionEnded { .. } => None,
        }
    }
}

/// The owner of a job, learnt after the job was announced: from its processes, from its owner's name, or from a prolog that
/// came late. It adds to what is known and never replaces it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOwner {
    /// The job.
    pub job: JobHandle,
    /// The numeric id.
    pub uid: Option<u32>,
    /// The name.
    pub name: Option<Identifier>,
}

/// A request at submission that is not granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRefused {
    /// When it was refused, in microseconds since the epoch.
    pub at_us: i64,
    /// The job.
    pub job: JobHandle,
    /// The selector, or the request as it was written where it cannot be read.
    pub request: Text,
    /// The period that was asked for, where it can be read.
    pub period: Option<Period>,
    /// The user whose request it is, where that is known.
    pub by: Option<Identifier>,
    /// Why it is refused.
    pub reason: Text,
}

/// What a scheduler told of a job, when it began there or ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTold {
    /// Which.
    pub job: JobHandle,
    /// Whether nothing more will be told of it: it has ended before this.
    pub is_over: bool,
    /// What was told.
    pub facts: JobFacts,
}

/// What only a scheduler knows of a job; each where it is known. What is told later adds to what was told before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFacts {
    /// The account or project that it is charged to.
    pub account: Option<Identifier>,
    /// The queue or partition that it was submitted to.
    pub queue: Option<Identifier>,
    /// Its nodes, as the scheduler writes them: `n[1-4]`.
    pub nodes: Option<Identifier>,
    /// How many cores it has on all of its nodes.
    pub cores: Option<u32>,
    /// How it ended, in the scheduler's word: `COMPLETED`.
    pub state: Option<Identifier>,
    /// The exit status of its script.
    pub exit_code: Option<u32>,
    /// The signal that ended its script.
    pub exit_signal: Option<u32>,
}

impl JobFacts {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// An instant that somebody named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// When, in microseconds since the epoch.
    pub at_us: i64,
    /// Whose job; none for the node.
    pub job: Option<JobHandle>,
    /// What is marked.
    pub name: Identifier,
    /// Whether it is an instant of its own, or an end of a phase.
    pub kind: MarkKind,
    /// Who marked it.
    pub by: Option<Identifier>,
}

/// What a mark stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MarkKind {
    /// Something happened.
    Instant,
    /// A phase of this name began.
    Begin,
    /// The phase of this name ended.
    End,
}

impl MarkKind {
    /// The kind as it stands in requests and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Instant => "instant",
            Self::Begin => "begin",
            Self::End => "end",
        }
    }

    /// The kind that is called so.
    pub fn of(text: &str) -> Option<Self> {
        [Self::Instant, Self::Begin, Self::End].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A change of what is sampled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanChange {
    /// When it takes effect, in microseconds since the epoch.
    pub at_us: i64,
    /// The job whose metric it is; none for the node's own.
    pub job: Option<JobHandle>,
    /// The metric.
    pub metric: MetricName,
    /// The period until then; none where it was not sampled.
    pub old: Option<Period>,
    /// The period from then on; none where it is not sampled any more.
    pub new: Option<Period>,
    /// Why.
    pub cause: Cause,
    /// Who wanted it, where a person did.
    pub by: Option<Identifier>,
    /// When it ends by itself, in microseconds since the epoch.
    pub until_us: Option<i64>,
}

/// Why the plan changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The administrator's baseline.
    Baseline,
    /// What the job asked for when it was registered.
    Registration,
    /// The job has ended.
    JobEnd,
    /// The configuration was read again.
    Reload,
    /// A user's temporary change.
    Lease,
    /// A user's temporary change ended: by its time, or because she took it back.
    LeaseEnd,
    /// Measuring took more of the CPU than it may: leases were stretched, or are so no more.
    Governor,
}

impl Cause {
    /// The cause as it stands in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Registration => "registration",
            Self::JobEnd => "job_end",
            Self::Reload => "reload",
            Self::Lease => "lease",
            Self::LeaseEnd => "lease_end",
            Self::Governor => "governor",
        }
    }
}
