//! What can be asked of a running agent, from within the process or over the control socket.

use std::fmt;
use std::path::PathBuf;

use polymeter_proto::ledger::{JobFacts, MarkKind, Tally};
use polymeter_proto::name::{MetricName, Selector};
use polymeter_proto::period::Period;
use polymeter_proto::series::{Identifier, Labels};
use polymeter_proto::text::Text;
use tokio::sync::oneshot;

use crate::config::Config;
use crate::delivery::tap::Watching;
use crate::plan::{InForce, Layer};
use crate::principal::Principal;

/// A job to be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSpec {
    /// The scheduler's name for it.
    pub job_id: Identifier,
    /// The cluster whose scheduler it is.
    pub cluster: Option<Identifier>,
    /// The owner's numeric id.
    pub owner_uid: Option<u32>,
    /// The owner's name.
    pub owner: Option<Identifier>,
    /// Its cgroup directories, in any hierarchies.
    pub cgroups: Vec<PathBuf>,
    /// Without cgroups: the process whose descendants are the job.
    pub process: Option<u32>,
    /// What it wants sampled beyond the baseline.
    pub wishes: Layer,
}

/// A job of which the scheduler says that it starts on this node. It is followed when its cgroups are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartSpec {
    /// The scheduler's name for it.
    pub job_id: Identifier,
    /// Another name, which its cgroups carry.
    pub alias: Option<Identifier>,
    /// The cluster whose scheduler it is.
    pub cluster: Option<Identifier>,
    /// The owner's numeric id.
    pub owner_uid: Option<u32>,
    /// The owner's name.
    pub owner: Option<Identifier>,
    /// What the owner wished when she submitted it.
    pub wishes: Option<Wishes>,
    /// A request of the owner's at submission that cannot be read.
    pub refused: Option<RefusedRequest>,
    /// What else the scheduler told.
    pub facts: JobFacts,
}

/// What a job's owner wished when she submitted it: it becomes a lease of hers, within the limits of leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wishes {
    /// Which metrics, at which period.
    pub wishes: Vec<(Selector, Period)>,
    /// For how long, in microseconds; none for as long as is allowed.
    pub duration_us: Option<u64>,
}

/// A request at submission that is not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRequest {
    /// The selector, or the request as it was written where it cannot be read.
    pub request: Text,
    /// The period that was asked for, where it can be read.
    pub period: Option<Period>,
    /// Why it is refused.
    pub reason: Text,
}

/// Why a job is not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegisterError {
    /// A job with this id is followed already.
    Known,
    /// Too many jobs are followed.
    TooMany,
    /// A directory that was named does not exist.
    NoSuchCgroup(PathBuf),
    /// None of the directories lies in a mounted cgroup hierarchy, and no process was named.
    NoCgroup,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known => f.write_str("a job with this id is followed already; unregister it first"),
            Self::TooMany => f.write_str("too many jobs are followed on this node, or too many of this user; unregister some, or raise LimitNOFILE of the agent"),
            Self::NoSuchCgroup(path) => write!(f, "there is no cgroup {}", path.display()),
            Self::NoCgroup => f.write_str("name at least one cgroup directory of the job, or its process"),
        }
    }
}

impl std::error::Error for RegisterError {}

/// A wish to sample at another period for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetSpec {
    /// Who wishes it.
    pub principal: Principal,
    /// The job; none for the node's own metrics.
    pub job_id: Option<Identifier>,
    /// Which metrics, at which period.
    pub wishes: Vec<(Selector, Period)>,
    /// From when on its time counts, in microseconds since the epoch; none for now.
    pub since_us: Option<i64>,
    /// For how long, in microseconds; none for as long as is allowed.
    pub duration_us: Option<u64>,
}

/// An instant to be marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkSpec {
    /// Who marks it.
    pub principal: Principal,
    /// The job; none for the node.
    pub job_id: Option<Identifier>,
    /// What is marked.
    pub name: Identifier,
    /// Whether it is an instant of its own, or an end of a phase.
    pub kind: MarkKind,
}

/// A value of a user's own metric.
#[derive(Debug, Clone, PartialEq)]
pub struct PushSpec {
    /// Who gives it.
    pub principal: Principal,
    /// The job; none for the node.
    pub job_id: Option<Identifier>,
    /// The metric, whose name begins with `user.`.
    pub metric: MetricName,
    /// The value.
    pub value: f64,
    /// What tells the series from others of the metric; its unit among them.
    pub labels: Labels,
}

/// Why a request about a job or the node is denied to a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessError {
    /// No such job is tracked.
    Unknown,
    /// The principal may not see the job. The answer must not differ from that for an unknown job: else it reveals ids.
    Hidden,
    /// The principal may see the job, or asks for the node, and may not do that with it.
    Forbidden,
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown | Self::Hidden => "unknown job, or not yours",
            Self::Forbidden => "only its owner and administrators may do that",
        })
    }
}

impl std::error::Error for AccessError {}

