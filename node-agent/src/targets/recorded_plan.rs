//! Plan in force of a target, and its changes since they were last recorded in the data.

use std::collections::{BTreeMap, BTreeSet};

use polymeter_proto::catalogue::RING_METRICS;
use polymeter_proto::ledger::{Cause, PlanChange};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Sampling;
use polymeter_proto::step_level::StepLevel;

use super::key::Now;
use super::tracked_target::TrackedTarget;
use crate::in_force::InForce;
use crate::plan::{Lease, is_of_devices};

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

    /// Sampling into the ring. The names begin with [`RING_METRICS`].
    pub(crate) fn ring_in_force(&self) -> Vec<(String, InForce)> {
        if !self.plan.has_ring() {
            return Vec::new();
        }
        let sampled = self.sources.sampled_at(None).into_iter();
        let in_force = sampled.filter_map(|(name, sources)| {
            let in_force = self.plan.ring_in_force(&name)?.of_sources(&sources);
            Some((format!("{RING_METRICS}{name}"), in_force))
        });
        in_force.filter(|_| self.job.is_some()).collect()
    }

    /// Returns the demands of a job on the devices that serve this node: the shortest period of each
    /// selector.
    pub(crate) fn device_demands(&self) -> Vec<(String, InForce)> {
        let mut demands: BTreeMap<&str, &Lease> = BTreeMap::new();
        for lease in self.device_leases() {
            let shortest = demands.entry(lease.selector.as_str()).or_insert(lease);
            if lease.sampling.period < shortest.sampling.period {
                *shortest = lease;
            }
        }
        demands.into_iter().map(|(selector, lease)| (selector.to_owned(), lease.in_force())).collect()
    }

    pub(crate) fn device_leases(&self) -> impl Iterator<Item = &Lease> {
        let leases = self.plan.leases.iter().filter(|_| self.job.is_some());
        leases.filter(|lease| lease.level.is_none() && !lease.is_ring && is_of_devices(&lease.selector))
    }

    fn is_planned(&self, level: Option<StepLevel>, name: &str) -> bool {
        match name.strip_prefix(RING_METRICS) {
            Some(name) => self.plan.ring_sampling(name).is_some(),
            None => self.plan.sampling_at(level, name).is_some(),
        }
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
        let mut in_force: BTreeMap<String, InForce> = self.plan_in_force_at(level).into_iter().collect();
        if level.is_none() {
            in_force.extend(self.ring_in_force());
        }
        let mut changes = self.record(level, in_force, cause, now);
        // A metric that disappeared with its device, cgroup or step is absent, but the plan has not changed.
        let ended: Vec<_> = self
            .recorded
            .keys()
            .filter(|(of, name)| *of == level && !self.is_planned(level, name))
            .cloned()
            .collect();
        for key in ended {
            let old = self.recorded.remove(&key);
            changes.extend(self.change((level, &key.1), old, None, cause, now));
        }
        changes
    }

    /// Returns what has changed in the plan of the metrics of some sources.
    pub(crate) fn plan_changes_of(&mut self, sources: &BTreeSet<String>, now: Now) -> Vec<PlanChange> {
        let sampled = self.sources.sampled_by(sources).into_iter();
        let in_force = sampled.filter_map(|(name, sources)| {
            let in_force = self.plan.in_force(None, &name)?.of_sources(&sources);
            Some((name, in_force))
        });
        let in_force = in_force.collect();
        self.record(None, in_force, None, now)
    }

    /// Records the samplings in force of some metrics. Returns those that differ from the recorded ones.
    fn record(
        &mut self,
        level: Option<StepLevel>,
        in_force: BTreeMap<String, InForce>,
        cause: Option<Cause>,
        now: Now,
    ) -> Vec<PlanChange> {
        let mut changes = Vec::new();
        for (name, new) in in_force {
            let old = self.recorded.get(&(level, name.clone())).copied();
            if old != Some(new.sampling) {
                changes.extend(self.change((level, &name), old, Some(&new), cause, now));
                self.recorded.insert((level, name), new.sampling);
            }
        }
        changes
    }

    fn change(
        &self,
        (level, name): (Option<StepLevel>, &str),
        old: Option<Sampling>,
        new: Option<&InForce>,
        cause: Option<Cause>,
        now: Now,
    ) -> Option<PlanChange> {
        let metric = MetricName::new(name.to_owned()).ok()?;
        let layer = new.map_or(Cause::Baseline, InForce::recorded_cause);
        let (by, until_us) = new.map_or((None, None), |new| (new.by.clone(), new.until_us));
        let (new, cause) = (new.map(|new| new.sampling), cause.unwrap_or(layer));
        let (at_us, job) = (now.realtime_us, self.handle());
        Some(PlanChange { at_us, job, level, metric, old, new, cause, by, until_us })
    }
}
