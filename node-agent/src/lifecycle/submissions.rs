//! Information from schedulers and owners about jobs: facts for the data, and requests at submission, which become
//! leases or are refused. Pure.

use std::sync::Arc;

use polymeter_proto::batch::Job;
use polymeter_proto::ledger::{Event, JobDetailsUpdate, JobFacts, JobFactsUpdate, RequestRefused};
use polymeter_proto::series::Identifier;

use super::announced_jobs::AnnouncedJobs;
use super::event::{LifecycleEffect, LifecycleTask};
use super::refused_requests::{refuse_all, refused_by};
use crate::lanes::EventRecord;
use crate::principal::Principal;
use crate::request::{
    AnnouncementReply, LeaseError, LeaseGrant, LeaseRequest, RefusedRequest, SamplingRequest,
};
use crate::targets::{Now, Targets};

/// Records the scheduler's facts of a tracked job in the data.
pub(super) fn record_facts(
    announced: &mut AnnouncedJobs,
    targets: &mut Targets,
    job_id: &Identifier,
    now: Now,
    out: &mut Vec<LifecycleEffect>,
) {
    let job = targets.job(job_id).and_then(|target| target.job.clone());
    let (Some(job), Some(announced)) = (job, announced.get_mut(job_id)) else { return };
    announced.job = Some(Arc::clone(&job));
    set_gpu_devices(targets, job_id, announced.metadata.gpu_devices.clone(), out);
    let (facts, refused) = (announced.metadata.facts.clone(), announced.refused.take());
    let details = announced.metadata.details.clone();
    if !details.is_empty() {
        let event = Event::JobDetails(JobDetailsUpdate { job: job.handle, details });
        out.push(LifecycleEffect::Record(EventRecord { job: Some(Arc::clone(&job)), event }));
    }
    record_facts_of(job, facts, false, out);
    refuse_requests(targets, job_id, refused.into_iter().collect(), now, out);
}

/// Records the GPUs that the scheduler gave to a job, whose sources are opened anew for them.
fn set_gpu_devices(
    targets: &mut Targets,
    job_id: &Identifier,
    devices: Option<Arc<str>>,
    out: &mut Vec<LifecycleEffect>,
) {
    let key = Some(job_id.clone());
    if let Some(target) =
        targets.get_mut(&key).filter(|target| devices.is_some() && target.gpu_devices != devices)
    {
        target.gpu_devices = devices;
        target.findings.forget();
        out.push(LifecycleTask::OpenSources(key).into());
    }
}

/// Requests a lease for the owner's request at submission, as if the owner requested it now. If none of it can be
/// sampled yet, the request is kept: the cgroup of another controller may follow.
pub(super) fn request_lease(
    announced: &AnnouncedJobs,
    targets: &Targets,
    job_id: &Identifier,
    reply: Option<AnnouncementReply>,
    out: &mut Vec<LifecycleEffect>,
) {
    let sampling = announced.get(job_id).and_then(|announced| announced.sampling.clone());
    let owner_uid = targets.job(job_id).and_then(|target| target.owner_uid);
    match (sampling, owner_uid, reply) {
        (Some(SamplingRequest { metrics, duration_us }), Some(uid), reply) => {
            // A request at submission has an ordinary user's rights, even if its owner is an administrator.
            let principal = Principal { uid, administrator: false };
            let key = Some(job_id.clone());
            let request =
                LeaseRequest { principal, job_id: key, level: None, metrics, since_us: None, duration_us };
            out.push(LifecycleTask::RequestLease(request, job_id.clone(), reply).into());
        }
        (_, _, Some(reply)) => out.push(LifecycleEffect::AnswerAnnouncement(reply, Ok(None))),
        (_, _, None) => {}
    }
}

/// Keeps the refused parts of the request at submission.
pub(super) fn answered(
    announced: &mut AnnouncedJobs,
    targets: &mut Targets,
    job_id: &Identifier,
    result: &Result<LeaseGrant, LeaseError>,
    now: Now,
    out: &mut Vec<LifecycleEffect>,
) {
    let Some(announced) = announced.get_mut(job_id) else { return };
    let Some(sampling) = announced.sampling.take() else { return };
    let refused = refused_by(&sampling.metrics, result);
    let can_wait = matches!(result, Err(LeaseError::Unavailable(_)));
    if can_wait {
        announced.sampling = Some(sampling);
    }
    let Some(target) = targets.get_mut(&Some(job_id.clone())) else { return };
    if can_wait {
        target.refused.defer(refused);
    } else {
        target.refused.defer(Vec::new());
        refuse_requests(targets, job_id, refused, now, out);
    }
}

/// Refuses requests that could not be granted until the end of a job.
pub(super) fn refuse_deferred(
    announced: &mut AnnouncedJobs,
    targets: &mut Targets,
    job_id: &Identifier,
    now: Now,
    out: &mut Vec<LifecycleEffect>,
) {
    let announced = announced.get_mut(job_id);
    let sampling = announced.and_then(|announced| announced.sampling.take());
    let Some(target) = targets.get_mut(&Some(job_id.clone())) else { return };
    let mut deferred = target.refused.take_deferred();
    if let Some(sampling) = sampling.filter(|_| deferred.is_empty()) {
        // The request was never served.
        deferred = refuse_all(&sampling.metrics, "the owner of the job could not be determined");
    }
    refuse_requests(targets, job_id, deferred, now, out);
}

/// Records the end of a job. If its cgroups still exist, their current values are the final ones.
pub(super) fn scheduler_ended(
    announced: &mut AnnouncedJobs,
    targets: &Targets,
    job_id: &Identifier,
    facts: JobFacts,
    out: &mut Vec<LifecycleEffect>,
) {
    let announced = announced.remove(job_id);
    let tracked = targets.job(job_id).and_then(|target| target.job.clone());
    if let Some(job) = &tracked {
        out.push(LifecycleEffect::ReadJob(job.handle));
    }
    let is_over = tracked.is_none();
    if let Some(job) = tracked.or(announced.and_then(|announced| announced.job)) {
        record_facts_of(job, facts, is_over, out);
    }
}

fn record_facts_of(job: Arc<Job>, facts: JobFacts, is_over: bool, out: &mut Vec<LifecycleEffect>) {
    if !facts.is_empty() {
        let event = Event::JobFacts(JobFactsUpdate { job: job.handle, is_over, facts });
        out.push(LifecycleEffect::Record(EventRecord { job: Some(job), event }));
    }
}

/// Keeps requests that are refused for good, and records them in the data and the log.
fn refuse_requests(
    targets: &mut Targets,
    job_id: &Identifier,
    refused: Vec<RefusedRequest>,
    now: Now,
    out: &mut Vec<LifecycleEffect>,
) {
    let Some(target) = targets.get_mut(&Some(job_id.clone())) else { return };
    let Some(job) = target.job.clone() else { return };
    let by = target.owner_uid.and_then(|uid| Principal { uid, administrator: false }.name());
    for refused in refused {
        if !target.refused.add(&refused) {
            continue;
        }
        let RefusedRequest { request, period, reason } = refused;
        let asked = period.map_or_else(|| request.to_string(), |period| format!("{request}={period}"));
        out.push(LifecycleEffect::LogWarning(format!(
            "cannot grant request `{asked}` of the owner of job {job_id}: {reason}"
        )));
        let (at_us, by, job) = (now.realtime_us, by.clone(), Arc::clone(&job));
        let refusal = RequestRefused { at_us, job: job.handle, request, period, by, reason };
        let event = Event::RequestRefused(refusal);
        out.push(LifecycleEffect::Record(EventRecord { job: Some(job), event }));
    }
}