/// Why a mark or a value does not go into the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnnotateError {
    /// Access is denied.
    Access(AccessError),
    /// The job has as many series of its user's own as it may have.
    TooManySeries(usize),
    /// More came of late than is allowed.
    TooFast {
        /// How many per second are allowed in the long run.
        per_second: u32,
    },
}

impl fmt::Display for AnnotateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access(error) => error.fmt(f),
            Self::TooManySeries(limit) => write!(f, "the job has {limit} series of its own already"),
            Self::TooFast { per_second } => {
                write!(f, "a job may have {per_second} of these per second; give fewer, or a summary")
            }
        }
    }
}

impl std::error::Error for AnnotateError {}

impl From<AccessError> for AnnotateError {
    fn from(error: AccessError) -> Self {
        Self::Access(error)
    }
}

/// One metric of the catalogue, as one subject has it.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricView {
    /// Its name.
    pub name: String,
    /// Whether it can be had.
    pub availability: Availability,
    /// The period at which it is sampled, where it is.
    pub period: Option<Period>,
}

/// Whether a metric can be had.
#[derive(Debug, Clone, PartialEq)]
pub enum Availability {
    /// It is read from this source, and one read takes so many nanoseconds.
    From {
        /// The source.
        source: String,
        /// The mean time of a read, in nanoseconds.
        read_ns: f64,
    },
    /// Its source has no line of it at the moment.
    NotNow,
    /// Not here, and why.
    No(String),
}

/// What a lease gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Granted {
    /// The effective period of each metric that was chosen.
    pub metrics: Vec<(String, Period)>,
    /// Chosen metrics that cannot be had, with the reasons.
    pub unavailable: Vec<(String, String)>,
    /// What all sampling of the job costs from now on.
    pub cost: Cost,
    /// When the lease ends, in microseconds since the epoch.
    pub until_us: i64,
}

/// What sampling costs, predicted from the measured cost of a read of each source.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// Percent of one CPU.
    pub cpu_percent: f64,
    /// Samples per second.
    pub samples_per_s: f64,
    /// Bytes per second on the wire.
    pub bytes_per_s: f64,
}

/// Why a lease is not granted.
#[derive(Debug, Clone, PartialEq)]
pub enum SetError {
    /// Access is denied.
    Access(AccessError),
    /// None of the selectors chooses a metric that a job, or else the node, has.
    NothingChosen {
        /// The selectors.
        selectors: Vec<String>,
        /// Whether they were to choose metrics of a job.
        of_job: bool,
    },
    /// Nothing that was chosen can be sampled here: the metrics, at least one, with the reasons.
    Unavailable(Vec<(String, String)>),
    /// The period is below the shortest that is allowed for a metric.
    TooShort {
        /// The metric.
        metric: String,
        /// The shortest period that would be granted for all that was chosen.
        shortest: Period,
    },
    /// The duration is above the longest that is allowed.
    TooLong(Period),
    /// Its time is over already.
    Ended,
    /// The job has too many leases.
    TooMany(usize),
    /// It would cost more than is allowed.
    OverBudget {
        /// Which budget: `samples_per_second`, `job_cpu_percent` or `node_cpu_percent`.
        limit: &'static str,
        /// What it would cost.
        cost: Cost,
        /// What would be granted: this period for all that was wished at a shorter one.
        instead: Option<Period>,
    },
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access(error) => error.fmt(f),
            Self::NothingChosen { selectors, of_job } => {
                let (whose, advice) = if *of_job {
                    ("a job", "`--node` is for metrics of the node, which only administrators set")
                } else {
                    ("the node", "name a job for metrics of jobs")
                };
                write!(f, "no metric of {whose} matches {}; {advice}", selectors.join(", "))
            }
            Self::Unavailable(missing) => {
                let reasons: Vec<_> = by_reason(missing).into_iter().map(reason_text).collect();
                write!(f, "nothing of it can be sampled here: {}", reasons.join("; "))
            }
            Self::TooShort { metric, shortest } => {
                write!(f, "the shortest period that users may ask for of {metric} is {shortest}")
            }
            Self::TooLong(longest) => write!(f, "the longest time that users may ask for is {longest}"),
            Self::Ended => f.write_str(
                "it came when its time was over; if it was sent just now, the clocks of this node and the collector differ",
            ),
            Self::TooMany(limit) => write!(f, "the job has {limit} leases already; reset some first"),
            Self::OverBudget { limit, cost, instead } => {
                write!(
                    f,
                    "it would cost {:.2} % of a CPU and {:.0} samples/s, more than `{limit}` allows",
                    cost.cpu_percent, cost.samples_per_s
                )?;
                match instead {
                    Some(period) => write!(f, "; {period} would be granted"),
                    None => f.write_str("; no period would be granted"),
                }
            }
        }
    }
}

/// Metrics that cannot be had, by the reason, in the order in which the reasons come first.
pub fn by_reason(missing: &[(String, String)]) -> Vec<(&str, Vec<&str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (metric, reason) in missing {
        match groups.iter_mut().find(|(known, _)| known == reason) {
            Some((_, metrics)) => metrics.push(metric),
            None => groups.push((reason, vec![metric])),
        }
    }
    groups
}

