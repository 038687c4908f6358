//! The owners of jobs that are unknown at first. Pure.

use polymeter_proto::ledger::{Event, JobOwner};
use polymeter_proto::series::Identifier;

use super::event::{LifecycleEffect, LifecycleTask, OwnerHint};
use crate::lanes::EventRecord;
use crate::targets::{Now, TargetKey, Targets};

/// The time after which the name service is asked again for a name that it did not know, in nanoseconds.
const NAME_AGAIN_NS: u64 = 60_000_000_000;

/// Looks up unknown owners: the jobs may have had no process before.
pub(super) fn look_up(targets: &mut Targets, now: Now, out: &mut Vec<LifecycleEffect>) {
    let unknown = targets.iter_mut().filter(|(key, target)| key.is_some() && target.owner_uid.is_none());
    for (key, target) in unknown {
        let name = target.job.as_ref().and_then(|job| job.descriptor.owner.clone());
        let was_asked =
            target.owner_asked_ns.is_some_and(|at_ns| now.monotonic_ns.saturating_sub(at_ns) < NAME_AGAIN_NS);
        let hint = match name {
            // A given name is trusted: the processes of other users do not change the job's owner.
            Some(_) if was_asked => continue,
            Some(name) => {
                target.owner_asked_ns = Some(now.monotonic_ns);
                OwnerHint::Name(name)
            }
            None => OwnerHint::Processes,
        };
        out.push(LifecycleTask::LookUpOwner(key.clone(), hint).into());
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
