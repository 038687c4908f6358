//! Requests to track jobs: registrations and the scheduler's announcements.

use std::path::PathBuf;
use std::sync::Arc;

use polymeter_proto::ledger::{JobDetails, JobFacts};
use polymeter_proto::name::Selector;
use polymeter_proto::period::Sampling;
use polymeter_proto::series::Identifier;
use polymeter_proto::step_level::StepLevel;
use polymeter_proto::text::Text;
use polymeter_proto::trigger::Rule;

use crate::plan::Layer;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSpec {
    pub job_id: Identifier,
    pub cluster: Option<Identifier>,
    pub owner_uid: Option<u32>,
    pub owner: Option<Identifier>,
    /// Directories in any hierarchies.
    pub cgroups: Vec<PathBuf>,
    /// Process whose descendants are the job, if it has no cgroups.
    pub process: Option<u32>,
    /// Rules beyond the baseline.
    pub sampling: Layer,
    pub facts: JobFacts,
    pub details: JobDetails,
}

/// A job that the scheduler starts on this node. It is tracked as soon as its cgroups exist.
#[derive(Debug, Clone, PartialEq)]
pub struct StartSpec {
    pub job_id: Identifier,
    /// Another id, which its cgroups carry.
    pub alias: Option<Identifier>,
    pub cluster: Option<Identifier>,
    pub owner_uid: Option<u32>,
    pub owner: Option<Identifier>,
    /// Requests at submission, at most one for each level and for the ring.
    pub sampling: Vec<SamplingRequest>,
    /// Request to release the hardware's counters.
    pub pmu_release: Option<SubmittedRelease>,
    /// Triggers that its owner requests.
    pub triggers: Vec<Rule>,
    pub refused: Option<RefusedRequest>,
    pub facts: JobFacts,
    pub details: JobDetails,
    /// Its GPUs on this node: numbers or UUIDs, `0,1`.
    pub gpu_devices: Option<Arc<str>>,
}

/// A sampling request of a job's owner at submission. It becomes a lease of the owner, within the limits of
/// leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplingRequest {
    /// None for the job as a whole.
    pub level: Option<StepLevel>,
    /// True for samples that go to the ring of the job.
    pub is_ring: bool,
    pub metrics: Vec<(Selector, Sampling)>,
    /// None for the longest that is allowed.
    pub duration_us: Option<u64>,
}

impl SamplingRequest {
    /// Level, and whether it is the ring: at most one request at submission is for each.
    pub(crate) const fn part(&self) -> (Option<StepLevel>, bool) {
        (self.level, self.is_ring)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubmittedRelease {
    /// None for as long as the job runs.
    pub duration_us: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRequest {
    /// Selector, or the request as it was written where it cannot be parsed.
    pub request: Text,
    pub period: Option<Sampling>,
    pub reason: Text,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    #[error("a job with this id is already tracked; unregister it first")]
    Known,
    #[error(
        "limit of tracked jobs reached, on this node or for this user; unregister some, or raise LimitNOFILE of the agent"
    )]
    TooMany,
    #[error("no such cgroup directory: {}", .0.display())]
    NoSuchCgroup(PathBuf),
    /// None of the directories lies in a mounted cgroup hierarchy, and no process was named.
    #[error("missing target: name at least one cgroup directory of the job, or its process")]
    NoCgroup,
}
