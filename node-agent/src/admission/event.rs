//! The events that concern admission, and its effects.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::batch::Job;
use polymeter_proto::catalogue::Definition;
use polymeter_proto::ledger::{Cause, PlanChange};
use polymeter_proto::series::{Identifier, JobHandle};

use super::calibration::ExerciseTimes;
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
    /// The owner of a job at submission, with the announcement that waits for the answer.
    Submission(Identifier, Option<AnnouncementReply>),
}

/// The mean time of a read of each source of late, in nanoseconds, by job and source.
pub(crate) type ReadTimes = BTreeMap<Option<JobHandle>, BTreeMap<String, f64>>;

/// The reason for which sources are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenReason {
    /// The target is new, or its files have come or gone: all files are opened anew.
    Files,
    /// The plan has changed, for a cause that the data are told; none for that of the layer in force.
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
    /// The leases of a principal on a target must end; of an administrator's word all.
    LeasesReset(Principal, TargetKey, ResetReply),
    /// The metrics of a target are requested.
    MetricsRequested(Principal, TargetKey, MetricsReply, ReadTimes),
    /// Leases may have expired.
    LeasesExpired,
    /// Trial reads have found out what metrics are available and what a read of them takes.
    Probed(TargetKey, BTreeMap<String, Availability>),
    /// The sources of a target were opened.
    SourcesOpened(TargetKey, OpenReason),
    /// Sampling has used so much of a CPU, in percent, since the last time.
    CpuMeasured(f64, ReadTimes),
    /// The speed of the machine was measured.
    Calibrated(ExerciseTimes),
    /// The configuration was read again: the limits, and the layers of the plan that nobody requested.
    ConfigReloaded(Limits, Plan),
}

/// An effect of admission.
#[derive(Debug)]
pub(crate) enum AdmissionEffect {
    /// Open and regroup the sources of a target for its plan. Answered by [`AdmissionEvent::SourcesOpened`].
    OpenSources(TargetKey, OpenReason),
    /// Open and close the sources of the steps and tasks of a target.
    UpdateSteps(TargetKey),
    /// Open these metrics of a target for trial. Answered by [`AdmissionEvent::Probed`].
    Probe(TargetKey, Vec<Definition>),
    /// Put a change of the plan into the data.
    RecordPlanChange(Option<Arc<Job>>, PlanChange),
    /// Answer a lease request.
    AnswerLease(LeaseOrigin, Result<LeaseGrant, LeaseError>),
    /// Answer a request to reset leases.
    AnswerReset(ResetReply, Result<usize, AccessError>),
    /// Answer a request for metrics.
    AnswerMetrics(MetricsReply, Result<Vec<MetricView>, AccessError>),
    /// Log that the governor has slowed leases, or gives speed back.
    LogGoverned(String),
}
