//! Requests to the supervisor of a running agent, from within the process or over the control socket, and their results.

use std::path::PathBuf;

use polymeter_proto::control::UnavailableGroup;
use polymeter_proto::ledger::{JobFacts, MarkKind, Tally};
use polymeter_proto::name::{MetricName, Selector};
use polymeter_proto::period::Period;
use polymeter_proto::series::{Identifier, Labels};
use polymeter_proto::text::Text;
use tokio::sync::oneshot;

use crate::config::AgentConfig;
use crate::delivery::tap::WatchReceiver;
use crate::plan::{InForce, Layer};
use crate::principal::Principal;

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

/// A request for a lease: to sample at other periods for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The requester.
    pub principal: Principal,
    /// The job; none for the node's own metrics.
    pub job_id: Option<Identifier>,
    /// The metrics, each with its period.
    pub metrics: Vec<(Selector, Period)>,
    /// The time from which the duration counts, in microseconds since the epoch; none for now.
    pub since_us: Option<i64>,
    /// The duration, in microseconds; none for the longest that is allowed.
    pub duration_us: Option<u64>,
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

/// One metric of the catalogue, as a job or the node has it.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricView {
    /// Its name.
    pub name: String,
    /// Its availability.
    pub availability: Availability,
    /// The period at which it is sampled; none where it is not.
    pub period: Option<Period>,
}

/// The availability of a metric.
#[derive(Debug, Clone, PartialEq)]
pub enum Availability {
    /// It is read from a source.
    From {
        /// The source.
        source: String,
        /// The mean duration of a read, in nanoseconds.
        read_ns: f64,
    },
    /// Its source has no such line at the moment.
    NotNow,
    /// It is not available on this node, with the reason.
    No(String),
}

/// The effect of a granted lease.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseGrant {
    /// The effective period of each selected metric.
    pub metrics: Vec<(String, Period)>,
    /// Selected metrics that are unavailable, with the reasons.
    pub unavailable: Vec<(String, String)>,
    /// The predicted cost of all sampling of the job from now on.
    pub cost: Cost,
    /// The end of the lease, in microseconds since the epoch.
    pub until_us: i64,
}

/// The cost of sampling, predicted from the measured cost of a read of each source.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// Percent of one CPU.
    pub cpu_percent: f64,
    /// Samples per second.
    pub samples_per_s: f64,
    /// Bytes per second on the wire.
    pub bytes_per_s: f64,
}

/// The reason why a lease is not granted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LeaseError {
    /// Access is denied.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// None of the selectors matches a metric of the job or of the node.
    #[error("{}", nothing_chosen(selectors, *of_job))]
    NothingChosen {
        /// The selectors.
        selectors: Vec<String>,
        /// True for metrics of a job, false for the node's.
        of_job: bool,
    },
    /// None of the selected metrics can be sampled here: the metrics, at least one, with the reasons.
    #[error("none of these metrics is available here: {}", reasons_text(.0))]
    Unavailable(Vec<(String, String)>),
    /// The period is below the shortest that is allowed for a metric.
    #[error("period {requested} refused: the shortest period allowed for {metric} is {shortest}")]
    TooShort {
        /// The metric.
        metric: String,
        /// The period that was requested for it.
        requested: Period,
        /// The shortest period that would be granted for all selected metrics.
        shortest: Period,
    },
    /// The duration is above the longest that is allowed.
    #[error("duration refused: the longest lease allowed is {longest}")]
    TooLong {
        /// The longest duration that is allowed.
        longest: Period,
    },
    /// The lease had expired when the request arrived.
    #[error(
        "the lease had expired when it arrived; if the request was sent just now, compare the clocks of this node and the collector"
    )]
    Expired,
    /// The job has too many leases.
    #[error("the job has reached the limit of {0} leases; end some with `polymeter reset`")]
    TooMany(usize),
    /// The lease would cost more than is allowed.
    #[error("{}", over_budget(limit, *cost, *instead))]
    OverBudget {
        /// The budget: `samples_per_second`, `job_cpu_percent` or `node_cpu_percent`.
        limit: &'static str,
        /// The predicted cost.
        cost: Cost,
        /// The period that would be granted instead for all metrics that were requested at a shorter one.
        instead: Option<Period>,
    },
}

