//! Owners of jobs that are unknown at first. Pure.

use polymeter_proto::ledger::{Event, JobOwner};
use polymeter_proto::series::Identifier;

use super::effect::{LifecycleEffect, OwnerHint};
use crate::lanes::EventRecord;
use crate::targets::{Now, TargetKey, Targets};

/// Looks up unknown owners: the jobs may have had no process before.
pub(crate) fn look_up(targets: &mut Targets, now: Now, out: &mut Vec<LifecycleEffect>) {
    let unknown = targets.iter_mut().filter(|(key, target)| key.is_some() && target.owner_uid.is_none());
    for (key, target) in unknown {
        let (search, now_ns) = (&mut target.owner_search, now.monotonic_ns);
        let hint = match target.job.as_ref().and_then(|job| job.descriptor.owner.clone()) {
            // A given name is trusted: the processes of other users do not change the job's owner.
            Some(name) if search.take_name_due(now_ns) => OwnerHint::Name(name),
            None if search.take_due(now_ns) => OwnerHint::Processes,
            Some(_) | None => continue,
        };
        out.push(LifecycleEffect::LookUpOwner(key.clone(), hint));
    }
}

/// Sets the owner of a job that had none, and records it in the data.
pub(super) fn set(
    targets: &mut Targets,
    key: &TargetKey,
    uid: u32,
    name: Option<Identifier>,
    out: &mut Vec<LifecycleEffect>,
) {
    let Some(target) = targets.get_mut(key).filter(|target| target.owner_uid.is_none()) else { return };
    target.owner_uid = Some(uid);
    let Some(job) = target.job.clone() else { return };
    let name = name.filter(|_| job.descriptor.owner.is_none());
    let event = Event::JobOwner(JobOwner { job: job.handle, uid: Some(uid), name });
    out.push(LifecycleEffect::Record(EventRecord { job: Some(job), event }));
}