/// Metrics that one reason names; of more it says how many.
const NAMED: usize = 3;

/// One such group as people read it.
pub fn reason_text((reason, metrics): (&str, Vec<&str>)) -> String {
    format!("{}: {reason}", named(&metrics))
}

/// The first metrics of a group, and how many more there are.
pub fn named(metrics: &[&str]) -> String {
    let names = metrics.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match metrics.len().saturating_sub(NAMED) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

impl std::error::Error for SetError {}

impl From<AccessError> for SetError {
    fn from(error: AccessError) -> Self {
        Self::Access(error)
    }
}

/// What is asked.
#[derive(Debug)]
pub enum Request {
    /// What is followed, and how it goes.
    View(oneshot::Sender<View>),
    /// Follow a job; the answer holds the metrics that cannot be had, with the reasons.
    Register(Box<JobSpec>, oneshot::Sender<Result<Vec<(String, String)>, RegisterError>>),
    /// Take the last reading of a registered job and let it go; false when there is none.
    Unregister(Identifier, oneshot::Sender<bool>),
    /// A job starts; the answer holds what its owner's wishes have come to, where its cgroups are there already.
    Start(Box<StartSpec>, oneshot::Sender<Result<Option<Result<Granted, SetError>>, RegisterError>>),
    /// A job has ended, with what the scheduler told of that.
    End(Identifier, Box<JobFacts>, oneshot::Sender<()>),
    /// Sample at another period for a while.
    Set(Box<SetSpec>, oneshot::Sender<Result<Granted, SetError>>),
    /// End all leases of this person on a job, or for an administrator all leases; the answer says how many.
    Reset(Principal, Option<Identifier>, oneshot::Sender<Result<usize, AccessError>>),
    /// Put a named instant into the data.
    Mark(Box<MarkSpec>, oneshot::Sender<Result<(), AnnotateError>>),
    /// Put a user's own value into the data.
    Push(Box<PushSpec>, oneshot::Sender<Result<(), AnnotateError>>),
    /// The catalogue, as a job or the node has it.
    Metrics(Principal, Option<Identifier>, oneshot::Sender<Result<Vec<MetricView>, AccessError>>),
    /// The state of one job or the node.
    Look(Principal, Option<Identifier>, oneshot::Sender<Result<JobView, AccessError>>),
    /// Show what is sampled of a job or the node from now on: what one of the selectors chooses, or all without any.
    Watch(Principal, Option<Identifier>, Vec<Selector>, oneshot::Sender<Result<Watching, AccessError>>),
    /// Send what has been sampled so far.
    Flush(oneshot::Sender<()>),
    /// Put another configuration in force.
    Reload(Box<Config>),
    /// End.
    Stop,
}

/// Everything that is followed.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The node first, then the jobs.
    pub subjects: Vec<JobView>,
}

/// One job, or the node.
#[derive(Debug, Clone)]
pub struct JobView {
    /// The job's id; none for the node.
    pub job_id: Option<Identifier>,
    /// Its owner's numeric id.
    pub owner_uid: Option<u32>,
    /// Its owner's name.
    pub owner: Option<Identifier>,
    /// When this node began to follow it, in microseconds since the epoch.
    pub started_us: Option<i64>,
    /// Its cgroup directories.
    pub cgroups: Vec<PathBuf>,
    /// Its sources.
    pub sources: Vec<SourceView>,
    /// Metrics that cannot be had, with the reasons.
    pub unavailable: Vec<(String, String)>,
    /// What is sampled, at which period, and because of what.
    pub plan: Vec<(String, InForce)>,
    /// Requests at submission that are not granted.
    pub refused: Vec<RefusedRequest>,
}

/// One source.
#[derive(Debug, Clone)]
pub struct SourceView {
    /// What it is called.
    pub name: String,
    /// What became of its samples.
    pub tally: Tally,
    /// How often it was read.
    pub reads: u64,
    /// How long the reads took together, in nanoseconds.
    pub read_total_ns: u64,
    /// How long the slowest took, in nanoseconds.
    pub read_most_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_many_metrics_share_is_told_once() {
        let missing = |metric: String, reason: &str| (metric, reason.to_owned());
        let mut all: Vec<_> =
            (0..70).map(|number| missing(format!("perf.m{number}"), "no counter")).collect();
        all.push(missing("cpu.usage".to_owned(), "no cgroup"));
        assert_eq!(
            SetError::Unavailable(all).to_string(),
            "nothing of it can be sampled here: perf.m0, perf.m1, perf.m2 and 67 more: no counter; cpu.usage: no cgroup"
        );
    }

    #[test]
    fn what_chooses_nothing_says_so() {
        let selectors = vec!["node.*".to_owned()];
        let of_job = SetError::NothingChosen { selectors: selectors.clone(), of_job: true }.to_string();
        assert!(of_job.contains("no metric of a job matches node.*"), "{of_job}");
        let of_node = SetError::NothingChosen { selectors, of_job: false }.to_string();
        assert!(of_node.contains("no metric of the node matches node.*"), "{of_node}");
    }
}
