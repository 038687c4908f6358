//! One job, or the node, under sampling: its plan, its open sources, and what the data have been told of the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use polymeter_proto::batch::Job;
use polymeter_proto::catalogue::{Definition, Origin, Scope};
use polymeter_proto::ledger::{Cause, PlanChange};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::Labels;
use tokio::time::Instant;

use super::final_sample::RescanBudget;
use super::probe::Probe;
use super::refused_requests::RefusedRequests;
use super::user_events::Annotations;
use crate::cgroups::Mounts;
use crate::cgroups::{SeenSteps, Step};
use crate::clock;
use crate::lanes::{SeriesProgress, SourceId};
use crate::plan::{InForce, Plan};
use crate::sources::Target;
use crate::sources::{Descendants, Slot, Source};
use crate::targets::ids::SeriesIds;

/// A source that the sampler has.
#[derive(Debug)]
pub(super) struct OpenSource {
    pub(super) id: SourceId,
    pub(super) slots: Vec<Slot>,
    /// The part of the job that it is of; none for the whole job.
    pub(super) part: Option<Arc<Step>>,
    /// Whether it stays when files are opened anew: [`Source::is_lasting`].
    pub(super) is_lasting: bool,
    /// What finds the cgroups that are to be read with it.
    pub(super) below: Option<Descendants>,
}

impl OpenSource {
    /// The period of one of its metrics in a plan.
    pub(super) fn period(&self, plan: &Plan, name: &str) -> Option<Period> {
        match &self.part {
            None => plan.period(name).map(|(period, _)| period),
            Some(part) => plan.step_period(part.kind, name),
        }
    }
}

/// The perf events that were opened, or found missing, on one target. Opening them again would begin to count anew, so
/// that it is done only for another target, and else only what is new is opened.
#[derive(Debug, Default)]
pub(super) struct PerfOpened {
    pub(super) target: Option<PathBuf>,
    pub(super) definitions: Vec<Definition>,
    /// Groups that were opened so far, so that each has a name of its own.
    pub(super) groups: usize,
}

/// One job, or the node.
#[derive(Debug)]
pub(super) struct TrackedTarget {
    pub(super) job: Option<Arc<Job>>,
    pub(super) target: Target,
    pub(super) plan: Plan,
    pub(super) series: SeriesIds,
    /// What its counters have come to, by metric and labels.
    progress: BTreeMap<(String, Labels), Arc<SeriesProgress>>,
    pub(super) sources: BTreeMap<String, OpenSource>,
    /// Its parts whose files are open, by name.
    pub(super) parts: BTreeMap<String, Arc<Step>>,
    /// All parts that were followed.
    pub(super) seen_steps: SeenSteps,
    /// Files without a line of what is wanted, which is no reason to read them at any period but the rescan's.
    pub(super) dormant: Vec<Source>,
    pub(super) unavailable: Vec<(String, String)>,
    /// Where discovery found it; none for a job that was registered.
    pub(super) found_at: Option<PathBuf>,
    /// Whose job it is, where that is known; it may come to be known later than the job.
    pub(super) owner_uid: Option<u32>,
    /// When the name service was asked for its owner.
    pub(super) owner_asked_at: Option<Instant>,
    pub(super) annotations: Annotations,
    pub(super) refused: RefusedRequests,
    pub(super) stirs: RescanBudget,
    pub(super) probe: Probe,
    pub(super) reopen_at: Option<Instant>,
    pub(super) perf: PerfOpened,
    /// What the files that are open were opened for.
    pub(super) files: Vec<Definition>,
    /// The period of each metric that the data have been told.
    told: BTreeMap<String, Period>,
}

impl TrackedTarget {
    pub(super) fn new(job: Option<Arc<Job>>, target: Target, plan: Plan, found_at: Option<PathBuf>) -> Self {
        let owner_uid = job.as_ref().and_then(|job| job.descriptor.owner_uid);
        Self {
            job,
            target,
            plan,
            series: SeriesIds::new(),
            progress: BTreeMap::new(),
            sources: BTreeMap::new(),
            parts: BTreeMap::new(),
            seen_steps: SeenSteps::default(),
            dormant: Vec::new(),
            unavailable: Vec::new(),
            found_at,
            owner_uid,
            owner_asked_at: None,
            annotations: Annotations::default(),
            refused: RefusedRequests::default(),
            stirs: RescanBudget::default(),
            probe: Probe::default(),
            reopen_at: None,
            perf: PerfOpened { target: None, definitions: Vec::new(), groups: 0 },
            files: Vec::new(),
            told: BTreeMap::new(),
        }
    }

