//! Leases: users change the periods of their own jobs, for a while, within what the administrator allows.

use polymeter_proto::catalogue::{self, Scope};
use polymeter_proto::ledger::Cause;
use polymeter_proto::period::Period;
use polymeter_proto::series::Identifier;

use super::followed::Followed;
use super::{Key, Manager};
use crate::clock;
use crate::plan::{Lease, Plan};
use crate::request::{Cost, Granted, SetError, SetSpec};

/// Leases of one job. More would only slow the plan down.
const LEASES: usize = 64;

/// What a read is assumed to take before it has been measured, in nanoseconds.
const READ_NS: f64 = 10_000.0;
/// What a wake-up costs beside the reads, in nanoseconds: estimated from one run at 1 ms, and not yet held against
/// measured costs at other periods.
const WAKE_NS: f64 = 5_000.0;
/// What a value costs from its text to the wire, in nanoseconds: estimated likewise.
const VALUE_NS: f64 = 40.0;
/// What a value takes on the wire, in bytes, at the rates at which that matters.
const VALUE_BYTES: f64 = 0.5;

impl Manager {
    /// Grants a lease, or says why not and what would be granted.
    pub(super) async fn set(&mut self, set: SetSpec) -> Result<Granted, SetError> {
        let key: Key = set.job_id.clone();
        let followed = self.followed.get(&key).ok_or(SetError::UnknownJob)?;
        check_right(set.uid, followed)?;
        let root = set.uid == 0;
        let now_us = clock::realtime_us();
        let until_us = self.lease_end(&set, root, now_us)?;
        let mut plan = followed.plan.clone();
        for (selector, period) in &set.wishes {
            // Asked once more, the same wish is another one in its place.
            plan.leases.retain(|lease| lease.uid != set.uid || lease.selector != *selector);
            plan.leases.push(Lease { selector: selector.clone(), period: *period, uid: set.uid, until_us });
        }
        if plan.leases.len() > LEASES {
            return Err(SetError::TooMany(LEASES));
        }
        if !root {
            self.check_budget(&key, &plan, set.uid)?;
        }
        let Some(mut followed) = self.followed.remove(&key) else { return Err(SetError::UnknownJob) };
        let before = std::mem::replace(&mut followed.plan, plan);
        self.open(&key, &mut followed, false).await;
        let granted = granted(&followed, &set, until_us);
        if granted.metrics.is_empty() {
            followed.plan = before;
            self.open(&key, &mut followed, false).await;
        }
        self.tell_plan(&mut followed, None).await;
        let cost = self.cost(&key, &followed, &followed.plan);
        self.followed.insert(key, followed);
        self.count();
        if granted.metrics.is_empty() {
            Err(SetError::Unavailable(granted.unavailable))
        } else {
            Ok(Granted { cost, ..granted })
        }
    }

    fn lease_end(&self, set: &SetSpec, root: bool, now_us: i64) -> Result<i64, SetError> {
        let limits = &self.config.limits;
        let longest_us = limits.longest_lease.as_micros();
        let duration_us = set.duration_us.unwrap_or(longest_us);
        if !root && set.wishes.iter().any(|(_, period)| *period < limits.shortest_period) {
            return Err(SetError::TooShort(limits.shortest_period));
        }
        if !root && duration_us > longest_us {
            return Err(SetError::TooLong(limits.longest_lease));
        }
        Ok(now_us.saturating_add_unsigned(duration_us))
    }

