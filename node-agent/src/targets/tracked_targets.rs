//! Registry of all tracked targets.

use std::collections::BTreeMap;

use polymeter_proto::series::Identifier;

use super::key::{Access, TargetKey};
use super::tracked_target::TrackedTarget;
use super::user_events::UserNames;
use crate::config::JobVisibility;
use crate::principal::Principal;
use crate::request::AccessError;

#[derive(Debug, Default)]
pub(crate) struct Targets {
    by_key: BTreeMap<TargetKey, TrackedTarget>,
    job_visibility: JobVisibility,
    pub(crate) user_names: UserNames,
}

impl Targets {
    pub(crate) fn new(job_visibility: JobVisibility) -> Self {
        Self { job_visibility, ..Self::default() }
    }

    pub(crate) fn set_job_visibility(&mut self, job_visibility: JobVisibility) {
        self.job_visibility = job_visibility;
    }

    /// Returns the target if the principal has this right to it. Every request that names a job is checked
    /// here before any other look-up of the job. A job that the principal may not see takes the same path as
    /// one that does not exist: one look-up, and no more.
    pub(crate) fn access(
        &self,
        principal: Principal,
        key: &TargetKey,
        wanted: Access,
    ) -> Result<&TrackedTarget, AccessError> {
        let target = self.by_key.get(key).ok_or(AccessError::Unknown)?;
        let is_owner = principal.can_access(target.owner_uid);
        let can_see = self.job_visibility == JobVisibility::All || is_owner;
        let is_allowed = match wanted {
            Access::See => can_see,
            Access::Change => is_owner,
        };
        // The existence of the node is no secret.
        match (is_allowed, can_see || key.is_none()) {
            (true, _) => Ok(target),
            (false, true) => Err(AccessError::Forbidden),
            (false, false) => Err(AccessError::Hidden),
        }
    }

    pub(crate) fn get(&self, key: &TargetKey) -> Option<&TrackedTarget> {
        self.by_key.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &TargetKey) -> Option<&mut TrackedTarget> {
        self.by_key.get_mut(key)
    }

    pub(crate) fn job(&self, job_id: &Identifier) -> Option<&TrackedTarget> {
        self.by_key.get(&Some(job_id.clone()))
    }

    pub(crate) fn insert(&mut self, key: TargetKey, target: TrackedTarget) {
        self.by_key.insert(key, target);
    }

    pub(crate) fn remove(&mut self, key: &TargetKey) -> Option<TrackedTarget> {
        self.by_key.remove(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TargetKey, &TrackedTarget)> {
        self.by_key.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&TargetKey, &mut TrackedTarget)> {
        self.by_key.iter_mut()
    }

    pub(crate) fn keys_where(&self, wanted: impl Fn(&TrackedTarget) -> bool) -> Vec<TargetKey> {
        self.by_key.iter().filter(|(_, target)| wanted(target)).map(|(key, _)| key.clone()).collect()
    }

    /// Number of jobs that discovery has found; the others were registered.
    pub(crate) fn found_count(&self) -> usize {
        self.by_key.values().filter(|target| target.found_at.is_some()).count()
    }

    pub(crate) fn job_count(&self) -> usize {
        self.by_key.keys().flatten().count()
    }
}

#[cfg(test)]
mod tests {
    use polymeter_proto::series::JobDescriptor;

    use super::super::ids::JobHandles;
    use super::*;
    use crate::cgroups::JobCgroups;
    use crate::plan::Plan;
    use crate::sources::Target;

    fn job(id: &str, owner_uid: Option<u32>) -> (TargetKey, TrackedTarget) {
        let job_id = Identifier::try_from(id).unwrap();
        let descriptor =
            JobDescriptor { job_id: job_id.clone(), cluster: None, owner_uid, owner: None, started_us: 0 };
        let job = JobHandles::default().assign(descriptor);
        let target = Target::Cgroups(JobCgroups::default());
        (Some(job_id), TrackedTarget::new(Some(job), target, Plan::default(), None))
    }

    #[test]
    fn an_invisible_job_is_denied_like_an_unknown_one() {
        let mut targets = Targets::new(JobVisibility::Own);
        let (key, target) = job("1", Some(7));
        targets.insert(key.clone(), target);
        let node = TrackedTarget::new(None, Target::Node(std::sync::Arc::default()), Plan::default(), None);
        targets.insert(None, node);
        let user = |uid| Principal { uid, administrator: false };
        let error = |targets: &Targets, uid, key: &TargetKey, wanted| {
            targets.access(user(uid), key, wanted).map(drop).unwrap_err()
        };
        let unknown = Identifier::try_from("2").ok();
        assert!(targets.access(user(7), &key, Access::Change).is_ok());
        assert_eq!(error(&targets, 8, &key, Access::See), AccessError::Hidden);
        assert_eq!(error(&targets, 8, &key, Access::Change), AccessError::Hidden);
        assert_eq!(error(&targets, 8, &unknown, Access::See), AccessError::Unknown);
        assert_eq!(AccessError::Hidden.to_string(), AccessError::Unknown.to_string());
        assert_eq!(error(&targets, 8, &None, Access::Change), AccessError::Forbidden);
        targets.set_job_visibility(JobVisibility::All);
        assert!(targets.access(user(8), &key, Access::See).is_ok());
        assert_eq!(error(&targets, 8, &key, Access::Change), AccessError::Forbidden);
        let root = Principal { uid: 0, administrator: true };
        assert!(targets.access(root, &key, Access::Change).is_ok());
    }
}
