//! The dispatcher: passes events to the state machines, and applies their effects at the edge.

use std::collections::VecDeque;
use std::sync::Arc;

use polymeter_proto::ledger::Event;
use polymeter_proto::series::{Identifier, Kind, MetricDescriptor, Number, Unit};
use tracing::{info, warn};

use super::edge::{Edge, now};
use super::owner_lookups::{LookedUp, NAME_SERVICE, OwnerLookups, Purpose, User};
use crate::admission::{Admission, AdmissionEffect, AdmissionEvent, LeaseOrigin, OpenReason};
use crate::lanes::{ActiveSource, Command, EventRecord, SourceId, SourceKey, UserValue};
use crate::lifecycle::{Lifecycle, LifecycleEffect, LifecycleEvent, LifecycleTask, Registration};
use crate::request::{AccessError, AnnotateError, JobSpec, PushSpec, StartSpec};
use crate::sources::Source;
use crate::targets::{Access, SourceChanges, TargetKey, Targets, USER_SUPPLIED};

/// An event of either state machine.
#[derive(Debug)]
pub(super) enum AnyEvent {
    Admission(AdmissionEvent),
    Lifecycle(LifecycleEvent),
}

/// An effect of either state machine.
#[derive(Debug)]
enum AnyEffect {
    Admission(AdmissionEffect),
    Lifecycle(LifecycleEffect),
}

/// The state machines, and the edge.
#[derive(Debug)]
pub(super) struct Dispatcher {
    pub(super) targets: Targets,
    pub(super) admission: Admission,
    pub(super) lifecycle: Lifecycle,
    pub(super) edge: Edge,
    pub(super) owner_lookups: OwnerLookups,
    effects: VecDeque<AnyEffect>,
}

impl Dispatcher {
    pub(super) fn new(targets: Targets, admission: Admission, lifecycle: Lifecycle, edge: Edge) -> Self {
        let (owner_lookups, effects) = (OwnerLookups::new(NAME_SERVICE), VecDeque::new());
        Self { targets, admission, lifecycle, edge, owner_lookups, effects }
    }

    /// Handles an event of admission, and applies all resulting effects.
    pub(super) async fn admission(&mut self, event: AdmissionEvent) {
        self.dispatch(AnyEvent::Admission(event));
        self.apply_all().await;
    }

    /// Handles an event of the life cycle, and applies all resulting effects.
    pub(super) async fn lifecycle(&mut self, event: LifecycleEvent) {
        self.dispatch(AnyEvent::Lifecycle(event));
        self.apply_all().await;
    }

    /// Reads the jobs of which a part has ended, and rescans them.
    pub(super) async fn handle_exits(&mut self) {
        self.effects.push_back(AnyEffect::Lifecycle(LifecycleTask::HandleExits.into()));
        self.apply_all().await;
    }

    /// Passes an event to its state machine. The resulting effects precede those that wait, because they belong to the
    /// effect that caused the event.
    fn dispatch(&mut self, event: AnyEvent) {
        match event {
            AnyEvent::Admission(event) => {
                let mut effects = Vec::new();
                self.admission.handle(&mut self.targets, event, now(), &mut effects);
                let effects = effects.into_iter().rev().map(AnyEffect::Admission);
                effects.for_each(|effect| self.effects.push_front(effect));
            }
            AnyEvent::Lifecycle(event) => {
                let mut effects = Vec::new();
                self.lifecycle.handle(&mut self.targets, event, now(), &mut effects);
                let effects = effects.into_iter().rev().map(AnyEffect::Lifecycle);
                effects.for_each(|effect| self.effects.push_front(effect));
            }
        }
    }

    async fn apply_all(&mut self) {
        while let Some(effect) = self.effects.pop_front() {
            let event = match effect {
                AnyEffect::Admission(effect) => self.apply_admission(effect).await,
                AnyEffect::Lifecycle(effect) => self.apply_lifecycle(effect).await,
            };
            if let Some(event) = event {
                self.dispatch(event);
            }
        }
        self.edge.count(&self.targets);
    }

    /// Applies an effect of admission. Returns the resulting event. An answer is dropped if the requester does not wait
    /// any more.
    async fn apply_admission(&mut self, effect: AdmissionEffect) -> Option<AnyEvent> {
        match effect {
            AdmissionEffect::OpenSources(key, reason) => {
                self.open_sources(&key, false).await;
                return Some(AnyEvent::Admission(AdmissionEvent::SourcesOpened(key, reason)));
            }
            AdmissionEffect::UpdateSteps(key) => drop(self.update_steps(&key).await),
            AdmissionEffect::Probe(key, definitions, counts_steps) => {
                let target = self.targets.get(&key);
                let found = target.map(|target| self.edge.probe(target, &definitions)).unwrap_or_default();
                let step_counts = target.filter(|_| counts_steps).map(Edge::step_counts);
                return Some(AnyEvent::Admission(AdmissionEvent::Probed(key, found, step_counts)));
            }
            AdmissionEffect::RecordPlanChange(job, change) => {
                self.edge.record(EventRecord { job, event: Event::PlanChange(change) }).await;
            }
            AdmissionEffect::AnswerLease(LeaseOrigin::Client(reply), answer) => drop(reply.send(answer)),
            AdmissionEffect::AnswerLease(LeaseOrigin::Submission(job_id, level, reply), result) => {
                let event = LifecycleEvent::SubmissionAnswered { job_id, level, result, reply };
                return Some(AnyEvent::Lifecycle(event));
            }
            AdmissionEffect::AnswerReset(reply, answer) => drop(reply.send(answer)),
            AdmissionEffect::AnswerMetrics(reply, answer) => drop(reply.send(answer)),
            AdmissionEffect::LogGoverned(message) => info!("{message}"),
        }
        None
    }

