//! Leases: users change the periods of their own jobs, for a while, within what the administrator allows.

use std::collections::{BTreeMap, BTreeSet};

use polymeter_proto::ledger::Cause;
use polymeter_proto::period::Period;
use polymeter_proto::series::Identifier;

use super::access::Access;
use super::tracked_target::TrackedTarget;
use super::{Manager, TargetKey};
use crate::admission::cost::{Read, Sum};
use crate::clock;
use crate::plan::{Lease, Plan};
use crate::principal::Principal;
use crate::request::{AccessError, Availability, Cost, LeaseError, LeaseGrant, LeaseRequest};

/// Why a metric is not sampled that can be had in principle.
const NOT_NOW: &str = "its file has no line of it at the moment";

/// Leases of one job. More would only slow the plan down.
const LEASES: usize = 64;

impl Manager {
    /// Grants a lease, or says why not and what would be granted.
    pub(super) async fn set(&mut self, set: LeaseRequest) -> Result<LeaseGrant, LeaseError> {
        let key: TargetKey = set.job_id.clone();
        let followed = self.access(set.principal, &key, Access::Change)?;
        let duration_us = self.duration_us(&set)?;
        let chosen = set.metrics.iter().flat_map(|(selector, _)| followed.choose(selector));
        let chosen: BTreeSet<String> = chosen.map(|definition| definition.name()).collect();
        if chosen.is_empty() {
            let selectors = set.metrics.iter().map(|(selector, _)| selector.to_string()).collect();
            return Err(LeaseError::NothingChosen { selectors, of_job: key.is_some() });
        }
        self.check_floors(&set, followed)?;
        let until_us = clock::realtime_us().saturating_add_unsigned(duration_us);
        let ends_ns = clock::monotonic_ns().saturating_add(duration_us.saturating_mul(1_000));
        let mut plan = followed.plan.clone();
        for (selector, period) in &set.metrics {
            // Asked once more, the same wish is another one in its place.
            plan.leases
                .retain(|lease| lease.principal.uid != set.principal.uid || lease.selector != *selector);
            let (selector, period, principal) = (selector.clone(), *period, set.principal);
            plan.leases.push(Lease { selector, period, principal, until_us, ends_ns });
        }
        if plan.leases.len() > LEASES {
            return Err(LeaseError::TooMany(LEASES));
        }
        let Some(mut followed) = self.followed.remove(&key) else { return Err(AccessError::Unknown.into()) };
        let wished = set.metrics.iter().flat_map(|(selector, _)| followed.choose(selector)).collect();
        self.probe(&mut followed, wished);
        if !set.principal.administrator
            && let Err(error) = self.check_budget(&key, &followed, &plan, &set)
        {
            self.followed.insert(key, followed);
            return Err(error);
        }
        let cost = self.cost(&followed, &plan);
        let before = std::mem::replace(&mut followed.plan, plan);
        self.open(&key, &mut followed, false).await;
        let granted = granted(&followed, &set, until_us);
        if granted.metrics.is_empty() {
            followed.plan = before;
            self.open(&key, &mut followed, false).await;
        }
        self.tell_plan(&mut followed, None).await;
        self.followed.insert(key, followed);
        self.count();
        if granted.metrics.is_empty() {
            // Not even a reason is known of what was open before and is not there at the moment.
            let chosen = chosen.into_iter().map(|name| (name, NOT_NOW.to_owned()));
            let missing = Some(granted.unavailable).filter(|missing| !missing.is_empty());
            Err(LeaseError::Unavailable(missing.unwrap_or_else(|| chosen.collect())))
        } else {
            Ok(LeaseGrant { cost, ..granted })
        }
    }

    /// How long the lease is to last, in microseconds.
    fn duration_us(&self, set: &LeaseRequest) -> Result<u64, LeaseError> {
        let longest = self.config.limits.longest_lease;
        let duration_us = set.duration_us.unwrap_or(longest.as_micros());
        if !set.principal.administrator && duration_us > longest.as_micros() {
            return Err(LeaseError::TooLong { longest });
        }
        let Some(since_us) = set.since_us else { return Ok(duration_us) };
        // What comes late ends when it ends on the job's other nodes.
        let left_us = since_us.saturating_add_unsigned(duration_us).saturating_sub(clock::realtime_us());
        u64::try_from(left_us).ok().filter(|left_us| *left_us > 0).ok_or(LeaseError::Expired)
    }

