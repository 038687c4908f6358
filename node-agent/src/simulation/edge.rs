//! The edge of the simulation: a sampler that keeps sources, and files that have some metrics and lack others. It
//! checks what no state machine may do: use the id of a source that is being closed, close a source twice, or record a
//! plan that was not in force.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use polymeter_proto::catalogue::Definition;
use polymeter_proto::ledger::{Cause, Event, PlanChange};
use polymeter_proto::period::Period;
use polymeter_proto::series::{JobHandle, Labels};
use polymeter_proto::step_level::StepLevel;

use crate::cgroups::{Step, StepAdmission};
use crate::lanes::{ActiveSource, Command, EventRecord, SourceId};
use crate::request::Availability;
use crate::sources::{CustomSource, Opened, Outcome, Reading, Slot, Source, Unavailable};
use crate::targets::{LEVELS, SessionIds, SourceChanges, SourceOwner, TargetKey, TrackedTarget};

/// A source that counts the open instances.
#[derive(Debug)]
struct CountedSource {
    slots: Vec<Slot>,
    is_lasting: bool,
    refresh_interval: Option<Period>,
    open: Arc<AtomicUsize>,
}

impl Drop for CountedSource {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Relaxed);
    }
}

impl CustomSource for CountedSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        Outcome::Read
    }

    fn is_lasting(&self) -> bool {
        self.is_lasting
    }

    fn refresh_interval(&self) -> Option<Period> {
        self.refresh_interval
    }
}

/// The sampler and the data.
#[derive(Debug, Default)]
pub(super) struct SimulatedEdge {
    pub(super) ids: SessionIds,
    /// Metrics that no file contains.
    pub(super) missing: BTreeSet<&'static str>,
    /// The refresh interval that hardware states from now on, by the first word of the metrics' names.
    pub(super) refresh_intervals: BTreeMap<String, Period>,
    sampled: BTreeMap<SourceId, Box<ActiveSource>>,
    /// Sources that the sampler has removed and not returned.
    removed: BTreeMap<SourceId, Box<ActiveSource>>,
    /// The sources that are open, dormant ones included.
    open: Arc<AtomicUsize>,
    /// The period of each metric according to the data.
    recorded: BTreeMap<(Option<JobHandle>, Option<StepLevel>, String), Period>,
    /// The jobs that have had their final sample.
    finals: BTreeSet<JobHandle>,
    ended: BTreeSet<JobHandle>,
}

impl SimulatedEdge {
    /// Opens the sources that a target wants.
    pub(super) fn open_sources(&mut self, key: &TargetKey, target: &mut TrackedTarget, is_anew: bool) {
        if let Some(handle) = target.handle() {
            assert!(!self.finals.contains(&handle), "sources of {key:?} are opened after its final sample");
        }
        let wanted = target.sources.wanted(target.definitions(), None, is_anew);
        let first_perf_group = target.sources.next_perf_group();
        let (opened, unavailable) = self.open(first_perf_group, &wanted.definitions);
        let owner = SourceOwner { key, job: target.job.as_ref(), plan: &target.plan };
        let changes = target.sources.commit(&mut self.ids, owner, wanted, opened, unavailable);
        self.apply(changes);
    }

    /// Opens metrics of a target for trial.
    pub(super) fn probe(
        &self,
        target: &TrackedTarget,
        definitions: &[Definition],
    ) -> BTreeMap<String, Availability> {
        let (opened, unavailable) = self.open(target.sources.next_perf_group(), definitions);
        let slots = opened.iter().flat_map(|opened| {
            let refresh_interval = opened.source.refresh_interval().get();
            let from = Availability::From { source: opened.name.clone(), read_ns: 4_000.0, refresh_interval };
            opened.source.slots().iter().map(move |slot| (slot.definition.name(), from.clone()))
        });
        let missing = unavailable.into_iter();
        let missing = missing.map(|missing| (missing.definition.name(), Availability::No(missing.reason)));
        slots.chain(missing).collect()
    }

    /// Opens one source for all metrics whose names begin with the same word.
    fn open(&self, first_perf_group: usize, definitions: &[Definition]) -> (Vec<Opened>, Vec<Unavailable>) {
        let (mut by_source, mut unavailable) = (BTreeMap::<String, Vec<Slot>>::new(), Vec::new());
        for definition in definitions {
            let name = definition.name();
            let word = name.split('.').next().unwrap_or_default();
            let source = match word {
                "perf" => format!("perf/{first_perf_group}"),
                word => format!("v2/{word}"),
            };
            if self.missing.contains(name.as_str()) {
                let reason = "the kernel lacks it".to_owned();
                unavailable.push(Unavailable { definition: definition.clone(), reason });
            } else {
                let slot = Slot { definition: definition.clone(), labels: Labels::default() };
                by_source.entry(source).or_default().push(slot);
            }
        }
        let opened = by_source.into_iter().map(|(name, slots)| {
            self.open.fetch_add(1, Relaxed);
            let is_lasting = name.starts_with("perf");
            let word = name.split('/').next_back().unwrap_or_default();
            let refresh_interval = self.refresh_intervals.get(word).copied();
            let source = CountedSource { slots, is_lasting, refresh_interval, open: Arc::clone(&self.open) };
            Opened { name, source: Source::Custom(Box::new(source)), step: None, below: None }
        });
        (opened.collect(), unavailable)
    }