    /// Applies an effect of the life cycle of jobs. Returns the resulting event.
    async fn apply_lifecycle(&mut self, effect: LifecycleEffect) -> Option<AnyEvent> {
        match effect {
            LifecycleEffect::Task(task) => return self.apply_task(task).await,
            LifecycleEffect::CloseSources(target) => {
                for command in target.sources.close() {
                    self.edge.command(command).await;
                }
            }
            LifecycleEffect::ReadJob(job) | LifecycleEffect::FinalSample(job) => {
                self.edge.command(Command::ReadJob(job)).await;
            }
            LifecycleEffect::Record(record) => self.edge.record(record).await,
            LifecycleEffect::UnwatchExits(job_id) => self.edge.unwatch_exits(&job_id),
            LifecycleEffect::UpdateSteps(key) => {
                let is_changed = self.update_steps(&key).await;
                return is_changed.then_some(AnyEvent::Admission(AdmissionEvent::StepsUpdated(key)));
            }
            LifecycleEffect::AnswerRegistration(reply, registered) => {
                let answer = registered.map(|job_id| {
                    let target = self.targets.job(&job_id);
                    target.map(|target| target.sources.unavailable().to_vec()).unwrap_or_default()
                });
                if answer.is_ok() {
                    self.edge.after_first_reading(|| drop(reply.send(answer))).await;
                } else {
                    drop(reply.send(answer));
                }
            }
            LifecycleEffect::AnswerUnregistration(reply, answer) => {
                reply.send(answer).ok();
            }
            LifecycleEffect::AnswerAnnouncement(reply, answer) => drop(reply.send(answer)),
            LifecycleEffect::AnswerEnd(reply) => {
                reply.send(()).ok();
            }
            LifecycleEffect::ReportLeftOut(jobs, descriptors) => self.edge.count_left_out(jobs, descriptors),
            LifecycleEffect::LogInfo(message) => info!("{message}"),
            LifecycleEffect::LogWarning(message) => warn!("{message}"),
        }
        None
    }

    /// Runs a task of the life cycle of jobs. Returns the resulting event.
    async fn apply_task(&mut self, task: LifecycleTask) -> Option<AnyEvent> {
        let event = match task {
            LifecycleTask::OpenSources(key) => {
                self.open_sources(&key, true).await;
                let event = AdmissionEvent::SourcesOpened(key, OpenReason::Files);
                return Some(AnyEvent::Admission(event));
            }
            LifecycleTask::WatchExits(key) => {
                let target = self.targets.get(&key)?;
                let is_missed = self.edge.watch_exits(&key, target);
                LifecycleEvent::ExitsWatched(key, is_missed)
            }
            LifecycleTask::ScanCgroups(key) => {
                let target = self.targets.get_mut(&key)?;
                let is_incomplete = self.edge.scan_cgroups(&key, target);
                is_incomplete.then_some(LifecycleEvent::RescanIncomplete(key))?
            }
            LifecycleTask::HandleExits => {
                self.read_exits().await;
                if !self.lifecycle.has_pending_rescans() {
                    return None;
                }
                self.effects.push_front(AnyEffect::Lifecycle(LifecycleTask::HandleExits.into()));
                LifecycleEvent::NextRescan
            }
            LifecycleTask::IdentifyJob { found, needs_number, owner } => {
                let number = needs_number.then(|| self.edge.job_number(&found.cgroups)).flatten();
                let user = User { name: owner, ..User::default() };
                let looked_up = self.owner_lookups.start(user, Purpose::Discover(found, number))?;
                self.looked_up(looked_up)
            }
            LifecycleTask::LookUpOwner(key, hint) => {
                let target = self.targets.get(&key)?;
                let (user, job) = (self.edge.owner(target, hint), target.handle()?);
                let looked_up = self.owner_lookups.start(user, Purpose::Complete(key, job))?;
                self.looked_up(looked_up)
            }
            LifecycleTask::RequestLease(request, job_id, reply) => {
                let origin = LeaseOrigin::Submission(job_id, request.level, reply);
                let read_times = self.edge.shared.stats_cache.read_times();
                let event = AdmissionEvent::LeaseRequested(request, origin, read_times);
                return Some(AnyEvent::Admission(event));
            }
        };
        Some(AnyEvent::Lifecycle(event))
    }

