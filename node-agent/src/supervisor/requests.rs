//! Requests of users and schedulers, each from its check to its answer.

use std::sync::Arc;

use polymeter_proto::catalogue::{Definition, PROCESS_RANK, REGIONS, derived};
use polymeter_proto::ledger::{Event, JobFacts, Mark};
use polymeter_proto::series::{Identifier, Labels};
use polymeter_proto::step_level::StepLevel;
use tracing::warn;

use super::dispatcher::Dispatcher;
use super::edge::{Edge, NodeEdge};
use super::owner_lookups::{LookedUp, Purpose, User};
use crate::admission::{Admission, metrics_of, released};
use crate::cgroups::StepCounts;
use crate::lanes::{ActiveSource, Command, EventRecord, SourceId, SourceKey, UserValue};
use crate::lifecycle::{LifecycleEffect, Registration};
use crate::plan::is_of_hardware;
use crate::principal::Principal;
use crate::request::{
    AccessError, AnnotateError, JobSpec, LeaseError, LeaseGrant, LeaseRequest, MarkSpec, MetricView,
    PushSpec, RegionsSpec, RegisterError, ReleaseRequest, StartSpec,
};
use crate::sources::Source;
use crate::targets::{Access, TargetKey, USER_SUPPLIED};

const NAMED_EVENTS: [&str; 2] = ["perf.event.*", "node.pmu.*"];

impl<E: Edge> Dispatcher<E> {
    /// Grants a lease, and samples by it. One that cannot be sampled at all is revoked.
    pub(crate) async fn set(&mut self, request: LeaseRequest) -> Result<LeaseGrant, LeaseError> {
        let (key, has_steps) = (request.job_id.clone(), request.level.is_some());
        let wanted = self.admission.check(&self.targets, &request, self.edge.now())?;
        self.refresh_files(&key, &wanted).await;
        self.probe(&key, wanted, has_steps);
        let read_times = self.edge.read_times();
        let granting = self.admission.admit(&mut self.targets, request, &read_times, self.edge.now())?;
        self.update_sources(&key, has_steps).await;
        let outcome = granting.finish(self.targets.get_mut(&key).ok_or(AccessError::Unknown)?);
        if outcome.is_err() {
            self.update_sources(&key, has_steps).await;
        }
        self.record_plan(&key, None).await;
        outcome
    }

    /// Opens those of the wanted metrics of a target for trial whose availability and read time are unknown,
    /// and counts its steps and tasks if they matter.
    fn probe(&mut self, key: &TargetKey, wanted: Vec<Definition>, has_steps: bool) {
        let Some(target) = self.targets.get_mut(key) else { return };
        let unknown = target.unprobed(wanted, self.edge.now().monotonic_ns);
        if has_steps {
            let counts = StepCounts::of(self.edge.steps_of(target).values());
            target.findings.set_step_counts(counts);
        } else if unknown.is_empty() {
            return;
        }
        let found = self.edge.probe(target, &unknown);
        target.findings.add(found, self.edge.now().monotonic_ns);
    }

    /// Ends leases; with a level only those of steps or tasks. Returns how many ended.
    pub(crate) async fn reset(
        &mut self,
        principal: Principal,
        key: &TargetKey,
        level: Option<StepLevel>,
    ) -> Result<usize, AccessError> {
        let (ended, changed) = Admission::reset(&mut self.targets, principal, key, level)?;
        self.follow_plans(changed).await;
        Ok(ended)
    }

    pub(crate) async fn release(
        &mut self,
        request: &ReleaseRequest,
    ) -> Result<(i64, Vec<String>), LeaseError> {
        let until_us = self.admission.release(&mut self.targets, request, self.edge.now())?;
        self.follow_releases([released(&request.job_id)]).await;
        let target = self.targets.get(&request.job_id);
        let sampled = target.into_iter().flat_map(|target| target.plan_in_force());
        let metrics = sampled.map(|(name, _)| name).filter(|name| is_of_hardware(name));
        Ok((until_us, metrics.collect()))
    }

    pub(crate) async fn resume(
        &mut self,
        principal: Principal,
        key: &TargetKey,
    ) -> Result<usize, AccessError> {
        let (ended, changed) = Admission::resume(&mut self.targets, principal, key)?;
        self.follow_releases(changed).await;
        Ok(ended)
    }

    pub(crate) async fn metrics(
        &mut self,
        principal: Principal,
        key: &TargetKey,
    ) -> Result<Vec<MetricView>, AccessError> {
        self.targets.access(principal, key, Access::See)?;
        self.refresh_files(key, &[]).await;
        let target = self.targets.access(principal, key, Access::See)?;
        let mut all = "*".parse().map_or_else(|_invalid| Vec::new(), |all| target.choose(None, &all));
        let named = NAMED_EVENTS.iter().filter_map(|family| family.parse().ok());
        let derived = derived::all().filter_map(|derived| derived.name.parse().ok());
        all.extend(derived.chain(named).flat_map(|selector| target.choose(None, &selector)));
        self.probe(key, all, false);
        let target = self.targets.access(principal, key, Access::See)?;
        Ok(metrics_of(target, &self.edge.read_times(), self.edge.counters_owner()))
    }