    /// What the counter of a slot has come to; each source that gives the series goes on from there.
    pub(super) fn progress(&mut self, slot: &Slot) -> Arc<SeriesProgress> {
        Arc::clone(self.progress.entry((slot.definition.name(), slot.labels.clone())).or_default())
    }

    /// Whether a source that is not opened anew gives a metric of the whole job.
    pub(super) fn has_lasting(&self, definition: &Definition) -> bool {
        let mut lasting = self.whole().filter(|(_, source)| source.is_lasting);
        lasting.any(|(_, source)| source.slots.iter().any(|slot| slot.definition == *definition))
    }

    /// The ids of its sources.
    pub(super) fn source_ids(&self) -> Vec<SourceId> {
        self.sources.values().map(|source| source.id).collect()
    }

    /// The sources of the whole of it, and not of a part, with their names.
    pub(super) fn whole(&self) -> impl Iterator<Item = (&String, &OpenSource)> {
        self.sources.iter().filter(|(_, source)| source.part.is_none())
    }

    /// Everything that its plan wants, perf events apart from the rest.
    pub(super) fn definitions(&self) -> (Vec<Definition>, Vec<Definition>) {
        let scopes: &[Scope] = if self.job.is_some() { &[Scope::Job] } else { &[Scope::Node, Scope::Agent] };
        let wanted = scopes.iter().flat_map(|scope| self.plan.definitions(*scope));
        wanted.partition(|definition| matches!(definition.metric.origins, [Origin::Perf(_)]))
    }

    /// What its perf events would be counted for now.
    pub(super) fn perf_target(&self, mounts: &Mounts) -> Option<PathBuf> {
        match &self.target {
            Target::Cgroups(cgroups) => cgroups.perf_directory(mounts).map(ToOwned::to_owned),
            Target::Processes(_) | Target::Node(_) => None,
        }
    }

    /// The period of each metric that is sampled, and because of what.
    pub(super) fn plan_in_force(&self) -> Vec<(String, InForce)> {
        let slots = self.whole().flat_map(|(_, source)| &source.slots);
        let names: BTreeSet<String> = slots.map(|slot| slot.definition.name()).collect();
        names
            .into_iter()
            .filter_map(|name| self.plan.in_force(&name).map(|in_force| (name, in_force)))
            .collect()
    }

    /// What has changed since the data were told the plan: new periods of what is sampled, and what is sampled no
    /// more. Without `cause`, the cause is the layer whose period is in force.
    pub(super) fn plan_changes(&mut self, cause: Option<Cause>) -> Vec<PlanChange> {
        let at_us = clock::realtime_us();
        let job = self.job.as_ref().map(|job| job.handle);
        let in_force: BTreeMap<String, InForce> = self.plan_in_force().into_iter().collect();
        let mut changes = Vec::new();
        let mut change = |name: &str, old: Option<Period>, new: Option<&InForce>| {
            if let Ok(metric) = MetricName::new(name.to_owned()) {
                let layer = new.map_or(Cause::Baseline, |new| new.cause);
                let (by, until_us) = new.map_or((None, None), |new| (new.by.clone(), new.until_us));
                let (new, cause) = (new.map(|new| new.period), cause.unwrap_or(layer));
                changes.push(PlanChange { at_us, job, metric, old, new, cause, by, until_us });
            }
        };
        for (name, new) in &in_force {
            let old = self.told.get(name).copied();
            if old != Some(new.period) {
                change(name, old, Some(new));
            }
        }
        // What merely went with its device or cgroup is absent; the plan has not changed.
        let ended: Vec<String> =
            self.told.keys().filter(|name| self.plan.period(name).is_none()).cloned().collect();
        for name in ended {
            let old = self.told.remove(&name);
            change(&name, old, None);
        }
        self.told.extend(in_force.into_iter().map(|(name, new)| (name, new.period)));
        changes
    }
}