    /// Whether no metric would be sampled at a shorter period than users may ask for.
    fn check_floors(&self, set: &LeaseRequest, followed: &TrackedTarget) -> Result<(), LeaseError> {
        if set.principal.administrator {
            return Ok(());
        }
        let floors = set.metrics.iter().flat_map(|(selector, period)| {
            let chosen = followed.choose(selector).into_iter();
            chosen.map(|definition| {
                let metric = definition.name();
                (self.config.limits.shortest_period(&metric), metric, *period)
            })
        });
        // The longest floor is the period at which all of it would be granted.
        match floors.filter(|(shortest, _, wished)| wished < shortest).max() {
            None => Ok(()),
            Some((shortest, metric, requested)) => Err(LeaseError::TooShort { metric, requested, shortest }),
        }
    }

    /// Whether a plan of one target is within the budgets, and how short the periods of what is wished might be.
    fn check_budget(
        &self,
        key: &TargetKey,
        followed: &TrackedTarget,
        plan: &Plan,
        set: &LeaseRequest,
    ) -> Result<(), LeaseError> {
        let others = self.followed.iter().filter(|(other, _)| *other != key);
        let others_percent: f64 =
            others.map(|(_, followed)| self.cost(followed, &followed.plan).cpu_percent).sum();
        let cost = self.cost(followed, plan);
        let exceeded = |plan: &Plan| self.exceeded(self.cost(followed, plan), others_percent);
        let Some(limit) = exceeded(plan) else { return Ok(()) };
        if cost.cpu_percent <= self.cost(followed, &followed.plan).cpu_percent {
            // The budget was used up before, by an administrator perhaps; what costs no more does no more harm.
            return Ok(());
        }
        // Twice as long until it fits; at most some thirty steps from 100 µs to a day.
        let shortest = set.metrics.iter().map(|(_, period)| *period).min();
        let doubled = |period: &Period| Period::from_micros(period.as_micros() * 2).ok();
        let instead = std::iter::successors(shortest, doubled).find(|period| {
            let mut slower = plan.clone();
            // What is wished now stands behind all other leases.
            for lease in slower.leases.iter_mut().rev().take(set.metrics.len()) {
                lease.period = lease.period.max(*period);
            }
            exceeded(&slower).is_none()
        });
        Err(LeaseError::OverBudget { limit, cost, instead })
    }

