//! The state of admission: the prices of this machine, and the administrator's limits.
//!
//! A lease is granted in steps, because only the sources know what can be sampled and what a read costs: the
//! check of the request, trial reads of metrics that are not sampled yet, the check of the budgets, the
//! opening of the sources. The supervisor takes these steps, for one request at a time.

use polymeter_proto::ledger::Cause;

use super::calibration::ExerciseTimes;
use super::governor::{Budgets, Load, Step};
use super::pricing::{Pricing, ReadTimes, budget};
use crate::config::Limits;
use crate::plan::Plan;
use crate::targets::{TargetKey, Targets, describe};

#[derive(Debug)]
pub(crate) struct Admission {
    pub(super) pricing: Pricing,
}

/// A target whose plan has changed: its sources and the data must follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChangedPlan {
    pub(crate) key: TargetKey,
    /// True if the plan of its steps or tasks has changed, too.
    pub(crate) has_steps: bool,
    /// Cause that is recorded in the data; none stands for the layer in force.
    pub(crate) cause: Option<Cause>,
}

impl Admission {
    pub(crate) fn new(limits: Limits, cpus: usize) -> Self {
        Self { pricing: Pricing::new(limits, cpus) }
    }

    pub(crate) const fn longest_lease_us(&self) -> u64 {
        self.pricing.limits.longest_lease.as_micros()
    }

    #[cfg(test)]
    pub(crate) fn predicted(
        &self,
        target: &crate::targets::TrackedTarget,
        plan: &Plan,
    ) -> crate::request::Cost {
        self.pricing.cost(target, plan, &ReadTimes::new())
    }

    /// Returns the time at which the next lease or release ends, on the monotonic clock.
    pub(crate) fn next_expiry_ns(targets: &Targets) -> Option<u64> {
        let plans = || targets.iter().map(|(_, target)| &target.plan);
        let leases = plans().flat_map(|plan| &plan.leases).map(|lease| lease.ends_ns);
        let releases = plans().flat_map(|plan| &plan.releases).map(|release| release.ends_ns);
        leases.chain(releases).min()
    }

    fn has_leases(targets: &Targets) -> bool {
        targets.iter().any(|(_, target)| !target.plan.leases.is_empty())
    }

    /// True if an agent that begins anew ends nothing before its time: no job is tracked, and neither a lease
    /// nor a release of the node runs.
    pub(crate) fn may_begin_anew(targets: &Targets) -> bool {
        targets.job_count() == 0 && Self::next_expiry_ns(targets).is_none()
    }

    pub(crate) fn calibrate(&mut self, times: ExerciseTimes) {
        self.pricing.calibration.add(times);
        self.pricing.is_asked = false;
    }

    /// True while prices need the present speed of the machine: those of leases, and of requests for leases
    /// since the last calibration.
    pub(crate) fn has_prices(&self, targets: &Targets) -> bool {
        self.pricing.is_asked || Self::has_leases(targets)
    }

    /// Puts other limits in force, and another standing plan for all targets. Returns the targets that it
    /// changes.
    pub(crate) fn reload(
        &mut self,
        targets: &mut Targets,
        limits: Limits,
        standing: &Plan,
    ) -> Vec<ChangedPlan> {
        self.pricing.limits = limits;
        let mut changed = Vec::new();
        for (key, target) in targets.iter_mut() {
            let plan = &mut target.plan;
            let has_same_baseline = plan.baseline == standing.baseline;
            let has_same_steps = plan.steps == standing.steps && plan.tasks == standing.tasks;
            plan.baseline = standing.baseline.clone();
            let has_steps = key.is_some() && !has_same_steps;
            if has_steps {
                (plan.steps, plan.tasks) = (standing.steps.clone(), standing.tasks.clone());
            }
            if !has_same_baseline || has_steps {
                changed.push(ChangedPlan { key: key.clone(), has_steps, cause: Some(Cause::Reload) });
            }
        }
        changed
    }

    /// Compares the CPU time of sampling, in percent of a CPU, with the budgets, and takes one step. Returns
    /// the target whose leases are now slower or faster, and a message about it.
    pub(crate) fn govern(
        &mut self,
        targets: &mut Targets,
        used_percent: f64,
        read_times: &ReadTimes,
    ) -> Option<(ChangedPlan, String)> {
        // Without leases there is nothing to govern, and no prediction is needed soon.
        if !Self::has_leases(targets) {
            return None;
        }
        let (mut keys, mut loads, mut predicted_percent) = (Vec::new(), Vec::new(), 0.0);
        for (key, target) in targets.iter() {
            let predicted = |plan: &Plan| self.pricing.sum(target, plan, read_times).cost(1.0).cpu_percent;
            let percent = predicted(&target.plan);
            predicted_percent += percent;
            let leases = &target.plan.leases;
            if leases.is_empty() {
                continue;
            }
            let relaxed = Plan { stretch: target.plan.stretch.saturating_sub(1), ..target.plan.clone() };
            let baseline = Plan { leases: Vec::new(), ..target.plan.clone() };
            keys.push(key.clone());
            loads.push(Load {
                percent,
                relaxed_percent: predicted(&relaxed),
                baseline_percent: predicted(&baseline),
                stretch: target.plan.stretch,
                is_user: leases.iter().any(|lease| !lease.principal.administrator),
            });
        }
        self.pricing.governor.learn(used_percent, predicted_percent);
        let budgets = Budgets {
            node_percent: budget(self.pricing.limits.node_cpu_percent),
            job_percent: budget(self.pricing.limits.job_cpu_percent),
        };
        let (position, is_slower) = match self.pricing.governor.step(used_percent, budgets, &loads)? {
            Step::Stretch(position) => (position, true),
            Step::Relax(position) => (position, false),
        };
        let key = keys.get(position)?;
        let stretch = &mut targets.get_mut(key)?.plan.stretch;
        *stretch = if is_slower { stretch.saturating_add(1) } else { stretch.saturating_sub(1) };
        let message = format!(
            "sampling takes {used_percent:.1} % of a CPU: the governor now multiplies the lease periods of {} by {}",
            describe(key),
            1_u64 << *stretch
        );
        let changed = ChangedPlan { key: key.clone(), has_steps: false, cause: Some(Cause::Governor) };
        Some((changed, message))
    }
}
