//! The events of the state machines, and the effects that they return.

use std::collections::BTreeMap;

use polymeter_proto::series::Identifier;

use super::{Effect, Scenario, USERS};
use crate::admission::{AdmissionEffect, AdmissionEvent, LeaseOrigin, OpenReason, ReadTimes};
use crate::cgroups::StepCounts;
use crate::lifecycle::{LifecycleEffect, LifecycleEvent, LifecycleTask};
use crate::targets::{TargetKey, TrackedTarget};

impl Scenario {
    pub(super) fn admission(&mut self, event: AdmissionEvent) {
        let mut effects = Vec::new();
        self.admission.handle(&mut self.targets, event, self.now, &mut effects);
        effects.into_iter().rev().for_each(|effect| self.effects.push_front(Effect::Admission(effect)));
        self.apply_all();
    }

    pub(super) fn lifecycle(&mut self, event: LifecycleEvent) {
        let mut effects = Vec::new();
        self.lifecycle.handle(&mut self.targets, event, self.now, &mut effects);
        effects.into_iter().rev().for_each(|effect| self.effects.push_front(Effect::Lifecycle(effect)));
        self.apply_all();
    }

    pub(super) fn apply_all(&mut self) {
        while let Some(effect) = self.effects.pop_front() {
            match effect {
                Effect::Admission(effect) => self.apply_admission(effect),
                Effect::Lifecycle(effect) => self.apply_lifecycle(effect),
            }
            // Exits are seen at any time.
            if self.random.percent(5) {
                let exits = BTreeMap::from([(self.name(), true)]);
                self.see_exits(exits);
            }
        }
    }

    /// Lets the agent see exits in jobs. Those of jobs that are not watched are not seen: an agent watches a job when its sources have
    /// been opened, and until its end has been handled.
    pub(super) fn see_exits(&mut self, mut exits: BTreeMap<Identifier, bool>) {
        exits.retain(|job, _| self.watched.contains(job));
        for job in self.lifecycle.exits_seen(&mut self.targets, exits, self.now) {
            assert!(self.handles.contains_key(&job), "{job:?} is unknown");
        }
    }

    pub(super) fn apply_admission(&mut self, effect: AdmissionEffect) {
        match effect {
            AdmissionEffect::OpenSources(key, reason) => {
                self.open(&key, false);
                self.admission(AdmissionEvent::SourcesOpened(key, reason));
            }
            AdmissionEffect::Probe(key, definitions, counts_steps) => {
                let target = self.targets.get(&key);
                let found = target.map(|target| self.edge.probe(target, &definitions)).unwrap_or_default();
                let present = target.and_then(|target| self.steps.get(target.found_at.as_ref()?));
                let counts = StepCounts::of(present.into_iter().flat_map(BTreeMap::values));
                self.admission(AdmissionEvent::Probed(key, found, counts_steps.then_some(counts)));
            }
            AdmissionEffect::RecordPlanChange(job, change) => {
                assert_eq!(job.map(|job| job.handle), change.job);
                assert!(change.level.is_none() || change.job.is_some(), "the node has no steps: {change:?}");
                self.edge.record_plan_change(&change);
            }
            AdmissionEffect::AnswerLease(LeaseOrigin::Client(reply), answer) => reply.send(answer).unwrap(),
            AdmissionEffect::AnswerLease(LeaseOrigin::Submission(job_id, level, reply), result) => {
                self.lifecycle(LifecycleEvent::SubmissionAnswered { job_id, level, result, reply });
            }
            AdmissionEffect::AnswerReset(reply, answer) => reply.send(answer).unwrap(),
            AdmissionEffect::AnswerMetrics(reply, answer) => reply.send(answer).unwrap(),
            AdmissionEffect::UpdateSteps(key) => drop(self.update_steps(&key)),
            AdmissionEffect::LogGoverned(_) => {}
        }
    }

    pub(super) fn apply_lifecycle(&mut self, effect: LifecycleEffect) {
        match effect {
            LifecycleEffect::Task(task) => self.apply_task(task),
            LifecycleEffect::CloseSources(target) => {
                target.sources.close().into_iter().for_each(|command| self.edge.command(command));
            }
            LifecycleEffect::FinalSample(job) => self.edge.final_sample(job),
            LifecycleEffect::ReadJob(job) => assert!(self.handles.contains_key(&job), "{job:?} is unknown"),
            LifecycleEffect::Record(record) => self.edge.record(&record),
            LifecycleEffect::AnswerRegistration(reply, answer) => {
                reply.send(answer.map(|_| Vec::new())).unwrap();
            }
            LifecycleEffect::AnswerUnregistration(reply, answer) => reply.send(answer).unwrap(),
            LifecycleEffect::AnswerAnnouncement(reply, answer) => reply.send(answer).unwrap(),
            LifecycleEffect::AnswerEnd(reply) => reply.send(()).unwrap(),
            LifecycleEffect::ReportLeftOut(jobs, _) => self.left_out = jobs,
            LifecycleEffect::UpdateSteps(key) => {
                if self.update_steps(&key) {
                    self.admission(AdmissionEvent::StepsUpdated(key));
                }
            }
            LifecycleEffect::UnwatchExits(job_id) => drop(self.watched.remove(&job_id)),
            LifecycleEffect::LogInfo(_) | LifecycleEffect::LogWarning(_) => {}
        }
    }

    pub(super) fn apply_task(&mut self, task: LifecycleTask) {
        match task {
            LifecycleTask::OpenSources(key) => {
                self.open(&key, true);
                self.admission(AdmissionEvent::SourcesOpened(key, OpenReason::Files));
            }
            LifecycleTask::WatchExits(key) => {
                let is_missed = self.random.percent(10);
                self.watched.extend(key.clone().filter(|_| self.targets.get(&key).is_some()));
                self.lifecycle(LifecycleEvent::ExitsWatched(key, is_missed));
            }
            LifecycleTask::IdentifyJob { found, needs_number, .. } => {
                let number = if needs_number { self.number_of(&found) } else { None };
                self.lifecycle(LifecycleEvent::JobDiscovered { found, number, owner_uid: None });
            }
            LifecycleTask::LookUpOwner(key, _) => {
                let uid = self.random.percent(50).then_some(USERS[0]);
                let job = self.targets.get(&key).and_then(TrackedTarget::handle).unwrap();
                self.lifecycle(LifecycleEvent::OwnerLookedUp { key, job, uid, name: None });
            }
            LifecycleTask::RequestLease(request, job_id, reply) => {
                assert!(!request.principal.administrator, "a request at submission is an ordinary user's");
                let origin = LeaseOrigin::Submission(job_id, request.level, reply);
                self.admission(AdmissionEvent::LeaseRequested(request, origin, ReadTimes::new()));
            }
            LifecycleTask::ScanCgroups(_) | LifecycleTask::HandleExits => {}
        }
    }

    pub(super) fn update_steps(&mut self, key: &TargetKey) -> bool {
        let Some(target) = self.targets.get_mut(key) else { return false };
        let present = target.found_at.as_ref().and_then(|path| self.steps.get(path));
        self.edge.update_steps(key, target, present.cloned().unwrap_or_default())
    }

    pub(super) fn open(&mut self, key: &TargetKey, is_anew: bool) {
        let Some(target) = self.targets.get_mut(key) else { return };
        if let Some(handle) = target.handle() {
            let known = self.handles.entry(handle).or_insert_with(|| key.clone());
            assert_eq!(known, key, "a handle has a second meaning");
        }
        self.edge.open_sources(key, target, is_anew);
    }
}
