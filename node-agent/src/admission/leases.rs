//! Leases: temporary changes of the periods of users' own jobs, within the administrator's limits.

use std::collections::{BTreeMap, BTreeSet};

use polymeter_proto::catalogue::{Definition, RING_METRICS};
use polymeter_proto::ledger::Cause;
use polymeter_proto::period::Period;
use polymeter_proto::step_level::StepLevel;

use super::demand_rules::{charge_demand, check_room, is_of_demand, permitted};
use super::machine::{Admission, ChangedPlan};
use super::pricing::{Pricing, ReadTimes};
use crate::config::Limits;
use crate::plan::{Lease, Plan, selects};
use crate::principal::Principal;
use crate::request::{AccessError, Availability, Cost, LeaseError, LeaseGrant, LeaseRequest, OF_DEVICES};
use crate::targets::{Access, Now, TargetKey, Targets, TrackedTarget};

const NOT_NOW: &str = "its file does not contain this metric now";

/// A lease whose sources are being opened.
#[derive(Debug)]
pub(crate) struct Granting {
    pub(super) request: LeaseRequest,
    pub(super) former: Vec<Lease>,
    pub(super) cost: Cost,
    pub(super) until_us: i64,
}

impl Granting {
    /// Outcome of the lease, once the sources of its target are open. If none of it can be sampled, restores
    /// the former leases.
    pub(crate) fn finish(self, target: &mut TrackedTarget) -> Result<LeaseGrant, LeaseError> {
        let granted = match self.request.level {
            None => granted(target, &self.request, self.cost, self.until_us),
            Some(level) => granted_of_steps(target, &self.request, level, self.cost, self.until_us),
        };
        if !granted.metrics.is_empty() {
            return Ok(granted);
        }
        target.plan.leases = self.former;
        if !granted.unavailable.is_empty() {
            return Err(LeaseError::Unavailable(granted.unavailable));
        }
        // A metric that was available when its source was opened and is absent now has no other reason.
        let names: BTreeSet<String> = choose(target, &self.request).iter().map(Definition::name).collect();
        Err(LeaseError::Unavailable(names.into_iter().map(|name| (name, NOT_NOW.to_owned())).collect()))
    }
}

impl Admission {
    /// Checks a lease request as far as possible before sources are opened. Returns the selected metrics.
    pub(crate) fn check(
        &self,
        targets: &Targets,
        request: &LeaseRequest,
        now: Now,
    ) -> Result<Vec<Definition>, LeaseError> {
        let limits = &self.pricing.limits;
        let target = permitted(targets, request)?;
        if request.is_ring && !limits.ring_leases && !request.principal.administrator {
            return Err(LeaseError::NoRings);
        }
        duration_us(limits, request, now)?;
        match &request.demanded_by {
            None => target.user_events.check_plan_changes(request.principal, now.monotonic_ns)?,
            Some(_) => target.user_events.check_demands(request.principal, now.monotonic_ns)?,
        }
        if let Some(level) = request.level
            && target.cgroups().is_none()
        {
            return Err(LeaseError::NoSteps(level));
        }
        let chosen = choose(target, request);
        if chosen.is_empty() && request.of_devices().next().is_none() {
            let selectors = request.metrics.iter().map(|(selector, _)| selector.to_string()).collect();
            let (of_job, level) = (request.job_id.is_some(), request.level);
            return Err(LeaseError::NothingChosen { selectors, of_job, level });
        }
        check_floors(limits, request, target)?;
        check_room(&with_lease(target, request, 0, 0), request)?;
        Ok(chosen)
    }

    /// Adds a lease whose metrics were probed to the plan of its target, if the budgets allow it.
    pub(crate) fn admit(
        &mut self,
        targets: &mut Targets,
        request: LeaseRequest,
        read_times: &ReadTimes,
        now: Now,
    ) -> Result<Granting, LeaseError> {
        let key = &request.job_id;
        let target = permitted(targets, &request)?;
        let duration_us = duration_us(&self.pricing.limits, &request, now)?;
        let (until_us, ends_ns) = ends(duration_us, now);
        let plan = with_lease(target, &request, until_us, ends_ns);
        check_room(&plan, &request)?;
        self.pricing.is_asked = true;
        if !request.principal.administrator {
            check_budgets(&self.pricing, targets, target, &plan, &request, read_times)?;
        }
        let cost = self.pricing.cost(target, &plan, read_times);
        let target = targets.get_mut(key).ok_or(AccessError::Unknown)?;
        let former = std::mem::replace(&mut target.plan, plan).leases;
        charge_demand(target, &request, now);
        Ok(Granting { request, former, cost, until_us })
    }