    pub(crate) async fn register(&mut self, registration: Registration) -> Result<(), RegisterError> {
        let (now, mut effects) = (self.edge.now(), Vec::new());
        self.lifecycle.register(&mut self.targets, registration, now, &mut effects)?;
        self.apply(effects).await;
        Ok(())
    }

    /// Takes the last sample of a registered job and stops tracking it. False if there is no such job.
    pub(crate) async fn unregister(&mut self, job_id: Identifier) -> bool {
        let (now, mut effects) = (self.edge.now(), Vec::new());
        let is_registered = self.lifecycle.unregister(&mut self.targets, job_id, now, &mut effects);
        self.apply(effects).await;
        is_registered
    }

    /// Keeps the scheduler's announcement of a job. If its cgroups exist already, requests the leases of its
    /// owner, and returns the first refusal, else the first lease.
    pub(crate) async fn announce(
        &mut self,
        spec: StartSpec,
        owner_name: Option<Identifier>,
    ) -> Result<Option<Result<LeaseGrant, LeaseError>>, RegisterError> {
        let (job_id, now, mut effects) = (spec.job_id.clone(), self.edge.now(), Vec::new());
        let tracked_uid = self.targets.job(&job_id).and_then(|target| target.owner_uid);
        if let Some((owner, announced)) = tracked_uid.zip(spec.owner_uid).filter(|(one, other)| one != other)
        {
            warn!(
                job = %job_id,
                owner,
                announced,
                "cannot change the owner of a tracked job: the announcement counts for the next job of this id; end the old one first"
            );
        }
        let leases = self.lifecycle.announce(&mut self.targets, spec, owner_name, now, &mut effects)?;
        self.apply(effects).await;
        let mut outcome = None;
        for lease in leases {
            let (result, effects) = self.request_lease(&job_id, lease).await;
            self.apply(effects).await;
            outcome = match (outcome, result) {
                (Some(Err(error)), _) | (_, Err(error)) => Some(Err(error)),
                (Some(Ok(first)), Ok(_)) | (None, Ok(first)) => Some(Ok(first)),
            };
        }
        Ok(outcome)
    }

    /// Requests a lease that the owner of a job requested at submission. Returns the answer, and the effects
    /// of a refusal.
    pub(super) async fn request_lease(
        &mut self,
        job_id: &Identifier,
        request: LeaseRequest,
    ) -> (Result<LeaseGrant, LeaseError>, Vec<LifecycleEffect>) {
        let part = request.part();
        let result = self.set(request).await;
        let (now, mut effects) = (self.edge.now(), Vec::new());
        let targets = &mut self.targets;
        self.lifecycle.submission_answered(targets, job_id, part, &result, now, &mut effects);
        (result, effects)
    }

    pub(crate) async fn scheduler_ended(&mut self, job_id: &Identifier, facts: JobFacts) {
        let (now, mut effects) = (self.edge.now(), Vec::new());
        self.lifecycle.scheduler_ended(&mut self.targets, job_id, facts, now, &mut effects);
        self.apply(effects).await;
    }
}

impl Dispatcher<NodeEdge> {
    /// Looks a user up, at once or beside the loop, and continues with the request.
    pub(super) async fn look_up(&mut self, user: User, purpose: Purpose) {
        if let Some(looked_up) = self.edge.owner_lookups.start(user, purpose) {
            self.handle_looked_up(looked_up).await;
        }
    }

    /// Continues after a look-up. An answer is dropped if the requester does not wait any more.
    pub(super) async fn handle_looked_up(&mut self, LookedUp { purpose, uid, name }: LookedUp<Purpose>) {
        match purpose {
            Purpose::Job(purpose) => self.job_looked_up(LookedUp { purpose, uid, name }).await,
            Purpose::Announce(spec, reply) => {
                drop(reply.send(self.announce(StartSpec { owner_uid: uid, ..*spec }, name).await));
            }
            Purpose::Register(spec, reply) => {
                let (target, descriptors) = (self.edge.registered_target(&spec), self.edge.descriptors());
                let (job_id, spec) = (spec.job_id.clone(), JobSpec { owner_uid: uid, ..*spec });
                match self.register(Registration { spec, target, descriptors }).await {
                    Err(error) => drop(reply.send(Err(error))),
                    Ok(()) => {
                        let target = self.targets.job(&job_id);
                        let unavailable =
                            target.map(|target| target.sources.unavailable().cloned().collect());
                        let answer = Ok(unavailable.unwrap_or_default());
                        self.edge.after_first_reading(|| drop(reply.send(answer))).await;
                    }
                }
            }
        }
    }