/// The text of [`LeaseError::NothingChosen`].
fn nothing_chosen(selectors: &[String], of_job: bool) -> String {
    let (owner, advice) = if of_job {
        ("a job", "for metrics of the node, use --node (administrators only)")
    } else {
        ("the node", "for metrics of a job, name the job")
    };
    format!("no metric of {owner} matches {}; {advice}", selectors.join(", "))
}

/// Lists unavailable metrics by reason.
fn reasons_text(missing: &[(String, String)]) -> String {
    let groups = UnavailableGroup::by_reason(missing);
    groups.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The text of [`LeaseError::OverBudget`].
fn over_budget(limit: &str, cost: Cost, instead: Option<Period>) -> String {
    let advice = match instead {
        Some(period) => format!("{period} would be granted"),
        None => "no period would be granted".to_owned(),
    };
    let Cost { cpu_percent, samples_per_s, .. } = cost;
    format!(
        "predicted cost above `{limit}`: {cpu_percent:.2} % of a CPU, {samples_per_s:.0} samples/s; {advice}"
    )
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

/// The state of the node and of all tracked jobs.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The node first, then the jobs.
    pub subjects: Vec<JobView>,
}

/// The state of one job, or of the node.
#[derive(Debug, Clone)]
pub struct JobView {
    /// The job's id; none for the node.
    pub job_id: Option<Identifier>,
    /// Its owner's numeric id.
    pub owner_uid: Option<u32>,
    /// Its owner's name.
    pub owner: Option<Identifier>,
    /// The time at which this node began to track it, in microseconds since the epoch.
    pub started_us: Option<i64>,
    /// Its cgroup directories.
    pub cgroups: Vec<PathBuf>,
    /// Its sources.
    pub sources: Vec<SourceView>,
    /// Metrics that are unavailable, with the reasons.
    pub unavailable: Vec<(String, String)>,
    /// The plan in force: each metric with its period and the cause.
    pub plan: Vec<(String, InForce)>,
    /// Sampling requests at submission that are not granted.
    pub refused: Vec<RefusedRequest>,
}

/// The state of one source.
#[derive(Debug, Clone)]
pub struct SourceView {
    /// Its name.
    pub name: String,
    /// The counts of its samples.
    pub tally: Tally,
    /// The number of reads.
    pub reads: u64,
    /// The sum of the durations of all reads, in nanoseconds.
    pub read_total_ns: u64,
    /// The longest duration of a read, in nanoseconds.
    pub read_max_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_metrics_by_reason() {
        let missing = |metric: String, reason: &str| (metric, reason.to_owned());
        let mut all: Vec<_> =
            (0..70).map(|number| missing(format!("perf.m{number}"), "no counter")).collect();
        all.push(missing("cpu.usage".to_owned(), "no cgroup"));
        assert_eq!(
            LeaseError::Unavailable(all).to_string(),
            "none of these metrics is available here: perf.m0, perf.m1, perf.m2 and 67 more: no counter; cpu.usage: no cgroup"
        );
    }

    #[test]
    fn reports_selectors_that_match_nothing() {
        let selectors = vec!["node.*".to_owned()];
        let of_job = LeaseError::NothingChosen { selectors: selectors.clone(), of_job: true }.to_string();
        assert!(of_job.contains("no metric of a job matches node.*"), "{of_job}");
        let of_node = LeaseError::NothingChosen { selectors, of_job: false }.to_string();
        assert!(of_node.contains("no metric of the node matches node.*"), "{of_node}");
    }
}