    /// Ends the leases of a principal on a target, with a level those of steps or tasks only; an
    /// administrator ends those of all. Returns how many ended, and the target if any did.
    pub(crate) fn reset(
        targets: &mut Targets,
        principal: Principal,
        key: &TargetKey,
        level: Option<StepLevel>,
    ) -> Result<(usize, Option<ChangedPlan>), AccessError> {
        targets.access(principal, key, Access::Change)?;
        let target = targets.get_mut(key).ok_or(AccessError::Unknown)?;
        let former = target.plan.leases.len();
        let changed = end_leases(key, target, |lease| {
            principal.can_access(Some(lease.principal.uid)) && (level.is_none() || lease.level == level)
        });
        Ok((former - target.plan.leases.len(), changed))
    }

    /// Ends the leases that have expired. Returns the targets that had any.
    pub(crate) fn expire(targets: &mut Targets, now: Now) -> Vec<ChangedPlan> {
        targets
            .iter_mut()
            .filter_map(|(key, target)| end_leases(key, target, |lease| lease.ends_ns <= now.monotonic_ns))
            .collect()
    }
}

pub(super) fn duration_us(limits: &Limits, request: &LeaseRequest, now: Now) -> Result<u64, LeaseError> {
    lease_us(limits, request.principal, request.duration_us, request.since_us, now)
}

/// End of a lease in microseconds since the epoch, and on the monotonic clock in nanoseconds.
pub(super) const fn ends(duration_us: u64, now: Now) -> (i64, u64) {
    let until_us = now.realtime_us.saturating_add_unsigned(duration_us);
    (until_us, now.monotonic_ns.saturating_add(duration_us.saturating_mul(1_000)))
}

/// Duration from now on, of a lease that is requested for a time since an instant.
pub(super) fn lease_us(
    limits: &Limits,
    principal: Principal,
    duration_us: Option<u64>,
    since_us: Option<i64>,
    now: Now,
) -> Result<u64, LeaseError> {
    let longest = limits.longest_lease;
    let duration_us = duration_us.unwrap_or(longest.as_micros());
    if !principal.administrator && duration_us > longest.as_micros() {
        return Err(LeaseError::TooLong { longest });
    }
    let Some(since_us) = since_us else { return Ok(duration_us) };
    // A late request ends at the same time as on the job's other nodes.
    let left_us = since_us.saturating_add_unsigned(duration_us).saturating_sub(now.realtime_us);
    u64::try_from(left_us).ok().filter(|left_us| *left_us > 0).ok_or(LeaseError::Expired)
}

/// Refuses a lease with a period below the shortest that users may request.
fn check_floors(limits: &Limits, request: &LeaseRequest, target: &TrackedTarget) -> Result<(), LeaseError> {
    if request.principal.administrator {
        return Ok(());
    }
    // The agents of the devices check what the selectors select.
    let of_devices = request.of_devices().map(|(selector, sampling)| {
        let metric = selector.to_string();
        (limits.shortest_period(&metric), metric, sampling.period)
    });
    let floors = request.metrics.iter().flat_map(|(selector, sampling)| {
        let chosen = target.choose(request.level, selector).into_iter();
        chosen.map(|definition| {
            let metric = definition.name();
            (limits.shortest_period(&metric), metric, sampling.period)
        })
    });
    // The longest of these limits is the period at which all of it would be granted.
    match floors.chain(of_devices).filter(|(shortest, _, requested)| requested < shortest).max() {
        None => Ok(()),
        Some((shortest, metric, requested)) => Err(LeaseError::TooShort { metric, requested, shortest }),
    }
}

/// Refuses a plan of a target that exceeds a budget, and determines the period at which the lease would be
/// granted.
fn check_budgets(
    pricing: &Pricing,
    targets: &Targets,
    target: &TrackedTarget,
    plan: &Plan,
    request: &LeaseRequest,
    read_times: &ReadTimes,
) -> Result<(), LeaseError> {
    let cost = |target: &TrackedTarget, plan: &Plan| pricing.cost(target, plan, read_times);
    let others = targets.iter().filter(|(key, _)| **key != request.job_id);
    let others_percent: f64 = others.map(|(_, other)| cost(other, &other.plan).cpu_percent).sum();
    let exceeded = |plan: &Plan| pricing.exceeded(cost(target, plan), others_percent);
    let Some(limit) = exceeded(plan) else { return Ok(()) };
    let cost_now = cost(target, &target.plan);
    let cost = cost(target, plan);
    if cost.cpu_percent <= cost_now.cpu_percent {
        // The budget was exceeded before, for example by an administrator; a plan that costs no more is
        // allowed.
        return Ok(());
    }
    // Doubles the period until it fits; at most some thirty steps from 100 µs to a day.
    let shortest = request.metrics.iter().map(|(_, sampling)| sampling.period).min();
    let instead = std::iter::successors(shortest, |period| Period::from_micros(period.as_micros() * 2).ok())
        .find(|period| {
            let mut slower = plan.clone();
            // The new leases are the last ones.
            for lease in slower.leases.iter_mut().rev().take(request.metrics.len()) {
                lease.sampling = lease.sampling.not_shorter(*period);
            }
            exceeded(&slower).is_none()
        });
    Err(LeaseError::OverBudget { limit, cost, instead })
}

