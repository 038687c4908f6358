//! Releases: times in which hardware events are closed, so that other programs may use the counters.

use polymeter_proto::ledger::Cause;

use super::leases::{ends, lease_us};
use super::machine::{Admission, ChangedPlan};
use crate::plan::Release;
use crate::principal::Principal;
use crate::request::{AccessError, LeaseError, ReleaseRequest};
use crate::targets::{Access, Now, TargetKey, Targets};

impl Admission {
    /// Releases the hardware events of a target, or of the node with all its jobs. A repeated request
    /// replaces the former one. Returns the time of its end, in microseconds since the epoch.
    pub(crate) fn release(
        &self,
        targets: &mut Targets,
        request: &ReleaseRequest,
        now: Now,
    ) -> Result<i64, LeaseError> {
        let ReleaseRequest { principal, job_id, since_us, duration_us } = request;
        let target = targets.access(*principal, job_id, Access::Change)?;
        let lasts_us = lease_us(&self.pricing.limits, *principal, *duration_us, *since_us, now)?;
        target.user_events.check_plan_changes(*principal, now.monotonic_ns)?;
        let (until_us, ends_ns) = ends(lasts_us, now);
        let target = targets.get_mut(job_id).ok_or(AccessError::Unknown)?;
        target.plan.releases.retain(|release| release.principal.uid != principal.uid);
        target.plan.releases.push(Release { principal: *principal, until_us, ends_ns });
        target.user_events.charge_plan_changes(1, now.monotonic_ns);
        Ok(until_us)
    }

    /// Ends the releases of a principal on a target; an administrator ends those of all. Returns how many
    /// ended, and the target if any did.
    pub(crate) fn resume(
        targets: &mut Targets,
        principal: Principal,
        key: &TargetKey,
    ) -> Result<(usize, Option<ChangedPlan>), AccessError> {
        targets.access(principal, key, Access::Change)?;
        let target = targets.get_mut(key).ok_or(AccessError::Unknown)?;
        let former = target.plan.releases.len();
        target.plan.releases.retain(|release| !principal.can_access(Some(release.principal.uid)));
        let ended = former - target.plan.releases.len();
        Ok((ended, (ended > 0).then(|| released(key))))
    }

    /// Ends the releases that have expired. Returns the targets that had any.
    pub(crate) fn expire_releases(targets: &mut Targets, now: Now) -> Vec<ChangedPlan> {
        let mut changed = Vec::new();
        for (key, target) in targets.iter_mut() {
            let former = target.plan.releases.len();
            target.plan.releases.retain(|release| release.ends_ns > now.monotonic_ns);
            if target.plan.releases.len() < former {
                changed.push(released(key));
            }
        }
        changed
    }
}

pub(crate) fn released(key: &TargetKey) -> ChangedPlan {
    ChangedPlan { key: key.clone(), has_steps: key.is_some(), cause: Some(Cause::LeaseEnd) }
}