    pub(super) async fn mark(&mut self, spec: MarkSpec) -> Result<(), AnnotateError> {
        let now = self.edge.now();
        self.targets.access(spec.principal, &spec.job_id, Access::Change)?;
        let target = self.targets.get_mut(&spec.job_id).ok_or(AccessError::Unknown)?;
        target.user_events.take_mark(now.monotonic_ns)?;
        let knows_begins = self.lifecycle.knows_from_begin(target);
        target.user_events.note_mark(&spec.name, spec.kind, knows_begins)?;
        let job = target.job.clone();
        let mark = Mark {
            at_us: now.realtime_us,
            job: target.handle(),
            name: spec.name,
            kind: spec.kind,
            by: spec.principal.name(),
        };
        self.record(EventRecord { job, event: Event::Mark(mark) }).await;
        Ok(())
    }

    pub(super) async fn push(&mut self, spec: PushSpec) -> Result<(), AnnotateError> {
        let now = self.edge.now();
        self.targets.access(spec.principal, &spec.job_id, Access::Change)?;
        let target = self.targets.get_mut(&spec.job_id).ok_or(AccessError::Unknown)?;
        let is_bounded = spec.is_users_own();
        let series = (spec.metric.name.as_str().to_owned(), spec.labels.clone());
        if is_bounded {
            target.user_events.take_value(now.monotonic_ns)?;
            // A value that is refused uses up no name.
            target.user_events.check_room(&series)?;
            let name = spec.metric.name.as_str();
            self.targets.user_names.note(spec.principal, name, now.monotonic_ns)?;
        }
        let source = self.user_source(&spec.job_id).await.ok_or(AccessError::Unknown)?;
        let target = self.targets.get_mut(&spec.job_id).ok_or(AccessError::Unknown)?;
        let Ok(name) = Identifier::try_from(USER_SUPPLIED) else { return Err(AccessError::Unknown.into()) };
        let (job, ids, series_ids) =
            (target.job.as_ref(), &mut self.edge.ids.series, target.sources.series_ids());
        let shape = target
            .user_events
            .shape(series, is_bounded, || ids.shape_of(job, name, series_ids, [spec.metric], &spec.labels))?;
        let value = UserValue { source, shape, time_us: now.realtime_us, bits: vec![spec.value.to_bits()] };
        self.edge.command(Command::RecordUserValues(vec![value])).await;
        Ok(())
    }

    pub(super) async fn regions(&mut self, spec: RegionsSpec) -> Result<(), AnnotateError> {
        let now = self.edge.now();
        let key = Some(spec.job_id);
        self.targets.access(spec.principal, &key, Access::Change)?;
        let target = self.targets.get_mut(&key).ok_or(AccessError::Unknown)?;
        target.user_events.take_regions(spec.regions.len(), spec.is_last, now.monotonic_ns)?;
        let source = self.user_source(&key).await.ok_or(AccessError::Unknown)?;
        let target = self.targets.get_mut(&key).ok_or(AccessError::Unknown)?;
        let Ok(name) = Identifier::try_from(USER_SUPPLIED) else { return Err(AccessError::Unknown.into()) };
        let (mut values, mut outcome) = (Vec::with_capacity(spec.regions.len()), Ok(()));
        for region in spec.regions {
            let (job, ids, series_ids) =
                (target.job.as_ref(), &mut self.edge.ids.series, target.sources.series_ids());
            let descriptors = REGIONS.iter().filter_map(|metric| Definition::of(metric).descriptor());
            match target.user_events.region_shape(&region.labels, || {
                ids.shape_of(job, name.clone(), series_ids, descriptors, &region.labels)
            }) {
                Ok(shape) => {
                    let bits = region.values.to_vec();
                    values.push(UserValue { source, shape, time_us: now.realtime_us, bits });
                }
                Err(error) => outcome = Err(error),
            }
        }
        self.edge.command(Command::RecordUserValues(values)).await;
        outcome
    }

    pub(super) async fn ranks(&mut self, source: SourceId, ranks: Vec<(u32, u32)>) {
        let now = self.edge.now();
        let Some(key) = self.edge.ids.sources.target(source).cloned() else { return };
        let Some(source) = self.user_source(&key).await else { return };
        let Some(target) = self.targets.get_mut(&key) else { return };
        let mut values = Vec::with_capacity(ranks.len());
        for (process, rank) in ranks {
            let labels =
                vec![("process".to_owned(), process.to_string()), ("rank".to_owned(), rank.to_string())];
            let (Ok(labels), Ok(name)) = (Labels::new(labels), Identifier::try_from(USER_SUPPLIED)) else {
                continue;
            };
            let (job, ids, series_ids) =
                (target.job.as_ref(), &mut self.edge.ids.series, target.sources.series_ids());
            let descriptor = Definition::of(&PROCESS_RANK).descriptor();
            if let Ok(shape) = target
                .user_events
                .region_shape(&labels, || ids.shape_of(job, name, series_ids, descriptor, &labels))
            {
                let bits = vec![u64::from(rank)];
                values.push(UserValue { source, shape, time_us: now.realtime_us, bits });
            }
        }
        self.edge.command(Command::RecordUserValues(values)).await;
    }

    /// Counts users' values of a target; created for the first value.
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
