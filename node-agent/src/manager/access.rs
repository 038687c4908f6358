//! Who may see and change what is tracked. Every request that names a job passes here, before anything else is found out
//! about the job.

use super::tracked_target::TrackedTarget;
use super::{Manager, TargetKey};
use crate::principal::Principal;
use crate::request::AccessError;

/// What a principal wants of a job or the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// See its plan, its metrics, its samples.
    See,
    /// Change how it is sampled, or add to its data.
    Change,
}

impl Manager {
    /// The job, or the node, if the principal may do that with it. A job that the principal may not see takes the same way
    /// as one that does not exist: one look-up, and no more.
    pub(super) fn access(
        &self,
        who: Principal,
        key: &TargetKey,
        wanted: Access,
    ) -> Result<&TrackedTarget, AccessError> {
        let followed = self.followed.get(key).ok_or(AccessError::Unknown)?;
        let may_see = self.rights.borrow().may_look(who, followed.owner_uid);
        let may = match wanted {
            Access::See => may_see,
            Access::Change => who.can_access(followed.owner_uid),
        };
        // That there is a node is no secret.
        match (may, may_see || key.is_none()) {
            (true, _) => Ok(followed),
            (false, true) => Err(AccessError::Forbidden),
            (false, false) => Err(AccessError::Hidden),
        }
    }
}
