//! Effects of jobs' life cycles.

use polymeter_proto::series::{Identifier, JobHandle};
use polymeter_proto::trigger::Rule;

use super::found_job::FoundJob;
use crate::admission::Descriptors;
use crate::lanes::EventRecord;
use crate::principal::Principal;
use crate::request::LeaseRequest;
use crate::targets::{TargetKey, TrackedTarget};

/// How to look up the owner of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnerHint {
    Name(Identifier),
    Processes,
}

#[derive(Debug)]
pub(crate) enum LifecycleEffect {
    /// Open all files of a target that is new or has changed.
    OpenSources(TargetKey),
    /// Watch the current processes and cgroups of a job, and sample its current cgroups, steps and tasks.
    Rescan(TargetKey),
    /// Read the jobs of which a part has ended meanwhile, and rescan them: opening a job's files takes about
    /// as long as a scheduler takes to remove another job's cgroups.
    HandleExits,
    /// Determine the number of a job from its processes, and its owner's numeric id from the name service,
    /// which may take a while. Then [`super::Lifecycle::identified`] continues.
    Identify {
        found: FoundJob,
        needs_number: bool,
        /// Name of the owner, if the numeric id is wanted.
        owner: Option<Identifier>,
    },
    /// Look up the owner of a job, which may take a while. Then [`super::Lifecycle::owner_looked_up`]
    /// continues.
    LookUpOwner(TargetKey, OwnerHint),
    /// Request a lease that the owner of a job requested at submission. Then
    /// [`super::Lifecycle::submission_answered`] continues.
    RequestLease(Identifier, LeaseRequest),
    /// Add a trigger that the owner of a job requested at submission. If it is refused,
    /// [`super::Lifecycle::trigger_refused`] continues.
    AddTrigger(Identifier, Box<Rule>, Principal),
    /// Read all sources of a job out of schedule: a part of it has ended.
    ReadJob(JobHandle),
    /// Stop watching a job that is not tracked any more, read its sources for the last time, close them, and
    /// record the end, dated in microseconds since the epoch.
    End(Identifier, Box<TrackedTarget>, i64),
    Record(EventRecord),
    /// Send what was recorded so far at once.
    SendRecords,
    ReportLeftOut(usize, Descriptors),
    LogInfo(String),
    LogWarning(String),
}
