//! Plan in force of a target, and its changes since they were last recorded in the data.

use std::collections::BTreeMap;

use polymeter_proto::ledger::{Cause, PlanChange};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Sampling;
use polymeter_proto::step_level::StepLevel;

use super::key::Now;
use super::tracked_target::TrackedTarget;
use crate::in_force::InForce;

pub(crate) const LEVELS: [Option<StepLevel>; 3] = [None, Some(StepLevel::Step), Some(StepLevel::Task)];

impl TrackedTarget {
    pub(crate) fn plan_in_force(&self) -> Vec<(String, InForce)> {
        self.plan_in_force_at(None)
    }

    /// Sampling of each sampled metric of steps or tasks, or of the whole target, with the reason.
    pub(crate) fn plan_in_force_at(&self, level: Option<StepLevel>) -> Vec<(String, InForce)> {
        let sampled = self.sources.sampled_at(level).into_iter();
        let in_force = sampled.filter_map(|(name, sources)| {
            let in_force = self.plan.in_force(level, &name)?.of_sources(&sources);
            Some((name, in_force))
        });
        in_force.collect()
    }

    /// What has changed since the plan was last recorded: new periods, and metrics that are not sampled any
    /// more. Without `cause`, the cause is the layer whose period is in force.
    pub(crate) fn plan_changes(&mut self, cause: Option<Cause>, now: Now) -> Vec<PlanChange> {
        LEVELS.into_iter().flat_map(|level| self.plan_changes_at(level, cause, now)).collect()
    }

    fn plan_changes_at(
        &mut self,
        level: Option<StepLevel>,
        cause: Option<Cause>,
        now: Now,
    ) -> Vec<PlanChange> {
        let job = self.handle();
        let in_force: BTreeMap<String, InForce> = self.plan_in_force_at(level).into_iter().collect();
        let mut changes = Vec::new();
        let mut change = |name: &str, old: Option<Sampling>, new: Option<&InForce>| {
            if let Ok(metric) = MetricName::new(name.to_owned()) {
                let layer = new.map_or(Cause::Baseline, InForce::recorded_cause);
                let (by, until_us) = new.map_or((None, None), |new| (new.by.clone(), new.until_us));
                let (new, cause) = (new.map(|new| new.sampling), cause.unwrap_or(layer));
                let at_us = now.realtime_us;
                changes.push(PlanChange { at_us, job, level, metric, old, new, cause, by, until_us });
            }
        };
        for (name, new) in &in_force {
            let old = self.recorded.get(&(level, name.clone())).copied();
            if old != Some(new.sampling) {
                change(name, old, Some(new));
            }
        }
        // A metric that disappeared with its device, cgroup or step is absent, but the plan has not changed.
        let ended: Vec<_> = self
            .recorded
            .keys()
            .filter(|(of, name)| *of == level && self.plan.sampling_at(level, name).is_none())
            .cloned()
            .collect();
        for key in ended {
            let old = self.recorded.remove(&key);
            change(&key.1, old, None);
        }
        let recorded = in_force.into_iter().map(|(name, new)| ((level, name), new.sampling));
        self.recorded.extend(recorded);
        changes
    }
}
