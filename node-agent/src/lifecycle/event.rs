//! The events of jobs' life cycles, and their effects.

use std::collections::BTreeMap;
use std::path::PathBuf;

use polymeter_proto::ledger::JobFacts;
use polymeter_proto::series::{Identifier, JobHandle};
use polymeter_proto::step_level::StepLevel;

use super::found_job::FoundJob;
use crate::admission::Descriptors;
use crate::lanes::EventRecord;
use crate::plan::Plan;
use crate::request::{
    AnnouncementReply, JobSpec, LeaseError, LeaseGrant, LeaseRequest, RegisterError, RegistrationReply,
    Reply, StartSpec,
};
use crate::sources::Target;
use crate::targets::{TargetKey, TrackedTarget};

/// The registration of a job.
#[derive(Debug)]
pub(crate) struct Registration {
    /// The job. Its owner's numeric id was looked up.
    pub(crate) spec: JobSpec,
    /// The cgroups or the process that it consists of.
    pub(crate) target: Result<Target, RegisterError>,
    /// The descriptors that jobs may need.
    pub(crate) descriptors: Descriptors,
    /// The channel of the answer.
    pub(crate) reply: RegistrationReply,
}

/// An event that concerns the life cycle of jobs.
#[derive(Debug)]
pub(crate) enum LifecycleEvent {
    /// The agent starts: the node is tracked from now on.
    Started,
    /// The node's sources are open, and those of no job.
    NodeSampled(Descriptors),
    /// Discovery has walked through the cgroups.
    Walked {
        /// The jobs that exist now.
        found: BTreeMap<PathBuf, FoundJob>,
        /// The registered jobs of which no cgroup is left.
        vanished: Vec<TargetKey>,
        /// The number of directories of jobs that were found and left out, because there are too many.
        passed_over: usize,
        /// The descriptors that jobs may need.
        descriptors: Descriptors,
    },
    /// A job that discovery has found was identified.
    JobDiscovered {
        /// The job.
        found: FoundJob,
        /// The job's number in the environment of its processes, if that was needed.
        number: Option<Identifier>,
        /// The owner's numeric id from the name service, if that was needed.
        owner_uid: Option<u32>,
    },
    /// A job is registered.
    JobRegistered(Box<Registration>),
    /// A registered job is to be released.
    JobUnregistered(Identifier, Reply<bool>),
    /// A scheduler announces a job that starts on this node. Its owner's numeric id was looked up.
    JobAnnounced {
        /// The job.
        spec: Box<StartSpec>,
        /// The owner's name, if the job is tracked and its owner's name is unknown.
        owner_name: Option<Identifier>,
        /// The channel of the answer.
        reply: AnnouncementReply,
    },
    /// A scheduler reports the end of a job.
    SchedulerEnded(Identifier, Box<JobFacts>, Reply<()>),
    /// The next pending rescan of a job is due.
    NextRescan,
    /// Rescans of jobs that exceeded their rescan budget are due.
    MissedRescans,
    /// The exits of a job are watched from now on; true if one was missed.
    ExitsWatched(TargetKey, bool),
    /// A rescan has not covered all cgroups of a job.
    RescanIncomplete(TargetKey),
    /// Unknown owners should be looked up.
    OwnersWanted,
    /// The owner of a job was looked up.
    OwnerLookedUp {
        /// The job.
        key: TargetKey,
        /// The job's handle: another job may have this id by now.
        job: JobHandle,
        /// The owner's numeric id, if it was found.
        uid: Option<u32>,
        /// The owner's name, if it was found.
        name: Option<Identifier>,
    },
    /// The lease that the owner of a job requested at submission was granted or refused.
    SubmissionAnswered {
        /// The job.
        job_id: Identifier,
        /// The level that it concerns.
        level: Option<StepLevel>,
        /// The outcome.
        result: Result<LeaseGrant, LeaseError>,
        /// The announcement that waits for the outcome of all levels; none before the last one.
        reply: Option<AnnouncementReply>,
    },
    /// The files of a target must be opened anew.
    FilesChanged(TargetKey),
    /// The configuration was reloaded: the cluster's name, and the standing layers of the plan.
    ConfigReloaded(Option<Identifier>, Plan),
}

/// The information by which the owner of a job is looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnerHint {
    /// The owner's name.
    Name(Identifier),
    /// The processes of the job.
    Processes,
}

/// A task of the life cycle of jobs, which results in an event.
#[derive(Debug)]
pub(crate) enum LifecycleTask {
    /// Open all files of a target that is new or has changed. Admission gets an event.
    OpenSources(TargetKey),
    /// Watch the current processes and cgroups of a job. Answered by [`LifecycleEvent::ExitsWatched`].
    WatchExits(TargetKey),
    /// Let sources that are sums over cgroups find the current cgroups of a job. Answered by
    /// [`LifecycleEvent::RescanIncomplete`] if there are more.
    ScanCgroups(TargetKey),
    /// Read the jobs of which a part has ended meanwhile, and rescan them: opening a job's files takes about as long as
    /// a scheduler takes to remove another job's cgroups. Answered by [`LifecycleEvent::NextRescan`] for each.
    HandleExits,
    /// Determine the number of a job from its processes, and its owner's numeric id from the name service. Answered by
    /// [`LifecycleEvent::JobDiscovered`], later if the name service is needed.
    IdentifyJob {
        /// The job.
        found: FoundJob,
        /// True if the number is wanted.
        needs_number: bool,
        /// The owner's name, if the numeric id is wanted.
        owner: Option<Identifier>,
    },
    /// Look up the owner of a job. Answered by [`LifecycleEvent::OwnerLookedUp`], later if the name service is needed.
    LookUpOwner(TargetKey, OwnerHint),
    /// Request the lease of an owner's request at submission. Answered by [`LifecycleEvent::SubmissionAnswered`].
    RequestLease(LeaseRequest, Identifier, Option<AnnouncementReply>),
}

impl From<LifecycleTask> for LifecycleEffect {
    fn from(task: LifecycleTask) -> Self {
        Self::Task(task)
    }
}

/// An effect of the life cycle of jobs.
#[derive(Debug)]
pub(crate) enum LifecycleEffect {
    /// Run a task.
    Task(LifecycleTask),
    /// Close the sources of a target that is not tracked any more.
    CloseSources(Box<TrackedTarget>),
    /// Read all sources of a job out of schedule: a part of it has ended.
    ReadJob(JobHandle),
    /// Read all sources of a job for the last time.
    FinalSample(JobHandle),
    /// Record an event in the data.
    Record(EventRecord),
    /// Stop watching a job.
    UnwatchExits(Identifier),
    /// Open and close sources to match the current steps and tasks of a job.
    UpdateSteps(TargetKey),
    /// Answer a registration once the first reading of the job was taken.
    AnswerRegistration(RegistrationReply, Result<Identifier, RegisterError>),
    /// Answer an unregistration.
    AnswerUnregistration(Reply<bool>, bool),
    /// Answer the announcement of a job.
    AnswerAnnouncement(AnnouncementReply, Result<Option<Result<LeaseGrant, LeaseError>>, RegisterError>),
    /// Acknowledge the announcement of a job's end.
    AnswerEnd(Reply<()>),
    /// Report the number of jobs that are left out.
    ReportLeftOut(usize, Descriptors),
    /// Log a message.
    LogInfo(String),
    /// Log a warning.
    LogWarning(String),
}
