//! Demands: leases on the metrics of devices that this agent polls, for jobs on the nodes that the devices
//! serve. The collector asks for them, and repeats it as long as they last.

use super::leases::{Granting, duration_us, end_leases, ends};
use super::machine::{Admission, ChangedPlan};
use super::pricing::ReadTimes;
use crate::plan::{Lease, Plan};
use crate::principal::Principal;
use crate::request::{AccessError, LeaseError, LeaseRequest};
use crate::targets::{Access, Now, Targets, TrackedTarget};
use polymeter_proto::series::Identifier;

/// Most leases of one target. More would make plans slow to compute.
const LEASES: usize = 64;

/// Most metrics that all jobs together demand. Each is looked through for each metric of each device.
const DEMANDS: usize = 1_024;

/// Most metrics that the jobs of one user demand.
const DEMANDS_OF_USER: usize = DEMANDS / 4;

impl Admission {
    /// Extends the leases of a demand that is repeated. Returns none if it asks for anything else than
    /// before.
    pub(crate) fn renew(
        &self,
        targets: &mut Targets,
        request: &LeaseRequest,
        read_times: &ReadTimes,
        now: Now,
    ) -> Option<Granting> {
        let (until_us, ends_ns) = ends(duration_us(&self.pricing.limits, request, now).ok()?, now);
        let target = targets.get_mut(&request.job_id)?;
        let leases = target.plan.leases.iter().filter(|lease| is_of_demand(lease, request));
        if !leases
            .map(|lease| (&lease.selector, lease.sampling))
            .eq(request.metrics.iter().map(|(s, p)| (s, *p)))
        {
            return None;
        }
        for lease in target.plan.leases.iter_mut().filter(|lease| is_of_demand(lease, request)) {
            (lease.until_us, lease.ends_ns) = (until_us, ends_ns);
        }
        let cost = self.pricing.cost(target, &target.plan, read_times);
        Some(Granting { request: request.clone(), former: target.plan.leases.clone(), cost, until_us })
    }

    /// Ends what a job demands of devices. Returns the node if that was anything.
    pub(crate) fn end_demand(targets: &mut Targets, by: Principal, job: &Identifier) -> Option<ChangedPlan> {
        let target = targets.get_mut(&None)?;
        let is_ended =
            |lease: &Lease| lease.demanded_by.as_ref() == Some(job) && lease.principal.uid == by.uid;
        end_leases(&None, target, is_ended)
    }
}

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
