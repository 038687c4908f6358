//! Information from schedulers and owners about jobs: facts for the data, and requests at submission, which
//! become leases or are refused. Pure.

use std::sync::Arc;

use polymeter_proto::batch::Job;
use polymeter_proto::ledger::{
    Event, JobDetails, JobDetailsUpdate, JobFacts, JobFactsUpdate, RequestRefused,
};
use polymeter_proto::series::Identifier;
use polymeter_proto::step_level::StepLevel;
use polymeter_proto::trigger::Rule;

use super::announced_jobs::AnnouncedJobs;
use super::effect::LifecycleEffect;
use super::refused_requests::{refuse_all, refused_by, refused_trigger};
use crate::lanes::EventRecord;
use crate::plan::Release;
use crate::principal::Principal;
use crate::request::{
    LeaseError, LeaseGrant, LeaseRequest, RefusedRequest, SamplingRequest, SubmittedRelease,
};
use crate::targets::{Now, Targets};

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
    if let Some(release) = announced.pmu_release {
        release_counters(targets, job_id, release, now, out);
    }
    let (facts, refused) = (announced.metadata.facts.clone(), announced.refused.take());
    record_details(Arc::clone(&job), announced.metadata.details.clone(), out);
    record_facts_of(job, facts, false, out);
    refuse_requests(targets, job_id, refused.into_iter().collect(), now, out);
}

fn release_counters(
    targets: &mut Targets,
    job_id: &Identifier,
    SubmittedRelease { duration_us }: SubmittedRelease,
    now: Now,
    out: &mut Vec<LifecycleEffect>,
) {
    let key = Some(job_id.clone());
    let Some(target) = targets.get_mut(&key) else { return };
    let principal = Principal { uid: target.owner_uid.unwrap_or_default(), administrator: false };
    // Without a duration it ends with the job.
    let lasts_us = duration_us.unwrap_or(u64::MAX);
    let until_us = now.realtime_us.saturating_add_unsigned(lasts_us);
    let ends_ns = now.monotonic_ns.saturating_add(lasts_us.saturating_mul(1000));
    target.plan.releases.retain(|release| release.principal.uid != principal.uid);
    target.plan.releases.push(Release { principal, until_us, ends_ns });
    target.findings.forget();
    out.push(LifecycleEffect::OpenSources(key));
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
        out.push(LifecycleEffect::OpenSources(key));
    }
}

/// Leases for the owner's requests at submission, as if the owner requested them now. A request of which
/// nothing can be sampled yet is kept: the cgroup of another controller may follow.
pub(super) fn leases(announced: &AnnouncedJobs, targets: &Targets, job_id: &Identifier) -> Vec<LeaseRequest> {
    let owner_uid = targets.job(job_id).and_then(|target| target.owner_uid);
    let (Some(announced), Some(uid)) = (announced.get(job_id), owner_uid) else { return Vec::new() };
    // A request at submission has an ordinary user's rights, even if its owner is an administrator.
    let principal = Principal { uid, administrator: false };
    announced
        .sampling
        .iter()
        .cloned()
        .map(|SamplingRequest { level, is_ring, metrics, duration_us }| {
            let job_id = Some(job_id.clone());
            LeaseRequest {
                principal,
                job_id,
                level,
                is_ring,
                metrics,
                since_us: None,
                duration_us,
                demanded_by: None,
            }
        })
        .collect()
}

pub(super) fn request_leases(
    announced: &AnnouncedJobs,
    targets: &Targets,
    job_id: &Identifier,
    out: &mut Vec<LifecycleEffect>,
) {
    let leases = leases(announced, targets, job_id).into_iter();
    out.extend(leases.map(|lease| LifecycleEffect::RequestLease(job_id.clone(), lease)));
}

/// Adds the triggers that the owner requested at submission, once the owner is known.
pub(super) fn add_triggers(
    announced: &mut AnnouncedJobs,
    targets: &Targets,
    job_id: &Identifier,
    out: &mut Vec<LifecycleEffect>,
) {
    let owner_uid = targets.job(job_id).and_then(|target| target.owner_uid);
    let (Some(announced), Some(uid)) = (announced.get_mut(job_id), owner_uid) else { return };
    let owner = Principal { uid, administrator: false };
    let triggers = std::mem::take(&mut announced.triggers).into_iter();
    out.extend(triggers.map(|rule| LifecycleEffect::AddTrigger(job_id.clone(), Box::new(rule), owner)));
}

/// Refuses a trigger that was requested at submission.
pub(super) fn refuse_trigger(
    targets: &mut Targets,
    job_id: &Identifier,
    rule: &Rule,
    reason: &str,
    now: Now,
    out: &mut Vec<LifecycleEffect>,
) {
    refuse_requests(targets, job_id, vec![refused_trigger(rule, reason)], now, out);
}

/// Keeps the refused parts of the request at submission for a level or the ring.
pub(super) fn answered(
    announced: &mut AnnouncedJobs,
    targets: &mut Targets,
    job_id: &Identifier,
    part: (Option<StepLevel>, bool),
    result: &Result<LeaseGrant, LeaseError>,
    now: Now,
    out: &mut Vec<LifecycleEffect>,
) {
    let Some(announced) = announced.get_mut(job_id) else { return };
    let Some(position) = announced.sampling.iter().position(|sampling| sampling.part() == part) else {
        return;
    };
    let can_wait = matches!(result, Err(LeaseError::Unavailable(_)));
    let refused =
        announced.sampling.get(position).map(|sampling| refused_by(sampling, result)).unwrap_or_default();
    if !can_wait {
        announced.sampling.remove(position);
    }
    let Some(target) = targets.get_mut(&Some(job_id.clone())) else { return };
    if can_wait {
        target.refused.defer(part, refused);
    } else {
        target.refused.defer(part, Vec::new());
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
    let (sampling, triggers) = announced
        .map(|announced| (std::mem::take(&mut announced.sampling), std::mem::take(&mut announced.triggers)))
        .unwrap_or_default();
    let Some(target) = targets.get_mut(&Some(job_id.clone())) else { return };
    let mut deferred = target.refused.take_deferred();
    // Requests that were never served.
    let reason = match target.owner_uid {
        None => "the owner of the job could not be determined",
        Some(_) => "the job ended before its cgroups were found",
    };
    let triggers = triggers.iter().map(|rule| refused_trigger(rule, reason));
    if deferred.is_empty() {
        deferred = sampling.iter().flat_map(|sampling| refuse_all(sampling, reason)).collect();
    }
    deferred.extend(triggers);
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

pub(super) fn record_details(job: Arc<Job>, details: JobDetails, out: &mut Vec<LifecycleEffect>) {
    if !details.is_empty() {
        let event = Event::JobDetails(JobDetailsUpdate { job: job.handle, details });
        out.push(LifecycleEffect::Record(EventRecord { job: Some(job), event }));
    }
}

pub(super) fn record_facts_of(job: Arc<Job>, facts: JobFacts, is_over: bool, out: &mut Vec<LifecycleEffect>) {
    if !facts.is_empty() {
        let event = Event::JobFacts(JobFactsUpdate { job: job.handle, is_over, facts });
        out.push(LifecycleEffect::Record(EventRecord { job: Some(job), event }));
    }
}

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
