//! The sources of steps and tasks: opened when these begin or their plan changes, and closed when they end.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::dispatcher::Dispatcher;
use super::edge::Edge;
use crate::targets::{SourceOwner, TargetKey};

impl<E: Edge> Dispatcher<E> {
    /// Opens the sources of a target's steps and tasks that are new, have an additional controller's
    /// directory, or have further metrics in the plan, and closes those that are gone. True if any was opened
    /// or closed.
    pub(super) async fn update_steps(&mut self, key: &TargetKey) -> bool {
        self.spread_release(key);
        let Some(target) = self.targets.get_mut(key).filter(|target| target.may_have_steps()) else {
            return false;
        };
        let is_wanted = target.plan.wants_steps();
        let present = if is_wanted { self.edge.steps_of(target) } else { BTreeMap::new() };
        let mut stale = target.sources.retain_steps(&present);
        let (mut opened, mut perf_descriptors) = (Vec::new(), 0);
        for (name, step) in present {
            let Some(target) = self.targets.get_mut(key) else { return false };
            let definitions = target.step_definitions(step.level);
            if !target.sources.needs_step(&name, &definitions) || !self.edge.admits_step(key, target, &name) {
                continue;
            }
            let step = Arc::new(step);
            let wanted = target.sources.wanted_of_step(&name, &definitions, &mut stale);
            let (of_step, unavailable) = self.edge.open_step(target, &step, &wanted, perf_descriptors);
            perf_descriptors += of_step.iter().map(|opened| opened.source.perf_descriptors()).sum::<usize>();
            target.sources.add_step(step, wanted, &of_step, unavailable);
            opened.extend(of_step);
            self.read_exits().await;
        }
        let Some(target) = self.targets.get_mut(key) else { return false };
        let is_changed = !opened.is_empty() || !stale.is_empty();
        let owner = SourceOwner { key, job: target.job.as_ref(), plan: &target.plan };
        let changes = target.sources.commit_steps(self.edge.ids(), owner, opened, stale);
        self.tell_sampler(changes).await;
        is_changed
    }

    pub(crate) async fn find_steps(&mut self, key: &TargetKey) {
        if self.update_steps(key).await {
            self.record_plan(key, None).await;
        }
    }
}
