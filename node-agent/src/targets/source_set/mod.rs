//! The sources of one target: those to be opened for a plan, and the commands to the sampler once they are
//! open. Pure: the files are opened elsewhere, between [`SourceSet::wanted`] and [`SourceSet::commit`].

mod device_sources;
mod intervals;
mod reopening;
mod reopening_state;
mod step_sets;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use polymeter_proto::catalogue::{DEVICE_KIND, Definition, ring_source};
use polymeter_proto::series::{Identifier, Labels};

use crate::cgroups::SeenSteps;
use crate::counters::CpuAccount;
use crate::lanes::{ActiveSource, Command, Group, SeriesProgress, SourceId, SourceKey};
use crate::plan::is_of_hardware;
use crate::sources::{
    BusiestProcesses, Finder, GpuClients, Opened, ServedJobs, Slot, Source, Unavailable, UnknownLines,
};
use crate::targets::ids::SeriesIds;
use crate::targets::open_source::{OpenSource, SessionIds, SourceChanges, SourceOwner};
use crate::targets::open_step::OpenStep;
use reopening_state::Reopening;

/// Perf events that were opened, or are unavailable, on one cgroup. An event that is opened again counts from
/// 0; therefore all are opened again only for another cgroup, and otherwise only new events are opened.
#[derive(Debug, Default)]
struct PerfEvents {
    cgroup: Option<PathBuf>,
    definitions: Vec<Definition>,
    /// Groups opened so far, so that each has a name of its own.
    groups: usize,
    /// True if others stand in for hardware events, because the counters are released.
    is_released: bool,
}

#[derive(Debug, Default)]
pub(crate) struct WantedSources {
    /// Wanted metrics, except those of devices, which are opened one by one.
    pub(crate) definitions: Vec<Definition>,
    pub(crate) of_devices: Vec<Definition>,
    new_perf: Vec<Definition>,
    files: Vec<Definition>,
    is_anew: bool,
}

#[derive(Debug, Default)]
pub(crate) struct SourceSet {
    open: BTreeMap<String, OpenSource>,
    series: SeriesIds,
    /// Last values by metric and labels.
    progress: BTreeMap<(String, Labels), Arc<SeriesProgress>>,
    steps: BTreeMap<String, OpenStep>,
    seen_steps: SeenSteps,
    /// Sources without slots, which are read only at rescans: files without a line of any wanted metric, and
    /// watches for new files.
    dormant: Vec<Opened>,
    /// Metrics, each with the reason; without those of devices outside the nodes.
    unavailable: Vec<(String, String)>,
    /// The same for devices outside the nodes, by the names of their sources.
    missing_of_devices: BTreeMap<String, Vec<(String, String)>>,
    reopening: Reopening,
    perf: PerfEvents,
    files: Vec<Definition>,
    /// CPU time of the agent for the target, if it is a job.
    cpu_account: Arc<CpuAccount>,
    /// Processes that have series of their own, if it is a job.
    busiest: Arc<BusiestProcesses>,
    gpu_clients: Arc<GpuClients>,
    served_jobs: Arc<ServedJobs>,
}

impl SourceSet {
    pub(crate) const fn open(&self) -> &BTreeMap<String, OpenSource> {
        &self.open
    }

    /// Sources of the whole target, without those of steps.
    pub(crate) fn whole(&self) -> impl Iterator<Item = (&String, &OpenSource)> {
        self.open.iter().filter(|(_, source)| source.step.is_none())
    }

    pub(crate) const fn cpu_account(&self) -> &Arc<CpuAccount> {
        &self.cpu_account
    }

    pub(crate) const fn busiest(&self) -> &Arc<BusiestProcesses> {
        &self.busiest
    }

    pub(crate) const fn gpu_clients(&self) -> &Arc<GpuClients> {
        &self.gpu_clients
    }

    pub(crate) const fn served_jobs(&self) -> &Arc<ServedJobs> {
        &self.served_jobs
    }

    pub(crate) fn unavailable(&self) -> impl Iterator<Item = &(String, String)> {
        self.unavailable.iter().chain(self.missing_of_devices.values().flatten())
    }

    /// True if perf events that count this metric are open or known to be unavailable.
    pub(crate) fn counts(&self, definition: &Definition) -> bool {
        self.perf.definitions.contains(definition)
    }

    pub(crate) fn follows_processes(&self) -> bool {
        self.open.values().any(|source| matches!(source.below, Some(Finder::Processes(_))))
    }

