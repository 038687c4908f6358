//! The edge of the simulation: a sampler that keeps sources, and files that have some metrics and lack
//! others. It checks what no state machine may do: use the id of a source that is being closed, close a
//! source twice, or record a plan that was not in force.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use polymeter_proto::batch::Job;
use polymeter_proto::catalogue::Definition;
use polymeter_proto::ledger::{Cause, Event, PlanChange};
use polymeter_proto::period::{Period, Sampling};
use polymeter_proto::series::{Identifier, JobHandle, Labels};
use polymeter_proto::step_level::StepLevel;
use polymeter_proto::trigger::Rule;

use super::random::Random;
use crate::admission::{Descriptors, ReadTimes};
use crate::cgroups::{Step, StepAdmission};
use crate::lanes::{ActiveSource, Command, EventRecord, SourceId};
use crate::lifecycle::{FoundJob, OwnerHint};
use crate::principal::Principal;
use crate::request::Availability;
use crate::sources::{CustomSource, Devices, Opened, Outcome, Reading, Slot, Source, Unavailable};
use crate::supervisor::{Edge, JobPurpose, LookedUp};
use crate::targets::{
    LEVELS, Now, SessionIds, SourceChanges, SourceOwner, TargetKey, Targets, TrackedTarget, WantedOfStep,
};
use crate::triggers::AddError;

pub(super) const USERS: [u32; 3] = [7, 8, 9];

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

#[derive(Debug)]
pub(super) struct SimulatedEdge {
    pub(super) now: Now,
    random: Random,
    /// Numbers of the jobs that exist; those whose cgroups carry a SLUID have the number in their processes'
    /// environment only.
    pub(super) numbers: BTreeMap<PathBuf, Identifier>,
    pub(super) steps: BTreeMap<PathBuf, BTreeMap<String, Step>>,
    /// Jobs in which something has happened; true if a process or a cgroup has ended.
    pub(super) exits: BTreeMap<Identifier, bool>,
    pub(super) left_out: usize,
    /// Jobs whose exits are watched: from the opening of their sources until their end has been handled.
    watched: BTreeSet<Identifier>,
    pub(super) handles: BTreeMap<JobHandle, TargetKey>,
    ids: SessionIds,
    /// Metrics that no file contains.
    pub(super) missing: BTreeSet<&'static str>,
    /// Refresh interval that hardware states from now on, by the first word of the metrics' names.
    pub(super) refresh_intervals: BTreeMap<String, Period>,
    sampled: BTreeMap<SourceId, Box<ActiveSource>>,
    removed: BTreeMap<SourceId, Box<ActiveSource>>,
    /// Number of open sources, dormant ones included.
    open: Arc<AtomicUsize>,
    /// Sampling of each metric according to the data.
    recorded: BTreeMap<(Option<JobHandle>, Option<StepLevel>, String), Sampling>,
    last_read: Option<JobHandle>,
    ended: BTreeSet<JobHandle>,
    /// A job ends whose cgroups were never found, so that it had no sources.
    pub(super) ends_unseen: bool,
}