    fn exceeded(&self, cost: Cost, others_percent: f64) -> Option<&'static str> {
        let limits = &self.config.limits;
        let over = |value: f64, limit: u64| value > f64::from(u32::try_from(limit).unwrap_or(u32::MAX));
        if over(cost.samples_per_s, limits.samples_per_second) {
            Some("samples_per_second")
        } else if over(cost.cpu_percent, limits.job_cpu_percent) {
            Some("job_cpu_percent")
        } else if over(cost.cpu_percent + others_percent, limits.node_cpu_percent) {
            Some("node_cpu_percent")
        } else {
            None
        }
    }

    /// What sampling a target by a plan costs, as it was found to be on this machine.
    pub(super) fn cost(&self, followed: &TrackedTarget, plan: &Plan) -> Cost {
        self.sum(followed, plan).cost(self.governor.slowness())
    }

    /// The parts of the cost. What a read takes is known from the data where the source is read at that period already,
    /// else from the probe; perf events that count already were not probed again.
    pub(super) fn sum(&self, followed: &TrackedTarget, plan: &Plan) -> Sum {
        let mut periods: BTreeMap<&str, Vec<Period>> = BTreeMap::new();
        let mut warm_ns: BTreeMap<&str, f64> = BTreeMap::new();
        let period = |plan: &Plan, name: &str| plan.period(name).map(|(period, _)| period);
        let mut sampled = BTreeSet::new();
        for (source, open) in &followed.sources {
            let wanted = periods.entry(source).or_default();
            for slot in &open.slots {
                let name = slot.definition.name();
                wanted.extend(open.period(plan, &name));
                if open.part.is_none() {
                    sampled.insert(name);
                }
            }
        }
        for (name, availability) in &followed.probe.found {
            let Availability::From { source, read_ns } = availability else { continue };
            let warm = warm_ns.entry(source).or_default();
            *warm = warm.max(*read_ns);
            if !sampled.contains(name)
                && let Some(period) = period(plan, name)
            {
                periods.entry(source).or_default().push(period);
            }
        }
        let recent_ns = self.recent_ns(followed);
        let mut sum = Sum::on(self.pulse.slowness());
        for (source, wanted) in periods {
            let open = followed.sources.get(source);
            let now = open.and_then(|open| {
                let periods =
                    open.slots.iter().map(|slot| open.period(&followed.plan, &slot.definition.name()));
                periods.flatten().min()
            });
            let read = match (recent_ns.get(source), warm_ns.get(source)) {
                (Some(recent), _) if now == wanted.iter().copied().min() => Read::Measured(*recent),
                (_, Some(warm)) => Read::Warm(*warm),
                (Some(recent), None) => Read::Measured(*recent),
                (None, None) => Read::Unknown,
            };
            sum.add(&wanted, read);
        }
        sum
    }

    /// ExitEvents the leases of one person on a job; an administrator's word ends all. Says how many ended.
    pub(super) async fn reset(
        &mut self,
        principal: Principal,
        job_id: Option<Identifier>,
    ) -> Result<usize, AccessError> {
        self.access(principal, &job_id, Access::Change)?;
        Ok(self.drop_leases(&job_id, |lease| principal.can_access(Some(lease.principal.uid))).await)
    }

    /// When the next lease ends, in nanoseconds of the monotonic clock.
    pub(super) fn next_lease_end(&self) -> Option<u64> {
        let leases = self.followed.values().flat_map(|followed| &followed.plan.leases);
        leases.map(|lease| lease.ends_ns).min()
    }

    /// ExitEvents the leases whose time has come.
    pub(super) async fn end_leases(&mut self) {
        let now_ns = clock::monotonic_ns();
        let keys: Vec<TargetKey> = self.followed.keys().cloned().collect();
        for key in keys {
            self.drop_leases(&key, |lease| lease.ends_ns <= now_ns).await;
        }
    }

    async fn drop_leases(&mut self, key: &TargetKey, ends: impl Fn(&Lease) -> bool) -> usize {
        let has_some = self.followed.get(key).is_some_and(|followed| followed.plan.leases.iter().any(&ends));
        if !has_some {
            return 0;
        }
        let Some(mut followed) = self.followed.remove(key) else { return 0 };
        let before = followed.plan.leases.len();
        followed.plan.leases.retain(|lease| !ends(lease));
        let ended = before - followed.plan.leases.len();
        if followed.plan.leases.is_empty() {
            followed.plan.stretch = 0;
        }
        self.open(key, &mut followed, false).await;
        self.tell_plan(&mut followed, Some(Cause::LeaseEnd)).await;
        self.followed.insert(key.clone(), followed);
        self.count();
        ended
    }
}

/// What the wishes have come to: the metrics that are sampled, and those that cannot be.
fn granted(followed: &TrackedTarget, set: &LeaseRequest, until_us: i64) -> LeaseGrant {
    let chosen = |name: &str| set.metrics.iter().any(|(selector, _)| selector.matches(name));
    let in_force = followed.plan_in_force().into_iter().filter(|(name, _)| chosen(name));
    let unavailable = followed.unavailable.iter().filter(|(name, _)| chosen(name)).cloned();
    LeaseGrant {
        metrics: in_force.map(|(name, in_force)| (name, in_force.period)).collect(),
        unavailable: unavailable.collect(),
        cost: Cost::default(),
        until_us,
    }
}
