//! A source in the sampler, and the changes of sources for the sampler.

use std::collections::BTreeSet;
use std::sync::Arc;

use polymeter_proto::batch::Job;
use polymeter_proto::catalogue::{Definition, TEXT_FILE_KIND};
use polymeter_proto::name::Selector;
use polymeter_proto::period::{Period, Sampling};

use super::ids::Ids;
use super::key::TargetKey;
use super::source_ids::SourceIds;
use crate::cgroups::Step;
use crate::lanes::{Command, SourceId};
use crate::plan::Plan;
use crate::sources::{Devices, Finder, RefreshInterval, Slot, Source, UnknownLinesFound, runs};

#[derive(Debug, Default)]
pub(crate) struct SessionIds {
    pub(crate) series: Ids,
    pub(crate) sources: SourceIds,
}

impl SessionIds {
    pub(crate) fn with_histograms(metrics: &[Selector]) -> Self {
        Self { series: Ids::with_histograms(metrics), sources: SourceIds::default() }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct SourceOwner<'a> {
    pub(crate) key: &'a TargetKey,
    pub(crate) job: Option<&'a Arc<Job>>,
    pub(crate) plan: &'a Plan,
}

#[derive(Debug)]
pub(crate) struct OpenSource {
    pub(crate) id: SourceId,
    pub(crate) slots: Arc<[Slot]>,
    /// None for the whole target.
    pub(crate) step: Option<Arc<Step>>,
    /// True if it stays open when files are opened anew: [`Source::is_lasting`].
    pub(super) is_lasting: bool,
    /// Metrics that files provide in its place, which appeared later.
    pub(super) replaced: BTreeSet<String>,
    /// Lines of its text that have no series.
    pub(super) unknown_lines: UnknownLinesFound,
    /// Finds cgroups or processes that must be read with it.
    pub(super) below: Option<Finder>,
    /// Descriptors of the perf events that were opened with it.
    pub(super) opened_descriptors: usize,
    /// Interval that its hardware states at this time.
    pub(crate) stated_interval: RefreshInterval,
    /// Interval with which its groups were made: shorter periods are granted at this one.
    pub(super) refresh_interval: Option<Period>,
    /// Samplings with which its groups were made.
    pub(super) planned: Vec<Planned>,
}

/// Sampling of a metric of a source, and of the same into the ring.
type Planned = (Option<Sampling>, Option<Sampling>);

impl OpenSource {
    pub(super) fn new(id: SourceId, source: &Source, step: Option<Arc<Step>>, below: Option<Finder>) -> Self {
        let (slots, is_lasting) = (source.shared_slots(), source.is_lasting());
        let stated_interval = source.refresh_interval();
        let refresh_interval = stated_interval.get();
        let opened_descriptors = source.perf_descriptors();
        let unknown_lines = source.unknown_lines();
        Self {
            id,
            slots,
            step,
            is_lasting,
            replaced: BTreeSet::new(),
            unknown_lines,
            below,
            opened_descriptors,
            stated_interval,
            refresh_interval,
            planned: Vec::new(),
        }
    }

    /// Names of its metrics, which may repeat.
    pub(super) fn metrics(&self) -> impl Iterator<Item = String> {
        runs(&self.slots).map(|slot| slot.definition.name())
    }

    fn plan<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = Planned> + 'a {
        self.metrics().map(|metric| (self.sampling(plan, &metric), self.ring_sampling(plan, &metric)))
    }

    /// Records the samplings with which its groups are made.
    pub(super) fn with_plan(mut self, plan: &Plan) -> Self {
        self.planned = self.plan(plan).collect();
        self
    }

    /// True if it has groups, and those of this plan are the same.
    pub(super) fn is_planned(&self, plan: &Plan) -> bool {
        let has_groups = self.planned.iter().any(|planned| *planned != (None, None));
        has_groups
            && self.stated_interval.get() == self.refresh_interval
            && self.plan(plan).eq(self.planned.iter().copied())
    }

    /// Records the devices that its slots are of: their names in series, and their roles.
    pub(super) fn with_devices(mut self, devices: &Devices) -> Self {
        if devices.roles.is_empty() && devices.renamed.is_empty() {
            return self;
        }
        let mut slots = self.slots.to_vec();
        for slot in &mut slots {
            if let Some(in_series) = devices.in_series(slot) {
                *slot = in_series;
            }
        }
        for (position, role) in &devices.roles {
            if let Some(slot) = slots.get_mut(*position) {
                slot.labels = std::mem::take(&mut slot.labels).with_role(Some(role.clone()));
            }
        }
        self.slots = slots.into();
        self
    }

    /// Definitions of its slots, without those that are replaced.
    pub(super) fn provided(&self) -> impl Iterator<Item = &Definition> {
        let definitions = self.slots.iter().map(|slot| &slot.definition);
        definitions.filter(|definition| !self.replaced.contains(&definition.name()))
    }

    /// Definitions that files provide as well.
    pub(super) fn stand_ins(&self) -> impl Iterator<Item = &Definition> {
        self.provided().filter(|definition| definition.metric.is_of_kind(TEXT_FILE_KIND))
    }

    /// Its period is not shorter than the refresh interval of its hardware.
    pub(crate) fn sampling(&self, plan: &Plan, name: &str) -> Option<Sampling> {
        if self.replaced.contains(name) {
            return None;
        }
        let planned = match &self.step {
            None => plan.sampling(name).map(|(sampling, _)| sampling),
            Some(step) => plan.step_sampling(step.level, name),
        }?;
        Some(planned.not_shorter(self.refresh_interval.unwrap_or(planned.period)))
    }

    /// Sampling into the ring, not at shorter periods than the refresh interval of its hardware.
    pub(crate) fn ring_sampling(&self, plan: &Plan, name: &str) -> Option<Sampling> {
        if self.step.is_some() || self.replaced.contains(name) {
            return None;
        }
        let planned = plan.ring_sampling(name)?;
        Some(planned.not_shorter(self.refresh_interval.unwrap_or(planned.period)))
    }

    pub(super) fn perf_descriptors(&self) -> usize {
        self.opened_descriptors + self.below.as_ref().map_or(0, Finder::perf_descriptors)
    }

    /// Takes over the plan, and the refresh interval that its hardware states at this time. Its groups must
    /// be made anew.
    pub(super) fn take_interval(&mut self, plan: &Plan) {
        self.refresh_interval = self.stated_interval.get();
        self.planned = self.plan(plan).collect();
    }
}

#[derive(Debug, Default)]
pub(crate) struct SourceChanges {
    pub(crate) commands: Vec<Command>,
    /// Sources of a job that are read at once, before their first deadline.
    pub(crate) first_reading: Vec<SourceId>,
    pub(crate) missing: Vec<(String, String)>,
}