impl SimulatedEdge {
    pub(super) fn new(random: Random, now: Now) -> Self {
        Self {
            now,
            random,
            numbers: BTreeMap::new(),
            steps: BTreeMap::new(),
            exits: BTreeMap::new(),
            left_out: 0,
            watched: BTreeSet::new(),
            handles: BTreeMap::new(),
            ids: SessionIds::default(),
            missing: BTreeSet::new(),
            refresh_intervals: BTreeMap::new(),
            sampled: BTreeMap::new(),
            removed: BTreeMap::new(),
            open: Arc::default(),
            recorded: BTreeMap::new(),
            last_read: None,
            ended: BTreeSet::new(),
            ends_unseen: false,
        }
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
                unavailable.push(Unavailable::for_good(definition.clone(), reason));
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
            Opened {
                name,
                source: Source::Custom(Box::new(source)),
                step: None,
                below: None,
                devices: Devices::default(),
            }
        });
        (opened.collect(), unavailable)
    }

    /// Number in the environment of a job's processes. There may be none yet, and users may change it.
    fn number_of(&mut self, found: &FoundJob) -> Option<Identifier> {
        assert!(found.captured.is_sluid, "{found:?} is named by its number");
        match self.random.below(10) {
            0..=4 => None,
            5 => {
                let sampled = self.handles.iter().filter(|(handle, _)| !self.ended.contains(handle));
                let jobs: Vec<Identifier> = sampled.filter_map(|(_, key)| key.clone()).collect();
                (!jobs.is_empty()).then(|| self.random.choose(&jobs).clone())
            }
            _ => self.numbers.get(&found.relative).cloned(),
        }
    }

    fn remove(&mut self, id: SourceId) {
        let source = self.sampled.remove(&id);
        let source = source.unwrap_or_else(|| panic!("{id:?} is closed twice, or was never open"));
        assert!(self.removed.insert(id, source).is_none());
    }

    pub(super) fn give_back(&mut self) {
        for (id, source) in std::mem::take(&mut self.removed) {
            drop(source);
            self.ids.sources.release(id);
        }
    }

    fn record(&mut self, record: EventRecord) {
        let job = record.job.as_ref().map(|job| job.handle);
        if let (Event::JobEnded { job, .. }, Some(of)) = (&record.event, &record.job) {
            let job = *job;
            if self.ends_unseen {
                self.handles.insert(job, Some(of.descriptor.job_id.clone()));
            }
            assert_eq!(self.last_read, Some(job), "{job:?} ended without a final sample");
            assert!(self.ended.insert(job), "{job:?} ended twice");
            self.recorded.retain(|(of, ..), _| *of != Some(job));
        } else if let Event::PlanChange(change) = &record.event {
            self.record_plan_change(job, change);
        }
    }

    fn record_plan_change(&mut self, job: Option<JobHandle>, change: &PlanChange) {
        assert_eq!(job, change.job);
        assert!(change.level.is_none() || job.is_some(), "the node has no steps: {change:?}");
        let key = (change.job, change.level, change.metric.as_str().to_owned());
        assert_eq!(self.recorded.get(&key).copied(), change.old, "{change:?}");
        assert_ne!(change.old, change.new, "a change that is none: {change:?}");
        assert!(
            change.cause != Cause::Lease || (change.by.is_some() && change.until_us.is_some()),
            "{change:?}"
        );
        match change.new {
            Some(sampling) => drop(self.recorded.insert(key, sampling)),
            None => drop(self.recorded.remove(&key)),
        }
    }

    /// Checks that the data contain the plan of a target, and that its sources are the sampler's.
    pub(super) fn check(&self, target: &TrackedTarget) {
        for level in LEVELS {
            let mut in_force = target.plan_in_force_at(level);
            if level.is_none() {
                in_force.extend(target.ring_in_force());
            }
            for (metric, in_force) in in_force {
                let recorded = self.recorded.get(&(target.handle(), level, metric.clone()));
                assert_eq!(
                    recorded,
                    Some(&in_force.sampling),
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

    pub(super) const fn ended(&self) -> &BTreeSet<JobHandle> {
        &self.ended
    }
}

impl Edge for SimulatedEdge {
    fn now(&self) -> Now {
        self.now
    }

    fn ids(&mut self) -> &mut SessionIds {
        &mut self.ids
    }

    fn read_times(&self) -> ReadTimes {
        ReadTimes::new()
    }

    fn open_sources(&mut self, key: &TargetKey, target: &mut TrackedTarget, is_anew: bool) -> SourceChanges {
        if let Some(handle) = target.handle() {
            assert!(!self.ended.contains(&handle), "sources of {key:?} are opened after its end");
            let known = self.handles.entry(handle).or_insert_with(|| key.clone());
            assert_eq!(known, key, "a handle has a second meaning");
        }
        let is_released = target.release().is_some();
        let wanted = target.sources.wanted(target.definitions(), None, is_released, is_anew);
        let first_perf_group = target.sources.next_perf_group();
        let (opened, unavailable) = self.open(first_perf_group, &wanted.definitions);
        let owner = SourceOwner { key, job: target.job.as_ref(), plan: &target.plan };
        target.sources.commit(&mut self.ids, owner, wanted, opened, unavailable)
    }

    fn has_other_files(&mut self, _: &mut TrackedTarget, _: &[Definition]) -> bool {
        self.random.percent(10)
    }

    fn counters_owner(&self) -> Option<u32> {
        None
    }

    fn probe(&self, target: &TrackedTarget, definitions: &[Definition]) -> BTreeMap<String, Availability> {
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

    fn steps_of(&self, target: &TrackedTarget) -> BTreeMap<String, Step> {
        let present = target.found_at.as_ref().and_then(|path| self.steps.get(path));
        present.cloned().unwrap_or_default()
    }

    fn admits_step(&self, _: &TargetKey, target: &mut TrackedTarget, name: &str) -> bool {
        target.sources.admit_step(name) != StepAdmission::Refused
    }

    fn open_step(
        &self,
        _: &TrackedTarget,
        step: &Arc<Step>,
        wanted: &WantedOfStep,
        _: usize,
    ) -> (Vec<Opened>, Vec<Unavailable>) {
        let (mut opened, unavailable) = self.open(wanted.first_perf_group, &wanted.definitions);
        for opened in &mut opened {
            opened.name = format!("{}/{}", step.name, opened.name);
            opened.step = Some(Arc::clone(step));
        }
        (opened, unavailable)
    }

    fn scan_cgroups(&self, _: &TargetKey, _: &mut TrackedTarget) -> bool {
        false
    }

    fn watch_exits(&mut self, key: &TargetKey, _: &TrackedTarget) -> bool {
        self.watched.extend(key.clone());
        self.random.percent(10)
    }

    fn unwatch_exits(&mut self, job_id: &Identifier) {
        self.watched.remove(job_id);
    }

    /// Exits that are laid out, and others at any time. Those in jobs that are not watched are not seen.
    fn exits(&mut self) -> BTreeMap<Identifier, bool> {
        let mut exits = std::mem::take(&mut self.exits);
        if self.random.percent(5) {
            exits.insert(job_name(&mut self.random), true);
        }
        exits.retain(|job, _| self.watched.contains(job));
        exits
    }

    fn identify(
        &mut self,
        found: FoundJob,
        needs_number: bool,
        _: Option<Identifier>,
    ) -> Option<LookedUp<JobPurpose>> {
        let number = if needs_number { self.number_of(&found) } else { None };
        Some(LookedUp { purpose: JobPurpose::Discover(found, number), uid: None, name: None })
    }

    fn look_up_owner(
        &mut self,
        key: TargetKey,
        target: &TrackedTarget,
        _: OwnerHint,
    ) -> Option<LookedUp<JobPurpose>> {
        let uid = self.random.percent(50).then_some(USERS[0]);
        let purpose = JobPurpose::Complete(key, target.handle().unwrap());
        Some(LookedUp { purpose, uid, name: None })
    }

    fn add_trigger(&self, job: &Arc<Job>, _rule: Rule, by: Principal) -> Result<(), AddError> {
        assert!(!by.administrator && !self.ended.contains(&job.handle), "{by:?} of {:?}", job.handle);
        if by.uid == USERS[0] { Err(AddError::TooMany) } else { Ok(()) }
    }

    fn keep_triggers(&mut self, _targets: &Targets) {}

    async fn command(&mut self, command: Command) {
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
            Command::ReadNow(ids) => {
                assert!(ids.iter().all(|id| self.sampled.contains_key(id)), "a first reading of nothing");
            }
            Command::ReadJob(job) => {
                assert!(self.ends_unseen || self.handles.contains_key(&job), "{job:?} is unknown");
                assert!(!self.ended.contains(&job), "{job:?} is read after its end");
                self.last_read = Some(job);
            }
            Command::RecordEvent(record) => self.record(*record),
            Command::FlushForWatch => {}
            Command::Add(..)
            | Command::RecordUserValues(_)
            | Command::Confirm(_)
            | Command::Flush
            | Command::Stop => panic!("unexpected {command:?}"),
        }
    }

    fn count(&self, _: &Targets) {}

    fn count_left_out(&mut self, jobs: usize, _: Descriptors) {
        self.left_out = jobs;
    }
}

pub(super) fn job_name(random: &mut Random) -> Identifier {
    Identifier::try_from(random.below(9).to_string()).unwrap()
}
