//! What can be asked of a running agent, from within the process or over the control socket.

use std::fmt;
use std::path::PathBuf;

use polymeter_proto::ledger::Tally;
use polymeter_proto::series::Identifier;
use tokio::sync::oneshot;

use crate::config::Config;
use crate::plan::Layer;

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

/// What is asked.
#[derive(Debug)]
pub enum Request {
    /// What is followed, and how it goes.
    View(oneshot::Sender<View>),
    /// Follow a job; the answer holds the metrics that cannot be had, with the reasons.
    Register(Box<JobSpec>, oneshot::Sender<Result<Vec<(String, String)>, RegisterError>>),
    /// Take the last reading of a registered job and let it go; false when there is none.
    Unregister(Identifier, oneshot::Sender<bool>),
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
    /// Its sources.
    pub sources: Vec<SourceView>,
    /// Metrics that cannot be had, with the reasons.
    pub unavailable: Vec<(String, String)>,
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