    /// Looks a user up, at once or beside the loop, and handles the resulting event.
    pub(super) async fn look_up(&mut self, user: User, purpose: Purpose) {
        if let Some(looked_up) = self.owner_lookups.start(user, purpose) {
            self.handle_looked_up(looked_up).await;
        }
    }

    /// Handles the event that results from a look-up.
    pub(super) async fn handle_looked_up(&mut self, looked_up: LookedUp) {
        let event = self.looked_up(looked_up);
        self.lifecycle(event).await;
    }

    /// Returns the event that results from a look-up.
    fn looked_up(&self, LookedUp { purpose, uid, name }: LookedUp) -> LifecycleEvent {
        match purpose {
            Purpose::Discover(found, number) => {
                LifecycleEvent::JobDiscovered { found, number, owner_uid: uid }
            }
            Purpose::Register(spec, reply) => {
                let (target, descriptors) = (self.edge.registered_target(&spec), self.edge.descriptors());
                let spec = JobSpec { owner_uid: uid, ..*spec };
                LifecycleEvent::JobRegistered(Box::new(Registration { spec, target, descriptors, reply }))
            }
            Purpose::Announce(spec, reply) => {
                let spec = Box::new(StartSpec { owner_uid: uid, ..*spec });
                LifecycleEvent::JobAnnounced { spec, owner_name: name, reply }
            }
            Purpose::Complete(key, job) => LifecycleEvent::OwnerLookedUp { key, job, uid, name },
        }
    }

    /// Makes the sampler read the jobs of which a part has ended, and leaves the rest for later. Opening the files of
    /// one job takes about as long as a scheduler takes to remove the cgroups of another; therefore this is called
    /// wherever files were opened.
    pub(super) async fn read_exits(&mut self) {
        let exits = self.edge.exits();
        if exits.is_empty() {
            return;
        }
        for job in self.lifecycle.exits_seen(&mut self.targets, exits, now()) {
            self.edge.command(Command::ReadJob(job)).await;
        }
    }

    /// Updates the sources of a target to its plan. A job's new sources are read at once: the first reading does not
    /// wait for a deadline, even if the cgroups appear one after the other.
    async fn open_sources(&mut self, key: &TargetKey, is_anew: bool) {
        let Some(target) = self.targets.get_mut(key) else { return };
        let changes = self.edge.open_sources(key, target, is_anew);
        self.tell_sampler(changes).await;
    }

    pub(super) async fn tell_sampler(&mut self, changes: SourceChanges) {
        self.read_exits().await;
        for command in changes.commands {
            self.edge.command(command).await;
        }
        self.read_exits().await;
        if !changes.first_reading.is_empty() {
            self.edge.command(Command::ReadNow(changes.first_reading)).await;
        }
    }

    /// Records a user's value in the data, dated now.
    pub(super) async fn push(&mut self, spec: PushSpec) -> Result<(), AnnotateError> {
        let now = now();
        self.targets.access(spec.principal, &spec.job_id, Access::Change)?;
        let target = self.targets.get_mut(&spec.job_id).ok_or(AccessError::Unknown)?;
        target.user_events.take_value(now.monotonic_ns)?;
        let source = self.user_source(&spec.job_id).await.ok_or(AccessError::Unknown)?;
        let target = self.targets.get_mut(&spec.job_id).ok_or(AccessError::Unknown)?;
        let series = (spec.metric.as_str().to_owned(), spec.labels.clone());
        let descriptor = MetricDescriptor {
            name: spec.metric,
            unit: Unit::Labelled,
            kind: Kind::Gauge,
            number: Number::Float,
        };
        let Ok(name) = Identifier::try_from(USER_SUPPLIED) else { return Err(AccessError::Unknown.into()) };
        let (job, ids, series_ids) =
            (target.job.as_ref(), &mut self.edge.ids.series, target.sources.series_ids());
        let assign = || ids.shape_of(job, name, series_ids, descriptor, &spec.labels);
        let shape = target.user_events.shape(series, assign)?;
        let value = UserValue { source, shape, time_us: now.realtime_us, bits: spec.value.to_bits() };
        self.edge.command(Command::RecordUserValue(Box::new(value))).await;
        Ok(())
    }

    /// Returns the source that counts users' values of a target; it is created for the first value.
    async fn user_source(&mut self, key: &TargetKey) -> Option<SourceId> {
        let target = self.targets.get_mut(key)?;
        if let Some(id) = target.user_events.source {
            return Some(id);
        }
        let source_key =
            SourceKey { job: target.job.clone(), name: Identifier::try_from(USER_SUPPLIED).ok()? };
        let id = self.edge.ids.sources.assign(key);
        target.user_events.source = Some(id);
        target.sources.add_unread(USER_SUPPLIED, id);
        let active = ActiveSource::new(Arc::new(source_key), Source::user_supplied(), Vec::new());
        self.edge.command(Command::Add(id, Box::new(active))).await;
        Some(id)
    }
}