    /// Descriptors of its perf events, those of steps and tasks included.
    pub(crate) fn perf_descriptors(&self) -> usize {
        // Sources without slots are about to be closed.
        let open = self.open.values().filter(|source| !source.slots.is_empty());
        open.map(OpenSource::perf_descriptors).sum()
    }

    /// Lines of its sources that have no series, with the names of the sources.
    pub(crate) fn unknown_lines(&self) -> impl Iterator<Item = (&String, UnknownLines)> {
        let dormant = self.dormant.iter().map(|opened| (&opened.name, opened.source.unknown_lines().get()));
        let open = self.open.iter().map(|(name, source)| (name, source.unknown_lines.get()));
        dormant.chain(open).filter(|(_, unknown)| unknown.lines > 0)
    }

    pub(crate) const fn next_perf_group(&self) -> usize {
        self.perf.groups
    }

    /// What must be opened to sample the given metrics: perf events and the rest. Files are opened anew if
    /// the wanted metrics differ, or if `is_anew`, because files were added or removed. Open perf events
    /// continue to count, unless `perf_cgroup` has changed; those of the hardware unless `is_released` has,
    /// which lets others stand in for them.
    pub(crate) fn wanted(
        &mut self,
        (perf, files): (Vec<Definition>, Vec<Definition>),
        perf_cgroup: Option<PathBuf>,
        is_released: bool,
        is_anew: bool,
    ) -> WantedSources {
        if is_released != self.perf.is_released {
            self.perf.is_released = is_released;
            self.forget_hardware();
        }
        if perf_cgroup != self.perf.cgroup {
            self.perf = PerfEvents { cgroup: perf_cgroup, is_released, ..PerfEvents::default() };
            let former = self.open.iter_mut().filter(|(name, _)| is_perf(name));
            former.for_each(|(_, source)| source.slots = Arc::default());
        }
        let (of_devices, files): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|definition| definition.metric.is_of_kind(DEVICE_KIND));
        let new_perf: Vec<_> = perf.into_iter().filter(|definition| !self.counts(definition)).collect();
        let is_anew = is_anew || files != self.files;
        let wanted_files = files.iter().filter(|definition| is_anew && !self.has_lasting(definition));
        let definitions = wanted_files.chain(&new_perf).cloned().collect();
        WantedSources { definitions, of_devices, new_perf, files, is_anew }
    }

    /// Lets the hardware events of the whole target, or what stands in for them, be closed and opened anew.
    fn forget_hardware(&mut self) {
        for (_, source) in
            self.open.iter_mut().filter(|(name, source)| source.step.is_none() && is_perf(name))
        {
            if source.slots.iter().any(|slot| slot.definition.is_of_hardware()) {
                source.slots = Arc::default();
            }
        }
        self.perf.definitions.retain(|definition| !definition.is_of_hardware());
        self.unavailable.retain(|(metric, _)| !is_of_hardware(metric));
    }

    /// True if a source that is not opened anew provides a metric of the whole target.
    fn has_lasting(&self, definition: &Definition) -> bool {
        let mut lasting = self.whole().filter(|(_, source)| source.is_lasting);
        lasting.any(|(_, source)| source.provided().any(|provided| provided == definition))
    }

    /// Wanted metrics for which lasting sources stand in, because there were no files.
    pub(crate) fn stand_ins(&self) -> Vec<Definition> {
        let lasting = self.whole().filter(|(_, source)| source.is_lasting);
        let provided = lasting.flat_map(|(_, source)| source.stand_ins());
        provided.filter(|definition| self.files.contains(definition)).cloned().collect()
    }

    /// Lets files provide the metrics for which lasting sources stand in.
    pub(crate) fn replace_by_files(&mut self) {
        for source in self.open.values_mut().filter(|source| source.is_lasting && source.step.is_none()) {
            let replaced: Vec<String> = source.stand_ins().map(Definition::name).collect();
            source.replaced.extend(replaced);
        }
    }

    /// Replaces earlier sources by those that were opened for `wanted`, and gives the remaining ones the
    /// periods of the plan.
    pub(crate) fn commit(
        &mut self,
        ids: &mut SessionIds,
        owner: SourceOwner<'_>,
        wanted: WantedSources,
        opened: Vec<Opened>,
        unavailable: Vec<Unavailable>,
    ) -> SourceChanges {
        let WantedSources { new_perf, files, is_anew, .. } = wanted;
        self.perf.groups += opened.iter().filter(|opened| is_perf(&opened.name)).count();
        self.perf.definitions.extend(new_perf);
        self.files = files;
        // A source that hangs is not replaced, so its reason stays.
        let hung: BTreeSet<String> = self.open.keys().map(|name| hung(name)).collect();
        self.unavailable.retain(|(metric, reason)| is_perf(metric) || !is_anew || hung.contains(reason));
        let sampled = self.sampled_names();
        if is_anew {
            self.reopening.may_recover = unavailable.iter().any(|missing| missing.may_recover);
        }
        let missing = |Unavailable { definition, reason, .. }| (definition.name(), reason);
        self.unavailable.extend(unavailable.into_iter().map(missing));
        let (kept, former): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.open).into_iter().partition(|(name, source)| {
                source.is_lasting || source.step.is_some() || !is_anew || is_of_device(name)
            });
        let mut changes = SourceChanges::default();
        self.regroup(ids, owner, kept, &mut changes);
        self.replace(ids, owner, opened, former, is_anew, &mut changes);
        let now_sampled = self.sampled_names();
        let missing = self
            .unavailable
            .iter()
            .filter(|(metric, reason)| !is_perf(metric) && !hung.contains(reason))
            .cloned()
            .collect();
        changes.missing = self.reopening.note_missing(&missing, &sampled, &now_sampled);
        changes
    }

    fn sampled_names(&self) -> BTreeSet<String> {
        let of_files = self.whole().filter(|(name, _)| !is_of_device(name));
        of_files.flat_map(|(_, source)| source.metrics()).collect()
    }

    /// Gives sources that stay open the periods of the plan, and closes perf groups and eBPF programs without
    /// a wanted metric. Sources whose periods are the same are left alone.
    fn regroup(
        &mut self,
        ids: &mut SessionIds,
        owner: SourceOwner<'_>,
        kept: BTreeMap<String, OpenSource>,
        changes: &mut SourceChanges,
    ) {
        for (name, mut source) in kept {
            if source.is_planned(owner.plan) {
                self.open.insert(name, source);
                continue;
            }
            source.take_interval(owner.plan);
            let Some(identifier) = Identifier::escaped(name.as_bytes()) else { continue };
            let groups = self.groups(ids, owner, &identifier, &source);
            if groups.is_empty() && costs_unread(&name) {
                self.perf
                    .definitions
                    .retain(|definition| source.slots.iter().all(|slot| slot.definition != *definition));
                changes.commands.push(Command::Remove(source.id));
                continue;
            }
            changes.commands.push(Command::Regroup(source.id, groups));
            self.open.insert(name, source);
        }
    }

    /// Replaces sources of the same name, and closes those without a successor.
    fn replace(
        &mut self,
        ids: &mut SessionIds,
        owner: SourceOwner<'_>,
        opened: Vec<Opened>,
        mut former: BTreeMap<String, OpenSource>,
        is_anew: bool,
        changes: &mut SourceChanges,
    ) {
        let (dormant, awake): (Vec<_>, Vec<_>) =
            opened.into_iter().partition(|opened| opened.source.slots().is_empty());
        if is_anew {
            self.dormant.retain(is_kept_dormant);
        }
        self.dormant.extend(dormant.into_iter().filter(|dormant| is_anew || is_kept_dormant(dormant)));
        let (mut new, mut added) = (Vec::new(), Vec::new());
        for Opened { name, source, step, below, devices } in awake {
            let Some(identifier) = Identifier::escaped(name.as_bytes()) else { continue };
            let id = former.remove(&name).map_or_else(
                || {
                    let id = ids.sources.assign(owner.key);
                    new.push(id);
                    id
                },
                |source| source.id,
            );
            let open = OpenSource::new(id, &source, step, below).with_devices(&devices).with_plan(owner.plan);
            let groups = self.groups(ids, owner, &identifier, &open);
            let source_key = SourceKey { job: owner.job.cloned(), name: identifier };
            let active = ActiveSource::new(Arc::new(source_key), source, groups);
            let active = active
                .with_progress(|slot| self.progress_of(devices.in_series(slot).as_ref().unwrap_or(slot)));
            let active = active.with_cpu_account(owner.job.map(|_| Arc::clone(&self.cpu_account)));
            added.push((id, Box::new(active)));
            self.open.insert(name, open);
        }
        let removed_hung: Vec<String> = former.keys().map(|name| hung(name)).collect();
        self.unavailable.retain(|(_, reason)| !removed_hung.contains(reason));
        let removed: Vec<SourceId> = former.into_values().map(|source| source.id).collect();
        if !removed.is_empty() || !added.is_empty() {
            changes.commands.push(Command::Exchange { removed, added });
        }
        if owner.job.is_some() {
            changes.first_reading.append(&mut new);
        }
    }

    fn groups(
        &mut self,
        ids: &mut SessionIds,
        owner: SourceOwner<'_>,
        name: &Identifier,
        source: &OpenSource,
    ) -> Vec<Group> {
        let series = &mut self.series;
        let sampling = |metric: &str| source.sampling(owner.plan, metric);
        let mut groups = ids.series.groups(owner.job, name, series, &source.slots, sampling);
        if let Some(ring) = Identifier::escaped(ring_source(name.as_str()).as_bytes())
            && owner.job.is_some()
        {
            let sampling = |metric: &str| source.ring_sampling(owner.plan, metric);
            let of_ring = ids.series.groups(owner.job, &ring, series, &source.slots, sampling);
            groups.extend(of_ring.into_iter().map(Group::into_ring));
        }
        groups
    }

    /// Last value of the counter of a slot, from which each source of the series continues.
    fn progress_of(&mut self, slot: &Slot) -> Arc<SeriesProgress> {
        Arc::clone(self.progress.entry((slot.definition.name(), slot.labels.clone())).or_default())
    }

    pub(crate) fn close(self) -> Vec<Command> {
        self.open.into_values().map(|source| Command::Remove(source.id)).collect()
    }

    pub(crate) fn add_unread(&mut self, name: &str, id: SourceId) {
        let open = OpenSource::new(id, &Source::user_supplied(), None, None);
        self.open.insert(name.to_owned(), OpenSource { is_lasting: true, ..open });
    }

    pub(crate) const fn series_ids(&mut self) -> &mut SeriesIds {
        &mut self.series
    }

    /// Finders of sources, with the names of the sources.
    pub(crate) fn finders(&mut self) -> impl Iterator<Item = (&String, &mut Finder)> {
        self.open.iter_mut().filter_map(|(name, source)| source.below.as_mut().map(|below| (name, below)))
    }

    pub(crate) fn dormant(&mut self) -> &mut [Opened] {
        &mut self.dormant
    }

    /// Records that a source cannot be read any more, because its cgroup is gone. If the cgroup reappears,
    /// the source is opened anew.
    pub(crate) fn end_lasting(&mut self, id: SourceId) {
        let ended = self.open.iter_mut().filter(|(name, source)| source.id == id && !is_perf(name));
        ended.for_each(|(_, source)| source.is_lasting = false);
    }

    pub(crate) fn name(&self, id: SourceId) -> Option<&str> {
        self.open.iter().find(|(_, source)| source.id == id).map(|(name, _)| name.as_str())
    }

    /// Makes the metrics of the source unavailable. Returns its name.
    pub(crate) fn set_hung(&mut self, id: SourceId) -> Option<&str> {
        let (name, source) = self.open.iter().find(|(_, source)| source.id == id)?;
        let metrics: BTreeSet<String> = source.slots.iter().map(|slot| slot.definition.name()).collect();
        let reason = hung(name);
        self.unavailable.extend(metrics.into_iter().map(|metric| (metric, reason.clone())));
        Some(name)
    }

    /// Returns the source's name.
    pub(crate) fn set_recovered(&mut self, id: SourceId) -> Option<&str> {
        let (name, _) = self.open.iter().find(|(_, source)| source.id == id)?;
        let reason = hung(name);
        self.unavailable.retain(|(_, known)| *known != reason);
        Some(name)
    }

    pub(crate) fn forget_perf(&mut self) {
        self.perf = PerfEvents { is_released: self.perf.is_released, ..PerfEvents::default() };
    }
}

/// True for a source without slots that stays when the files of the target are opened anew.
fn is_kept_dormant(dormant: &Opened) -> bool {
    dormant.step.is_some() || is_of_device(&dormant.name)
}

fn is_of_device(source: &str) -> bool {
    source.strip_prefix(DEVICE_KIND).is_some_and(|rest| rest.starts_with('/'))
}

pub(crate) fn is_perf(name: &str) -> bool {
    name.starts_with("perf") || name.starts_with("node.pmu")
}

/// True for a source that costs time on events of the job while it is open, so that it is closed when it is
/// not read.
fn costs_unread(name: &str) -> bool {
    is_perf(name) || name.starts_with("ebpf/")
}

fn hung(name: &str) -> String {
    format!("a read of {name} is blocked")
}
