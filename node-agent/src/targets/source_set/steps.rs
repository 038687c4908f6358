//! The sources of a target's steps and tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::SourceSet;
use crate::cgroups::{Step, StepAdmission};
use crate::sources::Opened;
use crate::targets::open_source::{OpenSource, SessionIds, SourceChanges, SourceOwner};

impl SourceSet {
    /// Returns true if steps or tasks have sources.
    pub(crate) fn has_steps(&self) -> bool {
        self.open.values().any(|source| source.step.is_some())
    }

    /// Forgets the open steps, which were opened for another plan: the next [`Self::retain_steps`] closes them.
    pub(crate) fn forget_steps(&mut self) {
        self.steps.clear();
    }

    /// Removes the sources of steps and tasks that are gone or have other cgroups now; [`Self::commit_steps`] closes
    /// them.
    pub(crate) fn retain_steps(&mut self, present: &BTreeMap<String, Step>) -> BTreeMap<String, OpenSource> {
        self.steps.retain(|name, step| present.get(name) == Some(&**step));
        let (kept, stale) = std::mem::take(&mut self.open).into_iter().partition(|(_, source)| {
            source.step.as_ref().is_none_or(|step| self.steps.contains_key(&step.name))
        });
        self.open = kept;
        stale
    }

    /// Returns true if the files of a step or task are open.
    pub(crate) fn has_step(&self, name: &str) -> bool {
        self.steps.contains_key(name)
    }

    /// Admits a step or task if it is known or within the limit.
    pub(crate) fn admit_step(&mut self, name: &str) -> StepAdmission {
        self.seen_steps.admit(name)
    }

    /// Records that the files of a step or task are open.
    pub(crate) fn add_step(&mut self, step: Arc<Step>) {
        self.steps.insert(step.name.clone(), step);
    }

    /// Replaces stale sources of steps and tasks by opened ones.
    pub(crate) fn commit_steps(
        &mut self,
        ids: &mut SessionIds,
        owner: SourceOwner<'_>,
        opened: Vec<Opened>,
        stale: BTreeMap<String, OpenSource>,
    ) -> SourceChanges {
        let mut changes = SourceChanges::default();
        self.replace(ids, owner, opened, stale, false, &mut changes);
        changes
    }
}
