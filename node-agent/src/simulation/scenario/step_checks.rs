//! Invariants of steps and tasks.

use std::collections::{BTreeMap, BTreeSet};

use polymeter_proto::step_level::StepLevel;

use super::Scenario;
use crate::cgroups::Step;
use crate::targets::{TargetKey, TrackedTarget};

impl Scenario {
    /// Checks that the steps of a target are open with the metrics of its plan, and that leases only shorten
    /// their periods.
    pub(super) fn check_steps(&self, key: &TargetKey, target: &TrackedTarget) {
        let plan = &target.plan;
        let available = |level: StepLevel| -> BTreeSet<String> {
            let names = plan.step_definitions(level).into_iter().map(|definition| definition.name());
            names.filter(|name| !self.core.edge.missing.contains(name.as_str())).collect()
        };
        let present =
            target.found_at.as_ref().and_then(|path| self.core.edge.steps.get(path)).into_iter().flatten();
        let wanted = present.filter(|(_, step)| !available(step.level).is_empty());
        let wanted: BTreeMap<&String, &Step> = wanted.collect();
        let mut open: BTreeMap<&String, (&Step, BTreeSet<String>)> = BTreeMap::new();
        for source in target.sources.open().values() {
            let Some(step) = source.step.as_deref() else { continue };
            let sampled = source.slots.iter().map(|slot| slot.definition.name());
            let sampled = sampled.filter(|name| plan.step_sampling(step.level, name).is_some());
            open.entry(&step.name).or_insert_with(|| (step, BTreeSet::new())).1.extend(sampled);
        }
        let steps: BTreeMap<&String, &Step> = open.iter().map(|(name, (step, _))| (*name, *step)).collect();
        assert_eq!(steps, wanted, "the steps of {key:?}");
        for (name, (step, sampled)) in &open {
            assert_eq!(*sampled, available(step.level), "the metrics of {name} of {key:?}");
        }
        for level in StepLevel::ALL {
            let sampled = target.sources.sampled_at(Some(level));
            for (metric, in_force) in target.plan_in_force_at(Some(level)) {
                let leases = plan.leases.iter().filter(|lease| lease.level == Some(level));
                let stretch = 1 << plan.stretch;
                let longest =
                    leases.filter(|lease| lease.selector.matches(&metric)).map(|lease| lease.sampling.period);
                let longest_us = longest.map(|period| period.as_micros() * stretch);
                let interval = sampled[&metric].iter().filter_map(|(_, interval)| *interval);
                let interval_us = interval.map(|interval| interval.as_micros()).max().unwrap_or(0);
                let longest_us = longest_us.min().unwrap_or(u64::MAX).max(interval_us);
                assert!(
                    in_force.sampling.period.as_micros() <= longest_us,
                    "{metric} of {key:?} is slower than its lease"
                );
            }
        }
    }
}
