//! Requests that the supervisor handles, each with the channel of its answer.

use polymeter_proto::ledger::JobFacts;
use polymeter_proto::name::Selector;
use polymeter_proto::series::Identifier;
use polymeter_proto::step_level::StepLevel;
use tokio::sync::oneshot;

use super::access::AccessError;
use super::annotation::{AnnotateError, MarkSpec, PushSpec, RegionsSpec};
use super::job::{JobSpec, RegisterError, StartSpec};
use super::lease::{DemandSpec, LeaseError, LeaseGrant, LeaseRequest, ReleaseRequest};
use super::trigger::{KeepSpec, KeptPart, TriggerError, TriggerSpec, TriggersView};
use super::view::{JobView, MetricView, View};
use crate::config::AgentConfig;
use crate::delivery::tap::WatchReceiver;
use crate::principal::Principal;

#[derive(Debug)]
pub enum SupervisorRequest {
    /// Adds a trigger to a job; the answer says what prevents it from working.
    AddTrigger(Box<TriggerSpec>, oneshot::Sender<Result<Vec<String>, TriggerError>>),
    Keep(Box<KeepSpec>, oneshot::Sender<Result<KeptPart, TriggerError>>),
    RemoveTrigger(Principal, Identifier, Identifier, oneshot::Sender<Result<(), TriggerError>>),
    Triggers(Principal, Identifier, oneshot::Sender<Result<TriggersView, AccessError>>),
    View(oneshot::Sender<View>),
    /// Tracks a job; the answer holds the unavailable metrics, with the reasons.
    Register(Box<JobSpec>, RegistrationReply),
    /// The answer is false where there is no such job.
    Unregister(Identifier, oneshot::Sender<bool>),
    /// Announces a job; the answer holds the result of its owner's sampling request, where its cgroups exist
    /// already.
    Start(Box<StartSpec>, AnnouncementReply),
    /// Records the end of a job, with the scheduler's facts.
    End(Identifier, Box<JobFacts>, oneshot::Sender<()>),
    Set(Box<LeaseRequest>, LeaseReply),
    /// Samples devices for a job; the answer is none where that has ended.
    Demand(Box<DemandSpec>, DemandReply),
    /// Ends the principal's leases on a job, or all leases for an administrator; with a level those of steps
    /// or tasks only. The answer is their number.
    Reset(Principal, Option<Identifier>, Option<StepLevel>, ResetReply),
    /// Releases hardware events; the answer holds the end, in microseconds since the epoch, and the metrics.
    Release(ReleaseRequest, ReleaseReply),
    /// Ends the principal's releases on a job, or all for an administrator. The answer is their number.
    Resume(Principal, Option<Identifier>, ResetReply),
    Mark(Box<MarkSpec>, oneshot::Sender<Result<(), AnnotateError>>),
    Push(Box<PushSpec>, oneshot::Sender<Result<(), AnnotateError>>),
    Regions(Box<RegionsSpec>, oneshot::Sender<Result<(), AnnotateError>>),
    Metrics(Principal, Option<Identifier>, MetricsReply),
    ViewOne(Principal, Option<Identifier>, oneshot::Sender<Result<JobView, AccessError>>),
    /// Streams the samples of a job or the node from now on: metrics that match a selector, or all without
    /// any.
    Watch(Principal, Option<Identifier>, Vec<Selector>, oneshot::Sender<Result<WatchReceiver, AccessError>>),
    Flush(oneshot::Sender<()>),
    Reload(Box<AgentConfig>),
    Stop,
}

impl SupervisorRequest {
    /// True for a request that changes nothing.
    pub(crate) const fn is_read(&self) -> bool {
        use SupervisorRequest::{Flush, Metrics, Triggers, View, ViewOne, Watch};
        matches!(self, View(..) | ViewOne(..) | Watch(..) | Metrics(..) | Triggers(..) | Flush(..))
    }
}

pub type Reply<T> = oneshot::Sender<T>;

/// Answers with the unavailable metrics and the reasons.
pub type RegistrationReply = Reply<Result<Vec<(String, String)>, RegisterError>>;

pub type AnnouncementReply = Reply<Result<Option<Result<LeaseGrant, LeaseError>>, RegisterError>>;

pub type DemandReply = Reply<Result<Option<LeaseGrant>, LeaseError>>;

pub type LeaseReply = Reply<Result<LeaseGrant, LeaseError>>;

/// Answers with the end of the release, in microseconds since the epoch, and the metrics.
pub type ReleaseReply = Reply<Result<(i64, Vec<String>), LeaseError>>;

/// Answers with the number of leases that end.
pub type ResetReply = Reply<Result<usize, AccessError>>;

pub type MetricsReply = Reply<Result<Vec<MetricView>, AccessError>>;

pub(crate) fn ask<T>(
    make: impl FnOnce(oneshot::Sender<T>) -> SupervisorRequest,
) -> (SupervisorRequest, oneshot::Receiver<T>) {
    let (sender, receiver) = oneshot::channel();
    (make(sender), receiver)
}
