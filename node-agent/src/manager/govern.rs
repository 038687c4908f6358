//! The governor at work: what was used is measured, and leases are stretched or given back.

use std::time::Duration;

use polymeter_proto::ledger::Cause;

use super::{Manager, TargetKey, describe};
use crate::admission::governor::{Budgets, Load, Step};
use crate::clock;
use crate::log;
use crate::plan::Plan;

/// How often the governor looks. Long enough that one slow moment is none, short enough that nobody suffers long.
pub(super) const EVERY: Duration = Duration::from_secs(2);

/// CPU time as it was when the governor looked last.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Used {
    at_ns: u64,
    cpu_ns: u64,
}

impl Used {
    /// What sampling has used now. The manager's own thread is not counted: it is busy with what people ask, which has
    /// an allowance of its own, and none of it is saved by a slower lease.
    fn now() -> Self {
        let cpu_ns = clock::process_cpu_ns().saturating_sub(clock::thread_cpu_ns());
        Self { at_ns: clock::monotonic_ns(), cpu_ns }
    }

    /// Percent of a CPU from `before` until this.
    fn percent_since(self, before: Self) -> Option<f64> {
        let cpu = Duration::from_nanos(self.cpu_ns.saturating_sub(before.cpu_ns)).as_secs_f64();
        let wall = Duration::from_nanos(self.at_ns.saturating_sub(before.at_ns)).as_secs_f64();
        (wall > 0.0).then(|| 100.0 * cpu / wall)
    }
}

impl Manager {
    /// Holds what was used since the last time against the budgets.
    pub(super) async fn govern(&mut self) {
        let before = std::mem::replace(&mut self.used, Used::now());
        let Some(used_percent) = self.used.percent_since(before).filter(|_| before.at_ns > 0) else { return };
        // Without leases there is nothing to govern, and nothing that a prediction would be needed for soon.
        if self.followed.values().all(|followed| followed.plan.leases.is_empty()) {
            return;
        }
        let plain = |plan: &Plan, key: &TargetKey| {
            self.followed.get(key).map_or(0.0, |followed| self.sum(followed, plan).cost(1.0).cpu_percent)
        };
        let mut keys = Vec::new();
        let mut loads = Vec::new();
        let mut predicted_percent = 0.0;
        for (key, followed) in &self.followed {
            let percent = plain(&followed.plan, key);
            predicted_percent += percent;
            let leases = &followed.plan.leases;
            if leases.is_empty() {
                continue;
            }
            let relaxed = Plan { stretch: followed.plan.stretch.saturating_sub(1), ..followed.plan.clone() };
            let baseline = Plan { leases: Vec::new(), ..followed.plan.clone() };
            keys.push(key.clone());
            loads.push(Load {
                percent,
                relaxed_percent: plain(&relaxed, key),
                baseline_percent: plain(&baseline, key),
                stretch: followed.plan.stretch,
                of_user: leases.iter().any(|lease| !lease.principal.administrator),
            });
        }
        self.governor.learn(used_percent, predicted_percent);
        let limits = &self.config.limits;
        let percent = |limit: u64| f64::from(u32::try_from(limit).unwrap_or(u32::MAX));
        let budgets = Budgets {
            node_percent: percent(limits.node_cpu_percent),
            job_percent: percent(limits.job_cpu_percent),
        };
        let (at, stretches) = match self.governor.step(used_percent, budgets, &loads) {
            None => return,
            Some(Step::Stretch(at)) => (at, true),
            Some(Step::Relax(at)) => (at, false),
        };
        if let Some(key) = keys.get(at) {
            self.stretch(key, stretches, used_percent).await;
        }
    }

    async fn stretch(&mut self, key: &TargetKey, stretches: bool, used_percent: f64) {
        let Some(mut followed) = self.followed.remove(key) else { return };
        let stretch = followed.plan.stretch;
        followed.plan.stretch = if stretches { stretch.saturating_add(1) } else { stretch.saturating_sub(1) };
        log::info(&format!(
            "sampling takes {used_percent:.1} % of a CPU: leases of {} have {} times their periods now",
            describe(key),
            1_u64 << followed.plan.stretch
        ));
        self.open(key, &mut followed, false).await;
        self.tell_plan(&mut followed, Some(Cause::Governor)).await;
        self.followed.insert(key.clone(), followed);
    }
}
