//! The events that concern the life cycle of jobs, and its effects.

use std::collections::BTreeMap;
use std::path::PathBuf;

use polymeter_proto::ledger::JobFacts;
use polymeter_proto::series::{Identifier, JobHandle};

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
    /// The place for the answer.
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
        /// How many directories of jobs it has seen and not given, because there are too many.
        passed_over: usize,
        /// The descriptors that jobs may need.
        descriptors: Descriptors,
    },
    /// A job that discovery has found was identified.
    JobDiscovered {
        /// The job.
        found: FoundJob,
        /// The job's number in the environment of its processes, where that was needed.
        number: Option<Identifier>,
        /// The owner's numeric id by the name service, where that was needed.
        owner_uid: Option<u32>,
    },
    /// A job is registered.
    JobRegistered(Box<Registration>),
    /// A registered job must be let go.
    JobUnregistered(Identifier, Reply<bool>),
    /// A scheduler announces a job that starts on this node. Its owner's numeric id was looked up.
    JobAnnounced {
        /// The job.
        spec: Box<StartSpec>,
        /// The owner's name, where the job is tracked and no name is known.
        owner_name: Option<Identifier>,
        /// The place for the answer.
        reply: AnnouncementReply,
    },
    /// A scheduler says that a job has ended.
    SchedulerEnded(Identifier, Box<JobFacts>, Reply<()>),
    /// There is time for a rescan of a job in which something happened.
    NextRescan,
    /// There is time for rescans of jobs in which too much happened to rescan each time.
    MissedRescans,
    /// The exits of a job are watched from now on; true where one was missed.
    ExitsWatched(TargetKey, bool),
    /// A rescan has not seen all cgroups of a job.
    RescanIncomplete(TargetKey),
    /// Owners that are not known should be looked up.
    OwnersWanted,
    /// The owner of a job was looked up.
    OwnerLookedUp {
        /// The job.
        key: TargetKey,
        /// The owner's numeric id, where it was found.
        uid: Option<u32>,
        /// The owner's name, where it was found.
        name: Option<Identifier>,
    },
    /// The lease that the owner of a job requested at submission was granted or refused.
    SubmissionAnswered(Identifier, Result<LeaseGrant, LeaseError>, Option<AnnouncementReply>),
    /// The files of a target must be opened anew.
    FilesChanged(TargetKey),
    /// The configuration was read again: the cluster's name, and the layers of the plan that nobody requested.
    ConfigReloaded(Option<Identifier>, Plan),
}

/// The knowledge by which the owner of a job is looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnerHint {
    /// The owner's name.
    Name(Identifier),
    /// The processes of the job.
    Processes,
}

/// An effect of the life cycle of jobs from which events come.
#[derive(Debug)]
pub(crate) enum LifecycleTask {
    /// Open all files of a target, which is new or has changed. Admission hears of it.
    OpenSources(TargetKey),
    /// Watch the processes and cgroups that a job has now. Answered by [`LifecycleEvent::ExitsWatched`].
    WatchExits(TargetKey),
    /// Let sources that are sums over cgroups find those that a job has now. Answered by [`LifecycleEvent::RescanIncomplete`]
    /// where there are more.
    ScanCgroups(TargetKey),
    /// Read the jobs of which a part has ended meanwhile, and rescan them: to open a job's files takes about as long as a
    /// scheduler takes to remove another's cgroups. Answered by [`LifecycleEvent::NextRescan`] for each.
    HandleExits,
    /// Find out the number of a job from its processes, and its owner's numeric id from the name service. Answered by
    /// [`LifecycleEvent::JobDiscovered`].
    IdentifyJob {
        /// The job.
        found: FoundJob,
        /// Whether its number is wanted.
        needs_number: bool,
        /// The owner's name, where the numeric id is wanted.
        owner: Option<Identifier>,
    },
    /// Look up the owner of a job. Answered by [`LifecycleEvent::OwnerLookedUp`].
    LookUpOwner(TargetKey, OwnerHint),
    /// Request the lease that the owner of a job wanted at submission. Answered by [`LifecycleEvent::SubmissionAnswered`].
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
    /// Do something from which events come.
    Task(LifecycleTask),
    /// Close the sources of a target that is tracked no more.
    CloseSources(Box<TrackedTarget>),
    /// Read all of a job out of turn: a part of it has ended.
    ReadJob(JobHandle),
    /// Read all of a job for the last time.
    FinalSample(JobHandle),
    /// Put an event into the data.
    Record(EventRecord),
    /// Watch a job no more.
    UnwatchExits(Identifier),
    /// Open and close the sources of the steps and tasks that a job has now.
    UpdateSteps(TargetKey),
    /// Answer a registration when the first reading of the job was taken.
    AnswerRegistration(RegistrationReply, Result<Identifier, RegisterError>),
    /// Answer an unregistration.
    AnswerUnregistration(Reply<bool>, bool),
    /// Answer the announcement of a job.
    AnswerAnnouncement(AnnouncementReply, Result<Option<Result<LeaseGrant, LeaseError>>, RegisterError>),
    /// Acknowledge the announcement of a job's end.
    AnswerEnd(Reply<()>),
    /// Report how many jobs are left out.
    ReportLeftOut(usize, Descriptors),
    /// Log a message.
    LogInfo(String),
    /// Log a warning.
    LogWarning(String),
}
