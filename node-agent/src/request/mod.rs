//! Requests to the supervisor of a running agent, from within the process or over the control socket, and their results.

mod lease;
mod view;

use std::path::PathBuf;

use polymeter_proto::ledger::{JobFacts, MarkKind};
use polymeter_proto::name::{MetricName, Selector};
use polymeter_proto::period::Period;
use polymeter_proto::series::{Identifier, Labels};
use polymeter_proto::text::Text;
use tokio::sync::oneshot;

use crate::config::AgentConfig;
use crate::delivery::tap::WatchReceiver;
use crate::plan::Layer;
use crate::principal::Principal;

pub use lease::{Cost, LeaseError, LeaseGrant, LeaseRequest, by_reason, named, reason_text};
pub use view::{Availability, JobView, MetricView, SourceView, View};

/// A job to be tracked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSpec {
    /// The scheduler's id of the job.
    pub job_id: Identifier,
    /// The cluster whose scheduler runs the job.
    pub cluster: Option<Identifier>,
    /// The owner's numeric id.
    pub owner_uid: Option<u32>,
    /// The owner's name.
    pub owner: Option<Identifier>,
    /// Its cgroup directories, in any hierarchies.
    pub cgroups: Vec<PathBuf>,
    /// The process whose descendants are the job, if it has no cgroups.
    pub process: Option<u32>,
    /// Rules for metrics that are sampled beyond the baseline.
    pub sampling: Layer,
}

/// A job that the scheduler starts on this node. It is tracked as soon as its cgroups exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartSpec {
    /// The scheduler's id of the job.
    pub job_id: Identifier,
    /// Another id, which its cgroups carry.
    pub alias: Option<Identifier>,
    /// The cluster whose scheduler runs the job.
    pub cluster: Option<Identifier>,
    /// The owner's numeric id.
    pub owner_uid: Option<u32>,
    /// The owner's name.
    pub owner: Option<Identifier>,
    /// The owner's sampling request at submission.
    pub sampling: Option<SamplingRequest>,
    /// A sampling request at submission that cannot be parsed.
    pub refused: Option<RefusedRequest>,
    /// Further facts from the scheduler.
    pub facts: JobFacts,
}

/// A sampling request of a job's owner at submission. It becomes a lease of the owner, within the limits of leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplingRequest {
    /// The metrics, each with its period.
    pub metrics: Vec<(Selector, Period)>,
    /// The duration, in microseconds; none for the longest that is allowed.
    pub duration_us: Option<u64>,
}

/// A sampling request at submission that is not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRequest {
    /// The selector, or the request as it was written where it cannot be parsed.
    pub request: Text,
    /// The requested period, where it can be parsed.
    pub period: Option<Period>,
    /// The reason of the refusal.
    pub reason: Text,
}

/// The reason why a job is not tracked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// A job with this id is tracked already.
    #[error("a job with this id is already tracked; unregister it first")]
    Known,
    /// Too many jobs are tracked.
    #[error(
        "limit of tracked jobs reached, on this node or for this user; unregister some, or raise LimitNOFILE of the agent"
    )]
    TooMany,
    /// A directory that was named does not exist.
    #[error("no such cgroup directory: {}", .0.display())]
    NoSuchCgroup(PathBuf),
    /// None of the directories lies in a mounted cgroup hierarchy, and no process was named.
    #[error("missing target: name at least one cgroup directory of the job, or its process")]
    NoCgroup,
}

/// An instant, or the begin or end of a phase, to be put into the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkSpec {
    /// The requester.
    pub principal: Principal,
    /// The job; none for the node.
    pub job_id: Option<Identifier>,
    /// The name of the instant or phase.
    pub name: Identifier,
    /// An instant, or the begin or end of a phase.
    pub kind: MarkKind,
}

/// A value of a user's own metric, to be put into the data.
#[derive(Debug, Clone, PartialEq)]
pub struct PushSpec {
    /// The requester.
    pub principal: Principal,
    /// The job; none for the node.
    pub job_id: Option<Identifier>,
    /// The metric, whose name begins with `user.`.
    pub metric: MetricName,
    /// The value.
    pub value: f64,
    /// The labels of the series, its unit among them.
    pub labels: Labels,
}