    /// Whether a plan of one subject is within the budgets, and which period of the leases of `uid` would be.
    fn check_budget(&self, key: &Key, plan: &Plan, uid: u32) -> Result<(), SetError> {
        let Some(followed) = self.followed.get(key) else { return Err(SetError::UnknownJob) };
        let others = self.followed.iter().filter(|(other, _)| *other != key);
        let others_percent: f64 =
            others.map(|(other, followed)| self.cost(other, followed, &followed.plan).cpu_percent).sum();
        let exceeded = |plan: &Plan| self.exceeded(self.cost(key, followed, plan), others_percent);
        let Some(limit) = exceeded(plan) else { return Ok(()) };
        if self.cost(key, followed, plan).cpu_percent <= self.cost(key, followed, &followed.plan).cpu_percent
        {
            // The budget was used up before, by root perhaps; what costs no more does no more harm.
            return Ok(());
        }
        let mut slower = plan.clone();
        let mut instead = None;
        // Twice as long until it fits; at most some thirty steps from 100 µs to a day.
        while instead.is_none() {
            let mut longest = None;
            for lease in slower.leases.iter_mut().filter(|lease| lease.uid == uid) {
                let Ok(doubled) = Period::from_micros(lease.period.as_micros() * 2) else { continue };
                lease.period = doubled;
                longest = longest.max(Some(doubled));
            }
            if longest.is_none() {
                break;
            }
            instead = longest.filter(|_| exceeded(&slower).is_none());
        }
        Err(SetError::OverBudget { limit, cost: self.cost(key, followed, plan), instead })
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

    /// What sampling a subject by a plan costs, from the measured cost of a read of each of its sources. A metric that
    /// is not sampled yet is taken for a source of its own, which is dearer than it can become.
    fn cost(&self, key: &Key, followed: &Followed, plan: &Plan) -> Cost {
        debug_assert_eq!(key.is_some(), followed.job.is_some());
        let measured = self.board.of(followed.job.as_ref().map(|job| job.handle));
        let read_ns = |name: &str| {
            let cost = measured.iter().find(|(source, ..)| source == name).map(|(.., cost)| cost);
            let mean_ns = cost.and_then(|cost| cost.total_ns.checked_div(cost.reads));
            mean_ns.map_or(READ_NS, |ns| f64::from(u32::try_from(ns).unwrap_or(u32::MAX)))
        };
        let mut sum = Sum::default();
        for (name, source) in &followed.sources {
            let periods = source.slots.iter().filter_map(|slot| plan.period(&slot.definition.name()));
            sum.add(&periods.map(|(period, _)| period).collect::<Vec<_>>(), read_ns(name));
        }
        let sampled = |name: &str| {
            let mut slots = followed.sources.values().flat_map(|source| &source.slots);
            slots.any(|slot| slot.definition.name() == name)
        };
        for lease in &plan.leases {
            for definition in catalogue::select(&lease.selector) {
                let of_subject = (definition.metric.scope == Scope::Job) == followed.job.is_some();
                let missing = followed.unavailable.iter().any(|(metric, _)| *metric == definition.name());
                if of_subject && !missing && !sampled(&definition.name()) {
                    sum.add(&[lease.period], READ_NS / 10.0);
                }
            }
        }
        sum.cost()
    }

    /// Ends the leases of one user on a job; root's word ends all. Says how many ended.
    pub(super) async fn reset(&mut self, uid: u32, job_id: Option<Identifier>) -> Result<usize, SetError> {
        let followed = self.followed.get(&job_id).ok_or(SetError::UnknownJob)?;
        check_right(uid, followed)?;
        Ok(self.drop_leases(&job_id, |lease| uid == 0 || lease.uid == uid).await)
    }

    /// When the next lease ends, in microseconds since the epoch.
    pub(super) fn next_lease_end(&self) -> Option<i64> {
        let leases = self.followed.values().flat_map(|followed| &followed.plan.leases);
        leases.map(|lease| lease.until_us).min()
    }

    /// Ends the leases whose time has come.
    pub(super) async fn end_leases(&mut self) {
        let now_us = clock::realtime_us();
        let keys: Vec<Key> = self.followed.keys().cloned().collect();
        for key in keys {
            self.drop_leases(&key, |lease| lease.until_us <= now_us).await;
        }
    }

    async fn drop_leases(&mut self, key: &Key, ends: impl Fn(&Lease) -> bool) -> usize {
        let has_some = self.followed.get(key).is_some_and(|followed| followed.plan.leases.iter().any(&ends));
        if !has_some {
            return 0;
        }
        let Some(mut followed) = self.followed.remove(key) else { return 0 };
        let before = followed.plan.leases.len();
        followed.plan.leases.retain(|lease| !ends(lease));
        let ended = before - followed.plan.leases.len();
        self.open(key, &mut followed, false).await;
        self.tell_plan(&mut followed, Some(Cause::LeaseEnd)).await;
        self.followed.insert(key.clone(), followed);
        self.count();
        ended
    }
}

/// Root may change everything, a job's owner her job, nobody else anything.
fn check_right(uid: u32, followed: &Followed) -> Result<(), SetError> {
    let owner = followed.job.as_ref().and_then(|job| job.descriptor.owner_uid);
    if uid == 0 || owner == Some(uid) { Ok(()) } else { Err(SetError::Forbidden) }
}

/// What the wishes have come to: the metrics that are sampled, and those that cannot be.
fn granted(followed: &Followed, set: &SetSpec, until_us: i64) -> Granted {
    let chosen = |name: &str| set.wishes.iter().any(|(selector, _)| selector.matches(name));
    let in_force = followed.plan_in_force().into_iter().filter(|(name, _)| chosen(name));
    let unavailable = followed.unavailable.iter().filter(|(name, _)| chosen(name)).cloned();
    Granted {
        metrics: in_force.map(|(name, in_force)| (name, in_force.period)).collect(),
        unavailable: unavailable.collect(),
        cost: Cost::default(),
        until_us,
    }
}

/// Adds up what sources cost.
#[derive(Debug, Default)]
struct Sum {
    ns_per_s: f64,
    samples_per_s: f64,
    wakes_per_s: f64,
}

impl Sum {
    /// A source whose metrics have these periods and whose read takes `read_ns`. Periods that divide one another share
    /// reads, as all that people write do.
    fn add(&mut self, periods: &[Period], read_ns: f64) {
        let per_second =
            |period: &Period| 1e6 / f64::from(u32::try_from(period.as_micros()).unwrap_or(u32::MAX));
        let fastest = periods.iter().map(per_second).fold(0.0, f64::max);
        let samples: f64 = periods.iter().map(per_second).sum();
        self.ns_per_s += fastest * read_ns + samples * VALUE_NS;
        self.samples_per_s += samples;
        self.wakes_per_s = self.wakes_per_s.max(fastest);
    }

    fn cost(&self) -> Cost {
        Cost {
            cpu_percent: (self.ns_per_s + self.wakes_per_s * WAKE_NS) / 1e7,
            samples_per_s: self.samples_per_s,
            bytes_per_s: self.samples_per_s * VALUE_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_shared_and_values_are_not() {
        let mut sum = Sum::default();
        sum.add(&[Period::MILLISECOND, Period::SECOND], 10_000.0);
        let cost = sum.cost();
        assert!((cost.samples_per_s - 1001.0).abs() < 0.01);
        // A thousand reads of 10 µs and as many wake-ups of 5 µs, 40 ns a value.
        assert!((cost.cpu_percent - 1.504).abs() < 0.001, "{cost:?}");
    }
}