    /// Updates the sources of a target's steps. Returns true if any was opened or closed.
    pub(super) fn update_steps(
        &mut self,
        key: &TargetKey,
        target: &mut TrackedTarget,
        mut present: BTreeMap<String, Step>,
    ) -> bool {
        if !target.plan.wants_steps() {
            present.clear();
        }
        let mut stale = target.sources.retain_steps(&present);
        let mut opened = Vec::new();
        for (name, step) in present {
            let definitions = target.plan.step_definitions(step.level);
            if !target.sources.needs_step(&name, &definitions)
                || target.sources.admit_step(&name) == StepAdmission::Refused
            {
                continue;
            }
            let step = Arc::new(step);
            let wanted = target.sources.wanted_of_step(&name, &definitions, &mut stale);
            let (of_step, unavailable) = self.open(wanted.first_perf_group, &wanted.definitions);
            let of_step: Vec<Opened> = of_step
                .into_iter()
                .map(|opened| Opened {
                    name: format!("{name}/{}", opened.name),
                    step: Some(Arc::clone(&step)),
                    ..opened
                })
                .collect();
            target.sources.add_step(step, wanted, &of_step, unavailable);
            opened.extend(of_step);
        }
        let is_changed = !opened.is_empty() || !stale.is_empty();
        let owner = SourceOwner { key, job: target.job.as_ref(), plan: &target.plan };
        let changes = target.sources.commit_steps(&mut self.ids, owner, opened, stale);
        self.apply(changes);
        is_changed
    }

    fn apply(&mut self, changes: SourceChanges) {
        changes.commands.into_iter().for_each(|command| self.command(command));
        assert!(
            changes.first_reading.iter().all(|id| self.sampled.contains_key(id)),
            "a first reading of nothing"
        );
    }

    /// Handles a command like the sampler.
    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::Exchange { removed, added } => {
                removed.into_iter().for_each(|id| self.remove(id));
                for (id, source) in added {
                    assert!(!self.removed.contains_key(&id), "{id:?} is used again before it was given back");
                    self.sampled.insert(id, source);
                }
            }
            Command::Remove(id) => self.remove(id),
            Command::Regroup(id, _) => assert!(self.sampled.contains_key(&id), "{id:?} is not sampled"),
            Command::Add(..)
            | Command::ReadNow(_)
            | Command::ReadJob(_)
            | Command::RecordUserValue(_)
            | Command::RecordEvent(_)
            | Command::Confirm(_)
            | Command::Flush
            | Command::FlushForWatch
            | Command::Stop => panic!("unexpected {command:?}"),
        }
    }

    fn remove(&mut self, id: SourceId) {
        let source = self.sampled.remove(&id);
        let source = source.unwrap_or_else(|| panic!("{id:?} is closed twice, or was never open"));
        assert!(self.removed.insert(id, source).is_none());
    }

    /// Returns the sources that the sampler has removed.
    pub(super) fn give_back(&mut self) {
        for (id, source) in std::mem::take(&mut self.removed) {
            drop(source);
            self.ids.sources.release(id);
        }
    }

    /// Takes the final sample of a job.
    pub(super) fn final_sample(&mut self, job: JobHandle) {
        assert!(!self.ended.contains(&job), "a final sample after the end");
        assert!(self.finals.insert(job), "{job:?} has a second final sample");
    }

    /// Records an event in the data.
    pub(super) fn record(&mut self, record: &EventRecord) {
        if let Event::JobEnded { job, .. } = record.event {
            assert!(self.finals.contains(&job), "{job:?} ended without a final sample");
            assert!(self.ended.insert(job), "{job:?} ended twice");
            self.recorded.retain(|(of, ..), _| *of != Some(job));
        }
    }

    /// Records a change of the plan in the data.
    pub(super) fn record_plan_change(&mut self, change: &PlanChange) {
        let key = (change.job, change.level, change.metric.as_str().to_owned());
        assert_eq!(self.recorded.get(&key).copied(), change.old, "{change:?}");
        assert_ne!(change.old, change.new, "a change that is none: {change:?}");
        assert!(
            change.cause != Cause::Lease || (change.by.is_some() && change.until_us.is_some()),
            "{change:?}"
        );
        match change.new {
            Some(period) => drop(self.recorded.insert(key, period)),
            None => drop(self.recorded.remove(&key)),
        }
    }

    /// Checks that the data contain the plan of a target, and that its sources are the sampler's.
    pub(super) fn check(&self, target: &TrackedTarget) {
        for level in LEVELS {
            for (metric, in_force) in target.plan_in_force_at(level) {
                let recorded = self.recorded.get(&(target.handle(), level, metric.clone()));
                assert_eq!(
                    recorded,
                    Some(&in_force.period),
                    "{metric} of {level:?} of {:?}",
                    target.handle()
                );
            }
        }
        for (name, source) in target.sources.open() {
            assert!(self.sampled.contains_key(&source.id), "{name} is not sampled");
        }
    }

    /// Checks that every opened source was closed, apart from `left` sources.
    pub(super) fn check_closed(&mut self, left: usize) {
        self.give_back();
        assert_eq!((self.sampled.len(), self.open.load(Relaxed)), (left, left), "sources are left open");
        assert_eq!(self.ids.sources.len(), left);
    }

    /// Returns the handles of the jobs that have ended.
    pub(super) const fn ended(&self) -> &BTreeSet<JobHandle> {
        &self.ended
    }
}