/// The reason why access to a job or the node is denied to a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// No such job is tracked.
    #[error("unknown job, or not yours")]
    Unknown,
    /// The principal may not see the job. The answer must not differ from that for an unknown job: otherwise it reveals
    /// ids.
    #[error("unknown job, or not yours")]
    Hidden,
    /// The principal may see the job, or asks for the node, but may not do this.
    #[error("permission denied: only the job's owner and administrators may do this")]
    Forbidden,
}

/// The reason why a mark or a value is not put into the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AnnotateError {
    /// Access is denied.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The job has as many user-supplied series as are allowed.
    #[error("the job has reached the limit of {0} user-supplied series")]
    TooManySeries(usize),
    /// Too many arrived recently.
    #[error("rate limit of {per_second} marks and values per second reached for this job; send fewer")]
    TooFast {
        /// The allowed rate in the long run, per second.
        per_second: u32,
    },
}

/// A request to the supervisor, with the channel of its answer.
#[derive(Debug)]
pub enum SupervisorRequest {
    /// Returns the state of the node and of all tracked jobs.
    View(oneshot::Sender<View>),
    /// Tracks a job; the answer holds the unavailable metrics, with the reasons.
    Register(Box<JobSpec>, RegistrationReply),
    /// Takes the last sample of a registered job and stops tracking it; the answer is false where there is no such job.
    Unregister(Identifier, oneshot::Sender<bool>),
    /// Announces a job; the answer holds the result of its owner's sampling request, where its cgroups exist already.
    Start(Box<StartSpec>, AnnouncementReply),
    /// Records the end of a job, with the scheduler's facts.
    End(Identifier, Box<JobFacts>, oneshot::Sender<()>),
    /// Grants a lease.
    Set(Box<LeaseRequest>, LeaseReply),
    /// Ends the principal's leases on a job, or all leases for an administrator; the answer is their number.
    Reset(Principal, Option<Identifier>, ResetReply),
    /// Puts a named instant into the data.
    Mark(Box<MarkSpec>, oneshot::Sender<Result<(), AnnotateError>>),
    /// Puts a user-supplied value into the data.
    Push(Box<PushSpec>, oneshot::Sender<Result<(), AnnotateError>>),
    /// Returns the catalogue, as a job or the node has it.
    Metrics(Principal, Option<Identifier>, MetricsReply),
    /// Returns the state of one job or the node.
    ViewOne(Principal, Option<Identifier>, oneshot::Sender<Result<JobView, AccessError>>),
    /// Streams the samples of a job or the node from now on: metrics that match a selector, or all without any.
    Watch(Principal, Option<Identifier>, Vec<Selector>, oneshot::Sender<Result<WatchReceiver, AccessError>>),
    /// Sends the samples taken so far.
    Flush(oneshot::Sender<()>),
    /// Applies another configuration.
    Reload(Box<AgentConfig>),
    /// Ends the supervisor.
    Stop,
}

/// The channel of one answer.
pub type Reply<T> = oneshot::Sender<T>;

/// The channel of the answer to a registration: the unavailable metrics, with the reasons.
pub type RegistrationReply = Reply<Result<Vec<(String, String)>, RegisterError>>;

/// The channel of the answer to the announcement of a job.
pub type AnnouncementReply = Reply<Result<Option<Result<LeaseGrant, LeaseError>>, RegisterError>>;

/// The channel of the answer to a lease request.
pub type LeaseReply = Reply<Result<LeaseGrant, LeaseError>>;

/// The channel of the answer to a request to end leases: their number.
pub type ResetReply = Reply<Result<usize, AccessError>>;

/// The channel of the answer to a request for metrics.
pub type MetricsReply = Reply<Result<Vec<MetricView>, AccessError>>;

/// Creates a request with the channel of its answer.
pub(crate) fn ask<T>(
    make: impl FnOnce(oneshot::Sender<T>) -> SupervisorRequest,
) -> (SupervisorRequest, oneshot::Receiver<T>) {
    let (sender, receiver) = oneshot::channel();
    (make(sender), receiver)
}
