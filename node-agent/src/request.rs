//! What can be asked of a running agent, from within the process or over the control socket.

use std::fmt;
use std::path::PathBuf;

use polymeter_proto::ledger::{JobFacts, MarkKind, Tally};
use polymeter_proto::name::{MetricName, Selector};
use polymeter_proto::period::Period;
use polymeter_proto::series::{Identifier, Labels};
use tokio::sync::oneshot;

use crate::asker::Asker;
use crate::config::Config;
use crate::delivery::tap::Watching;
use crate::plan::{InForce, Layer};

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
            Self::TooMany => f.write_str("too many jobs are followed on this node"),
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
    pub asker: Asker,
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
    pub asker: Asker,
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
    pub asker: Asker,
    /// The job; none for the node.
    pub job_id: Option<Identifier>,
    /// The metric, whose name begins with `user.`.
    pub metric: MetricName,
    /// The value.
    pub value: f64,
    /// What tells the series from others of the metric; its unit among them.
    pub labels: Labels,
}

/// Why a mark or a value does not go into the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnnotateError {
    /// No such job is followed.
    UnknownJob,
    /// It is somebody else's job, or the node.
    Forbidden,
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
            Self::UnknownJob => SetError::UnknownJob.fmt(f),
            Self::Forbidden => {
                f.write_str("only its owner and administrators may put something into its data")
            }
            Self::TooManySeries(limit) => write!(f, "the job has {limit} series of its own already"),
            Self::TooFast { per_second } => {
                write!(f, "a job may have {per_second} of these per second; give fewer, or a summary")
            }
        }
    }
}

impl std::error::Error for AnnotateError {}

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
    /// No such job is followed.
    UnknownJob,
    /// It is somebody else's job, or the node's.
    Forbidden,
    /// Nothing that was chosen can be sampled here.
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
            Self::UnknownJob => {
                f.write_str("no such job is followed on this node; `polymeter jobs` lists them")
            }
            Self::Forbidden => f.write_str("only its owner and administrators may change how it is sampled"),
            Self::Unavailable(missing) => {
                let reasons: Vec<_> =
                    by_reason(missing).iter().map(|(metrics, reason)| format!("{metrics}: {reason}")).collect();
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

impl std::error::Error for SetError {}

/// Metrics that cannot be had, those with the same reason together: at most three names of each, and how many more there
/// are.
pub fn by_reason(missing: &[(String, String)]) -> Vec<(String, &str)> {
    const NAMED: usize = 3;
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (metric, reason) in missing {
        match groups.iter_mut().find(|(known, _)| known == reason) {
            Some((_, metrics)) => metrics.push(metric),
            None => groups.push((reason, vec![metric])),
        }
    }
    let named = |metrics: Vec<&str>| {
        let names = metrics.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        match metrics.len().saturating_sub(NAMED) {
            0 => names,
            more => format!("{names} and {more} more"),
        }
    };
    groups.into_iter().map(|(reason, metrics)| (named(metrics), reason)).collect()
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
    Reset(Asker, Option<Identifier>, oneshot::Sender<Result<usize, SetError>>),
    /// Put a named instant into the data.
    Mark(Box<MarkSpec>, oneshot::Sender<Result<(), AnnotateError>>),
    /// Put a user's own value into the data.
    Push(Box<PushSpec>, oneshot::Sender<Result<(), AnnotateError>>),
    /// The catalogue, as a job or the node has it; none where no such job is followed.
    Metrics(Option<Identifier>, oneshot::Sender<Option<Vec<MetricView>>>),
    /// How one job or the node goes; none where no such job is followed.
    Look(Option<Identifier>, oneshot::Sender<Option<JobView>>),
    /// Show what is sampled of a job or the node from now on: what one of the selectors chooses, or all without any.
    /// None where no such job is followed.
    Watch(Option<Identifier>, Vec<Selector>, oneshot::Sender<Option<Watching>>),
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
    fn an_equal_reason_is_told_once() {
        let missing = |metric: &str, reason: &str| (metric.to_owned(), reason.to_owned());
        let mut all: Vec<_> =
            (0..70).map(|number| missing(&format!("perf.e{number}"), "no such event")).collect();
        all.push(missing("io.read.bytes", "no such file"));
        assert_eq!(
            SetError::Unavailable(all).to_string(),
            "nothing of it can be sampled here: perf.e0, perf.e1, perf.e2 and 67 more: no such event; io.read.bytes: no such file"
        );
    }
}
