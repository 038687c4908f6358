//! Rules that tell demands of jobs on devices from the leases of users of this node.

use crate::plan::{Lease, Plan};
use crate::request::{AccessError, LeaseError, LeaseRequest};
use crate::targets::{Access, Now, Targets, TrackedTarget};

/// Most leases of one target. More would make plans slow to compute.
const LEASES: usize = 64;

/// Most metrics that all jobs together demand. Each is looked through for each metric of each device.
const DEMANDS: usize = 1_024;

/// Most metrics that the jobs of one user demand.
const DEMANDS_OF_USER: usize = DEMANDS / 4;

/// Target of a request, if the requester may change it. Of a demand the collector has checked that.
pub(super) fn permitted<'a>(
    targets: &'a Targets,
    request: &LeaseRequest,
) -> Result<&'a TrackedTarget, AccessError> {
    match request.demanded_by {
        Some(_) => targets.get(&request.job_id).ok_or(AccessError::Unknown),
        None => targets.access(request.principal, &request.job_id, Access::Change),
    }
}

/// True for a lease of an earlier demand of the same job and user.
pub(super) fn is_of_demand(lease: &Lease, request: &LeaseRequest) -> bool {
    request.demanded_by.is_some()
        && lease.demanded_by == request.demanded_by
        && lease.principal.uid == request.principal.uid
}

/// Refuses a plan with too many leases of the kind of the request.
pub(super) fn check_room(plan: &Plan, request: &LeaseRequest) -> Result<(), LeaseError> {
    let (mut of_users, mut demands, mut of_user) = (0, 0, 0);
    for lease in &plan.leases {
        match lease.demanded_by {
            None => of_users += 1,
            Some(_) => {
                demands += 1;
                of_user += usize::from(lease.principal.uid == request.principal.uid);
            }
        }
    }
    match request.demanded_by {
        None if of_users > LEASES => Err(LeaseError::TooMany(LEASES)),
        Some(_) if of_user > DEMANDS_OF_USER => Err(LeaseError::TooManyDemands(DEMANDS_OF_USER)),
        Some(_) if demands > DEMANDS => Err(LeaseError::TooManyDemands(DEMANDS)),
        None | Some(_) => Ok(()),
    }
}

/// Charges a user for the changes of the plan that a demand causes, at its begin and at its end.
pub(super) fn charge_demand(target: &mut TrackedTarget, request: &LeaseRequest, now: Now) {
    if request.demanded_by.is_some() {
        let count = u32::try_from(2 * request.metrics.len()).unwrap_or(u32::MAX);
        target.user_events.charge_demand(request.principal, count, now.monotonic_ns);
    }
}
