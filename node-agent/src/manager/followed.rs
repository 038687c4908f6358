//! One job, or the node, under sampling: its plan, its open sources, and what the data have been told of the plan.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use polymeter_proto::batch::Job;
use polymeter_proto::catalogue::{Definition, Origin, Scope};
use polymeter_proto::ledger::{Cause, PlanChange};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use tokio::time::Instant;

use crate::clock;
use crate::jobs::hierarchy::Mounts;
use crate::jobs::ids::SeriesIds;
use crate::jobs::open::Subject;
use crate::plan::Plan;
use crate::sampler::SourceId;
use crate::source::{Slot, Source};

/// A source that the sampler has.
#[derive(Debug)]
pub(super) struct OpenSource {
    pub(super) id: SourceId,
    pub(super) slots: Vec<Slot>,
}

/// What perf events were opened for. Opening them again would begin to count anew, so that is done only when this is
/// another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PerfOpened {
    target: Option<PathBuf>,
    definitions: Vec<Definition>,
}

impl PerfOpened {
    pub(super) fn definitions(&self) -> &[Definition] {
        &self.definitions
    }
}

/// One job, or the node.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) job: Option<Arc<Job>>,
    pub(super) subject: Subject,
    pub(super) plan: Plan,
    pub(super) series: SeriesIds,
    pub(super) sources: BTreeMap<String, OpenSource>,
    /// Files without a line of what is wanted, which is no reason to read them at any period but the rescan's.
    pub(super) dormant: Vec<Source>,
    pub(super) unavailable: Vec<(String, String)>,
    /// Where discovery found it; none for a job that was registered.
    pub(super) found_at: Option<PathBuf>,
    pub(super) reopen_at: Option<Instant>,
    pub(super) perf: Option<PerfOpened>,
    /// The period of each metric that the data have been told.
    told: BTreeMap<String, Period>,
}

impl Followed {
    pub(super) const fn new(
        job: Option<Arc<Job>>,
        subject: Subject,
        plan: Plan,
        found_at: Option<PathBuf>,
    ) -> Self {
        Self {
            job,
            subject,
            plan,
            series: SeriesIds::new(),
            sources: BTreeMap::new(),
            dormant: Vec::new(),
            unavailable: Vec::new(),
            found_at,
            reopen_at: None,
            perf: None,
            told: BTreeMap::new(),
        }
    }

    /// The ids of its sources.
    pub(super) fn source_ids(&self) -> Vec<SourceId> {
        self.sources.values().map(|source| source.id).collect()
    }

    /// Everything that its plan wants, perf events apart from the rest.
    pub(super) fn definitions(&self) -> (Vec<Definition>, Vec<Definition>) {
        let scopes: &[Scope] = if self.job.is_some() { &[Scope::Job] } else { &[Scope::Node, Scope::Agent] };
        let wanted = scopes.iter().flat_map(|scope| self.plan.definitions(*scope));
        wanted.partition(|definition| matches!(definition.metric.origins, [Origin::Perf(_)]))
    }

    /// What its perf events would be opened for now.
    pub(super) fn perf_wanted(&self, mounts: &Mounts, definitions: Vec<Definition>) -> PerfOpened {
        let target = match &self.subject {
            Subject::Cgroups(cgroups) => cgroups.perf_directory(mounts).map(ToOwned::to_owned),
            Subject::Processes(_) | Subject::Node(_) => None,
        };
        PerfOpened { target, definitions }
    }

    /// What has changed since the data were told the plan: new periods of what is sampled, and what is sampled no
    /// more. Without `cause`, the cause is the layer whose period is in force.
    pub(super) fn plan_changes(&mut self, cause: Option<Cause>) -> Vec<PlanChange> {
        let at_us = clock::realtime_us();
        let job = self.job.as_ref().map(|job| job.handle);
        let slots = self.sources.values().flat_map(|source| &source.slots);
        let names = slots.map(|slot| slot.definition.name());
        let in_force: BTreeMap<String, (Period, Cause)> =
            names.filter_map(|name| self.plan.period(&name).map(|period| (name, period))).collect();
        let mut changes = Vec::new();
        let mut change = |name: &str, old: Option<Period>, new: Option<Period>, layer: Cause| {
            if let Ok(metric) = MetricName::new(name.to_owned()) {
                let cause = cause.unwrap_or(layer);
                changes.push(PlanChange { at_us, job, metric, old, new, cause, by: None, until_us: None });
            }
        };
        for (name, (period, layer)) in &in_force {
            let old = self.told.get(name).copied();
            if old != Some(*period) {
                change(name, old, Some(*period), *layer);
            }
        }
        // What merely went with its device or cgroup is absent; the plan has not changed.
        let ended: Vec<String> =
            self.told.keys().filter(|name| self.plan.period(name).is_none()).cloned().collect();
        for name in ended {
            let old = self.told.remove(&name);
            change(&name, old, None, Cause::Baseline);
        }
        self.told.extend(in_force.into_iter().map(|(name, (period, _))| (name, period)));
        changes
    }
}