/// Ends the leases of a target for which `is_ended` is true. Returns the target if any ended.
pub(super) fn end_leases(
    key: &TargetKey,
    target: &mut TrackedTarget,
    is_ended: impl Fn(&Lease) -> bool,
) -> Option<ChangedPlan> {
    let (ended, left): (Vec<Lease>, Vec<Lease>) =
        std::mem::take(&mut target.plan.leases).into_iter().partition(is_ended);
    target.plan.leases = left;
    if ended.is_empty() {
        return None;
    }
    if target.plan.leases.is_empty() {
        target.plan.stretch = 0;
    }
    let has_steps = ended.iter().any(|lease| lease.level.is_some());
    Some(ChangedPlan { key: key.clone(), has_steps, cause: Some(Cause::LeaseEnd) })
}

fn choose(target: &TrackedTarget, request: &LeaseRequest) -> Vec<Definition> {
    request.metrics.iter().flat_map(|(selector, _)| target.choose(request.level, selector)).collect()
}

/// Plan of a target with the leases of a request added at the end. A repeated request replaces the former
/// lease.
fn with_lease(target: &TrackedTarget, request: &LeaseRequest, until_us: i64, ends_ns: u64) -> Plan {
    let mut plan = target.plan.clone();
    plan.leases.retain(|lease| !is_of_demand(lease, request));
    for (selector, sampling) in &request.metrics {
        plan.leases.retain(|lease| {
            lease.principal.uid != request.principal.uid
                || lease.demanded_by.is_some()
                || request.demanded_by.is_some()
                || lease.level != request.level
                || lease.is_ring != request.is_ring
                || lease.selector != *selector
        });
        let (selector, sampling, principal) = (selector.clone(), *sampling, request.principal);
        let (level, is_ring) = (request.level, request.is_ring);
        let demanded_by = request.demanded_by.clone();
        plan.leases.push(Lease {
            level,
            is_ring,
            selector,
            sampling,
            principal,
            until_us,
            ends_ns,
            demanded_by,
        });
    }
    plan
}

fn granted(target: &TrackedTarget, request: &LeaseRequest, cost: Cost, until_us: i64) -> LeaseGrant {
    let machine = target.plan.machine;
    let is_chosen = |name: &str| {
        let name = name.strip_prefix(RING_METRICS).unwrap_or(name);
        request.metrics.iter().any(|(selector, _)| selects(machine, selector, name))
    };
    let mut in_force = if request.is_ring { target.ring_in_force() } else { target.plan_in_force() };
    in_force.retain(|(name, _)| is_chosen(name));
    let reasons = in_force.iter().filter_map(|(name, in_force)| Some((name.clone(), in_force.reason()?)));
    let mut reasons: BTreeMap<String, String> = reasons.collect();
    let mut demands = target.device_demands();
    demands.retain(|(name, _)| request.of_devices().any(|(selector, _)| selector.as_str() == name));
    reasons.extend(demands.iter().map(|(name, _)| (name.clone(), OF_DEVICES.to_owned())));
    let unavailable = target.sources.unavailable().filter(|(name, _)| is_chosen(name));
    let metrics = in_force.into_iter().chain(demands);
    LeaseGrant {
        reasons,
        metrics: metrics.map(|(name, in_force)| (name, in_force.sampling)).collect(),
        unavailable: unavailable.cloned().collect(),
        cost,
        until_us,
        step_targets: None,
    }
}

/// Outcome of a lease of steps or tasks. Where none is open, the lease holds for those that begin later: the
/// metrics are those that the job as a whole has.
fn granted_of_steps(
    target: &TrackedTarget,
    request: &LeaseRequest,
    level: StepLevel,
    cost: Cost,
    until_us: i64,
) -> LeaseGrant {
    let chosen: BTreeSet<String> = choose(target, request).iter().map(Definition::name).collect();
    let (mut in_force, targets) = (target.plan_in_force_at(Some(level)), target.sources.open_steps(level));
    let mut unavailable: Vec<(String, String)> = target.sources.missing_at(level).into_iter().collect();
    if targets == 0 {
        let found = target.findings.found();
        for name in &chosen {
            match (found.get(name), target.plan.in_force(Some(level), name)) {
                (Some(Availability::No(reason)), _) => unavailable.push((name.clone(), reason.clone())),
                (_, Some(planned)) => in_force.push((name.clone(), planned)),
                (_, None) => {}
            }
        }
    }
    in_force.retain(|(name, _)| chosen.contains(name));
    unavailable.retain(|(name, _)| chosen.contains(name));
    let reasons = in_force.iter().filter_map(|(name, in_force)| Some((name.clone(), in_force.reason()?)));
    LeaseGrant {
        reasons: reasons.collect(),
        metrics: in_force.into_iter().map(|(name, in_force)| (name, in_force.sampling)).collect(),
        unavailable,
        cost,
        until_us,
        step_targets: Some((level, targets)),
    }
}
