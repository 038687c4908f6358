//! Sources of a target's steps and tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use polymeter_proto::catalogue::Definition;
use polymeter_proto::step_level::StepLevel;

use super::{SourceSet, is_perf};
use crate::cgroups::{Step, StepAdmission};
use crate::sources::{Opened, Unavailable};
use crate::targets::open_source::{OpenSource, SessionIds, SourceChanges, SourceOwner};
use crate::targets::open_step::{OpenStep, WantedOfStep};

impl SourceSet {
    pub(crate) fn has_steps(&self) -> bool {
        self.open.values().any(|source| source.step.is_some())
    }

    pub(crate) fn open_steps(&self, level: StepLevel) -> usize {
        self.steps.values().filter(|open| open.step.level == level).count()
    }

    /// Unavailable metrics with the reasons, those of steps and tasks included. Equal reasons of several
    /// steps are one.
    pub(crate) fn unavailable_with_steps(&self) -> Vec<(String, String)> {
        let of_steps = StepLevel::ALL.into_iter().flat_map(|level| self.missing_at(level));
        let prefixed = of_steps.map(|(metric, reason)| (metric, format!("steps and tasks: {reason}")));
        let of_steps: BTreeSet<(String, String)> = prefixed.collect();
        self.unavailable().cloned().chain(of_steps).collect()
    }

    /// Perf events of steps or tasks that cannot be counted, with the reasons. Files are not mentioned: what
    /// is missing in those of a step is missing in its job's.
    pub(crate) fn missing_at(&self, level: StepLevel) -> BTreeSet<(String, String)> {
        let of_level = self.steps.values().filter(|open| open.step.level == level);
        let missing = of_level.flat_map(|open| &open.missing);
        missing.map(|missing| (missing.definition.name(), missing.reason.clone())).collect()
    }

    /// Removes the sources of steps and tasks that are gone or have other cgroups now; [`Self::commit_steps`]
    /// closes them.
    pub(crate) fn retain_steps(&mut self, present: &BTreeMap<String, Step>) -> BTreeMap<String, OpenSource> {
        self.steps.retain(|name, open| present.get(name) == Some(&*open.step));
        let (kept, stale) = std::mem::take(&mut self.open).into_iter().partition(|(_, source)| {
            source.step.as_ref().is_none_or(|step| self.steps.contains_key(&step.name))
        });
        self.open = kept;
        stale
    }

    /// True if sources of a step or task must be opened or closed for these metrics.
    pub(crate) fn needs_step(&self, name: &str, definitions: &[Definition]) -> bool {
        let Some(open) = self.steps.get(name) else { return !definitions.is_empty() };
        let (perf, files) = divided(definitions);
        open.is_stale
            || files != open.files
            || perf.iter().any(|definition| !open.perf.contains(definition))
            || self.kept_perf(open, &perf).len() < open.perf.len()
    }

    /// Perf events of an open step that stay open for these wanted ones: an unwanted one does with others of
    /// its group.
    fn kept_perf(&self, open: &OpenStep, perf: &[Definition]) -> Vec<Definition> {
        let of_step = self.open.values().filter(|source| source.step.as_ref() == Some(&open.step));
        let shared: Vec<&Definition> = of_step
            .filter(|source| has_wanted(source, perf))
            .flat_map(|source| source.slots.iter().map(|slot| &slot.definition))
            .collect();
        let known = open.perf.iter();
        known.filter(|known| perf.contains(known) || shared.contains(known)).cloned().collect()
    }

    /// What must be opened for these metrics of a step or task. Moves what must be closed or opened anew to
    /// `stale`.
    pub(crate) fn wanted_of_step(
        &mut self,
        name: &str,
        definitions: &[Definition],
        stale: &mut BTreeMap<String, OpenSource>,
    ) -> WantedOfStep {
        let (perf, files) = divided(definitions);
        let (mut kept_perf, mut first_perf_group, mut has_other_files) = (Vec::new(), 0, true);
        if let Some(open) = self.steps.get(name) {
            kept_perf = self.kept_perf(open, &perf);
            (first_perf_group, has_other_files) = (open.perf_groups, open.is_stale || files != open.files);
        }
        let (unwanted, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.open).into_iter().partition(|(source_name, source)| {
                let is_perf = is_perf_of_step(name, source_name);
                let is_closed = if is_perf { !has_wanted(source, &perf) } else { has_other_files };
                is_closed && source.step.as_ref().is_some_and(|step| step.name == name)
            });
        self.open = kept;
        stale.extend(unwanted);
        if let Some(open) = self.steps.get_mut(name) {
            open.missing.retain(|missing| kept_perf.contains(&missing.definition));
            open.perf.clone_from(&kept_perf);
        }
        let new_perf: Vec<Definition> =
            perf.into_iter().filter(|definition| !kept_perf.contains(definition)).collect();
        let definitions = files.iter().filter(|_| has_other_files).chain(&new_perf).cloned().collect();
        WantedOfStep { definitions, first_perf_group, files, new_perf }
    }

    pub(crate) fn admit_step(&mut self, name: &str) -> StepAdmission {
        self.seen_steps.admit(name)
    }

    /// Records that the wanted sources of a step or task are open, apart from `unavailable` ones. Without any
    /// it is forgotten.
    pub(crate) fn add_step(
        &mut self,
        step: Arc<Step>,
        wanted: WantedOfStep,
        opened: &[Opened],
        unavailable: Vec<Unavailable>,
    ) {
        let name = step.name.clone();
        let open = self.steps.entry(name.clone()).or_insert_with(|| OpenStep {
            step,
            files: Vec::new(),
            perf: Vec::new(),
            perf_groups: 0,
            missing: Vec::new(),
            may_recover: false,
            is_stale: false,
        });
        if wanted.definitions.len() > wanted.new_perf.len() {
            open.may_recover = unavailable.iter().any(|missing| missing.may_recover);
        }
        open.is_stale = false;
        open.perf_groups += opened.iter().filter(|opened| is_perf_of_step(&name, &opened.name)).count();
        open.files = wanted.files;
        open.perf.extend(wanted.new_perf);
        open.missing.extend(unavailable.into_iter().filter(|missing| missing.definition.is_perf()));
        if open.files.is_empty() && open.perf.is_empty() {
            self.steps.remove(&name);
        }
    }

    pub(crate) fn commit_steps(
        &mut self,
        ids: &mut SessionIds,
        owner: SourceOwner<'_>,
        opened: Vec<Opened>,
        stale: BTreeMap<String, OpenSource>,
    ) -> SourceChanges {
        let mut changes = SourceChanges::default();
        self.dormant.retain(|dormant| match &dormant.step {
            None => true,
            Some(step) => {
                let is_opened_anew = opened.iter().any(|opened| {
                    opened.step.as_ref() == Some(step) && !is_perf_of_step(&step.name, &opened.name)
                });
                !is_opened_anew && self.steps.get(&step.name).is_some_and(|open| open.step == *step)
            }
        });
        self.replace(ids, owner, opened, stale, false, &mut changes);
        changes
    }
}

fn divided(definitions: &[Definition]) -> (Vec<Definition>, Vec<Definition>) {
    definitions.iter().cloned().partition(Definition::is_perf)
}

fn has_wanted(source: &OpenSource, wanted: &[Definition]) -> bool {
    source.slots.iter().any(|slot| wanted.contains(&slot.definition))
}

/// True if the name is that of a perf source of a step or task.
fn is_perf_of_step(step: &str, source: &str) -> bool {
    source.strip_prefix(step).and_then(|rest| rest.strip_prefix('/')).is_some_and(is_perf)
}
