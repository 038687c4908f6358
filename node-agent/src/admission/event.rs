//! The events of admission, and its effects.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::batch::Job;
use polymeter_proto::catalogue::Definition;
use polymeter_proto::ledger::{Cause, PlanChange};
use polymeter_proto::series::{Identifier, JobHandle};
use polymeter_proto::step_level::StepLevel;

use super::calibration::ExerciseTimes;
use crate::cgroups::StepCounts;
use crate::config::Limits;
use crate::plan::Plan;
use crate::principal::Principal;
use crate::request::{
    AccessError, AnnouncementReply, Availability, LeaseError, LeaseGrant, LeaseReply, LeaseRequest,
    MetricView, MetricsReply, ResetReply,
};
use crate::targets::TargetKey;

/// The origin of a lease request.
#[derive(Debug)]
pub(crate) enum LeaseOrigin {
    /// A client of the control socket or of the collector.
    Client(LeaseReply),
    /// The owner of a job at submission, with the level of the request and the announcement that waits for the answer.
    Submission(Identifier, Option<StepLevel>, Option<AnnouncementReply>),
}

/// The recent mean time of a read of each source, in nanoseconds, by job and source.
pub(crate) type ReadTimes = BTreeMap<Option<JobHandle>, BTreeMap<String, f64>>;

/// The reason for which sources are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenReason {
    /// The target is new or its files have changed: all files are opened anew.
    Files,
    /// The plan has changed. The cause is recorded in the data; none stands for the layer in force.
    Plan(Option<Cause>),
    /// A lease is about to be granted.
    Lease,
    /// A lease could not be granted.
    LeaseRevoked,
}

/// An event that concerns admission.
#[derive(Debug)]
pub(crate) enum AdmissionEvent {
    /// A lease is requested. The read times are those of all targets.
    LeaseRequested(LeaseRequest, LeaseOrigin, ReadTimes),
    /// The leases of a principal on a target are to end, with a level those of steps or tasks only; all of these if the principal is an
    /// administrator.
    LeasesReset(Principal, TargetKey, Option<StepLevel>, ResetReply),
    /// The metrics of a target are requested.
    MetricsRequested(Principal, TargetKey, MetricsReply, ReadTimes),
    /// Leases may have expired.
    LeasesExpired,
    /// Trial reads have determined which metrics are available, and the time of a read. Steps and tasks were counted if that was
    /// asked for.
    Probed(TargetKey, BTreeMap<String, Availability>, Option<StepCounts>),
    /// Sources of steps and tasks of a target were opened or closed, because these have begun or ended.
    StepsUpdated(TargetKey),
    /// The sources of a target were opened.
    SourcesOpened(TargetKey, OpenReason),
    /// The hardware of a target has stated other refresh intervals, so that periods change.
    IntervalsStated(TargetKey),
    /// The CPU time of sampling since the last event, in percent of a CPU.
    CpuMeasured(f64, ReadTimes),
    /// The speed of the machine was measured.
    Calibrated(ExerciseTimes),
    /// The configuration was reloaded: the limits, and the standing layers of the plan.
    ConfigReloaded(Limits, Plan),
}

/// An effect of admission.
#[derive(Debug)]
pub(crate) enum AdmissionEffect {
    /// Open and regroup the sources of a target for its plan. Answered by [`AdmissionEvent::SourcesOpened`].
    OpenSources(TargetKey, OpenReason),
    /// Open and close the sources of the steps and tasks of a target. [`AdmissionEffect::OpenSources`] follows.
    UpdateSteps(TargetKey),
    /// Open these metrics of a target for trial, and count its steps and tasks if the last value is true. Answered by
    /// [`AdmissionEvent::Probed`].
    Probe(TargetKey, Vec<Definition>, bool),
    /// Record a change of the plan in the data, of steps or tasks, or of the whole target.
    RecordPlanChange(Option<Arc<Job>>, PlanChange),
    /// Answer a lease request.
    AnswerLease(LeaseOrigin, Result<LeaseGrant, LeaseError>),
    /// Answer a request to reset leases.
    AnswerReset(ResetReply, Result<usize, AccessError>),
    /// Answer a request for metrics.
    AnswerMetrics(MetricsReply, Result<Vec<MetricView>, AccessError>),
    /// Log that the governor has slowed leases, or restores their speed.
    LogGoverned(String),
}
