//! State machine of the life cycle of jobs.

mod discovered;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use polymeter_proto::ledger::JobFacts;
use polymeter_proto::series::{Identifier, JobDescriptor, JobHandle};
use polymeter_proto::step_level::StepLevel;
use polymeter_proto::trigger::Rule;

use crate::admission::{Capacity, Descriptors};
use crate::cgroups::JobCgroups;
use crate::lifecycle::announced_jobs::AnnouncedJobs;
use crate::lifecycle::effect::LifecycleEffect;
use crate::lifecycle::found_job::Walk;
use crate::lifecycle::rescans::PendingRescans;
use crate::lifecycle::sluids::Sluids;
use crate::lifecycle::{owners, room, submissions};
use crate::plan::Plan;
use crate::request::{JobSpec, LeaseError, LeaseGrant, LeaseRequest, RegisterError, StartSpec};
use crate::sources::Target;
use crate::targets::{JobHandles, Now, TargetKey, Targets, TrackedTarget};

/// Idle time after which an agent that was started for a job ends: the next job often starts at once.
const IDLE_NS: u64 = 5_000_000_000;

type Effects = Vec<LifecycleEffect>;

#[derive(Debug)]
pub(crate) struct Registration {
    /// Its owner's numeric id was looked up.
    pub(crate) spec: JobSpec,
    pub(crate) target: Result<Target, RegisterError>,
    pub(crate) descriptors: Descriptors,
}

/// State machine of jobs. Each event is a function that appends its effects to `out`, in order.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    cluster: Option<Identifier>,
    /// Plan of a job without any request.
    standing: Plan,
    node: Target,
    handles: JobHandles,
    announced: AnnouncedJobs,
    sluids: Sluids,
    capacity: Capacity,
    pending_rescans: PendingRescans,
    idle_since_ns: u64,
    /// Place where the jobs are that are older than the agent; none before the first walk.
    older: Option<BTreeSet<PathBuf>>,
}

impl Lifecycle {
    pub(crate) fn new(cluster: Option<Identifier>, standing: Plan, node: Target, now: Now) -> Self {
        Self {
            cluster,
            standing,
            node,
            handles: JobHandles::default(),
            announced: AnnouncedJobs::default(),
            sluids: Sluids::default(),
            capacity: Capacity::new(0),
            pending_rescans: PendingRescans::default(),
            idle_since_ns: now.monotonic_ns,
            older: None,
        }
    }

    /// True for a job that began after the agent, so that all requests about it were sent to this one.
    pub(crate) fn knows_from_begin(&self, target: &TrackedTarget) -> bool {
        target.job.is_some()
            && !target
                .found_at
                .as_ref()
                .is_some_and(|place| self.older.as_ref().is_none_or(|older| older.contains(place)))
    }

    pub(crate) fn start(&self, targets: &mut Targets, out: &mut Effects) {
        let Plan { machine, baseline, .. } = self.standing.clone();
        let plan = Plan { machine, baseline, ..Plan::default() };
        targets.insert(None, TrackedTarget::new(None, self.node.clone(), plan, None));
        out.push(LifecycleEffect::OpenSources(None));
    }

    /// Takes the descriptors into account that are open when the node's sources are, and those of no job.
    pub(crate) const fn node_sampled(&mut self, descriptors: Descriptors) {
        self.capacity = Capacity::new(descriptors.open);
    }

    /// Puts another cluster's name and other standing layers of the plan in force, for jobs that begin later.
    pub(crate) fn reload(&mut self, cluster: Option<Identifier>, standing: Plan) {
        (self.cluster, self.standing) = (cluster, standing);
    }

    /// Compares the jobs that discovery has found with those that are tracked.
    pub(crate) fn walked(&mut self, targets: &mut Targets, mut walk: Walk, now: Now, out: &mut Effects) {
        let vanished = std::mem::take(&mut walk.vanished);
        let found = room::fit(&mut self.capacity, targets, walk, now, out);
        let older = self.older.get_or_insert_with(|| found.keys().cloned().collect());
        older.retain(|place| found.contains_key(place));
        self.compare(targets, found, &vanished, now, out);
    }

    /// Queues the jobs in which something happened for a rescan; true if a process or a cgroup has ended.
    /// Returns those that must be read at once, before anything else.
    pub(crate) fn exits_seen(
        &mut self,
        targets: &mut Targets,
        exits: BTreeMap<Identifier, bool>,
        now: Now,
    ) -> Vec<JobHandle> {
        self.pending_rescans.exits_seen(targets, exits, now)
    }

    /// True if the job must be read.
    pub(crate) fn next_rescan(&mut self) -> Option<(TargetKey, bool)> {
        self.pending_rescans.next()
    }

    /// Cgroups of jobs whose numbers are unknown; true if the search for the number is to be given up.
    pub(crate) fn unnumbered_jobs(&self, now: Now) -> impl Iterator<Item = (&JobCgroups, bool)> {
        self.sluids.unnumbered(now)
    }

    /// True if there is room for `found` jobs; if not, their owners' shares count.
    pub(crate) fn has_room(&self, targets: &Targets, found: usize, descriptors: Descriptors) -> bool {
        found <= self.capacity.room(targets, descriptors)
    }

    pub(crate) fn is_idle(&mut self, targets: &Targets, now: Now) -> bool {
        self.announced.forget_old(now);
        if targets.job_count() > 0 || !self.announced.is_empty() {
            self.idle_since_ns = now.monotonic_ns;
        }
        now.monotonic_ns.saturating_sub(self.idle_since_ns) >= IDLE_NS
    }

    fn track(
        &mut self,
        targets: &mut Targets,
        descriptor: JobDescriptor,
        target: Target,
        plan: Plan,
        found_at: Option<PathBuf>,
        out: &mut Effects,
    ) {
        let key = Some(descriptor.job_id.clone());
        let job = self.handles.assign(descriptor);
        targets.insert(key.clone(), TrackedTarget::new(Some(job), target, plan, found_at));
        out.push(LifecycleEffect::OpenSources(key.clone()));
        out.push(LifecycleEffect::Rescan(key));
    }

    pub(crate) fn register(
        &mut self,
        targets: &mut Targets,
        registration: Registration,
        now: Now,
        out: &mut Effects,
    ) -> Result<(), RegisterError> {
        let Registration { spec, target, descriptors } = registration;
        if targets.job(&spec.job_id).is_some() {
            return Err(RegisterError::Known);
        }
        if !Capacity::has_room_for(targets, spec.owner_uid, descriptors) {
            return Err(RegisterError::TooMany);
        }
        let target = target?;
        let descriptor = JobDescriptor {
            job_id: spec.job_id,
            cluster: spec.cluster.or(self.cluster.clone()),
            owner_uid: spec.owner_uid,
            owner: spec.owner,
            started_us: now.realtime_us,
        };
        let plan = Plan { registration: spec.sampling, ..self.standing.clone() };
        let job_id = descriptor.job_id.clone();
        let mut opening = Effects::new();
        self.track(targets, descriptor, target, plan, None, &mut opening);
        if let Some(job) = targets.job(&job_id).and_then(|target| target.job.clone()) {
            submissions::record_details(Arc::clone(&job), spec.details, out);
            submissions::record_facts_of(job, spec.facts, false, out);
            // The job is on record while its sources are being opened.
            out.push(LifecycleEffect::SendRecords);
        }
        out.append(&mut opening);
        Ok(())
    }

    /// Returns false if there is no such job.
    pub(crate) fn unregister(
        &mut self,
        targets: &mut Targets,
        job_id: Identifier,
        now: Now,
        out: &mut Effects,
    ) -> bool {
        let is_registered = targets.job(&job_id).is_some_and(|target| target.found_at.is_none());
        if is_registered {
            self.end(targets, &Some(job_id), now, out);
        }
        is_registered
    }

    /// Keeps the scheduler's announcement of a job, whose owner's numeric id was looked up. Returns the
    /// leases that its owner requests, if its cgroups exist already; `owner_name` counts if the owner was
    /// unknown.
    pub(crate) fn announce(
        &mut self,
        targets: &mut Targets,
        spec: StartSpec,
        owner_name: Option<Identifier>,
        now: Now,
        out: &mut Effects,
    ) -> Result<Vec<LeaseRequest>, RegisterError> {
        let (job_id, owner_uid) = (spec.job_id.clone(), spec.owner_uid);
        self.announced.announce(spec, now)?;
        if targets.job(&job_id).is_none() {
            return Ok(Vec::new());
        }
        if let Some(uid) = owner_uid {
            owners::set(targets, &Some(job_id.clone()), uid, owner_name, out);
        }
        self.announced.cgroups_came(&job_id);
        submissions::record_facts(&mut self.announced, targets, &job_id, now, out);
        submissions::add_triggers(&mut self.announced, targets, &job_id, out);
        Ok(submissions::leases(&self.announced, targets, &job_id))
    }

    pub(crate) fn submission_answered(
        &mut self,
        targets: &mut Targets,
        job_id: &Identifier,
        part: (Option<StepLevel>, bool),
        result: &Result<LeaseGrant, LeaseError>,
        now: Now,
        out: &mut Effects,
    ) {
        submissions::answered(&mut self.announced, targets, job_id, part, result, now, out);
    }

    /// True if the scheduler has announced a job whose cgroups were not found yet.
    pub(crate) fn awaits(&self, targets: &Targets, job_id: &Identifier) -> bool {
        targets.job(job_id).is_none() && self.announced.awaits(job_id)
    }

    /// Records that the scheduler has ended a job. The data have each announced job: one whose cgroups were
    /// removed before they were found has no samples.
    pub(crate) fn scheduler_ended(
        &mut self,
        targets: &mut Targets,
        job_id: &Identifier,
        facts: JobFacts,
        now: Now,
        out: &mut Effects,
    ) {
        let was_awaited = self.awaits(targets, job_id);
        if was_awaited {
            self.track_unseen(targets, job_id, now, out);
        }
        submissions::scheduler_ended(&mut self.announced, targets, job_id, facts, out);
        if was_awaited {
            self.end(targets, &Some(job_id.clone()), now, out);
        }
    }

    /// Sets the owner of a job after the look-up, and requests the lease that waited for it. Another job may
    /// have the id by now.
    pub(crate) fn owner_looked_up(
        &mut self,
        targets: &mut Targets,
        key: &TargetKey,
        job: JobHandle,
        uid: Option<u32>,
        name: Option<Identifier>,
        out: &mut Effects,
    ) {
        let is_same = targets.get(key).is_some_and(|target| target.handle() == Some(job));
        if let (true, Some(uid), Some(job_id)) = (is_same, uid, key) {
            owners::set(targets, key, uid, name, out);
            submissions::request_leases(&self.announced, targets, job_id, out);
            submissions::add_triggers(&mut self.announced, targets, job_id, out);
        }
    }

    pub(crate) fn trigger_refused(
        targets: &mut Targets,
        job_id: &Identifier,
        rule: &Rule,
        reason: &str,
        now: Now,
        out: &mut Effects,
    ) {
        submissions::refuse_trigger(targets, job_id, rule, reason, now, out);
    }

    /// Tracks an announced job that has no cgroups, until it is ended, and refuses what was requested for it.
    fn track_unseen(&mut self, targets: &mut Targets, job_id: &Identifier, now: Now, out: &mut Effects) {
        let Some(metadata) = self.announced.get(job_id).map(|announced| announced.metadata.clone()) else {
            return;
        };
        let descriptor = JobDescriptor {
            job_id: job_id.clone(),
            cluster: metadata.cluster.or(self.cluster.clone()),
            owner_uid: metadata.owner_uid,
            owner: metadata.owner,
            started_us: metadata.since_us,
        };
        let (job, target) = (self.handles.assign(descriptor), Target::Cgroups(JobCgroups::default()));
        let target = TrackedTarget::new(Some(job), target, Plan::default(), None);
        targets.insert(Some(job_id.clone()), target);
        submissions::record_facts(&mut self.announced, targets, job_id, now, out);
        submissions::refuse_deferred(&mut self.announced, targets, job_id, now, out);
    }

    /// Takes the final sample of a job and stops tracking it.
    fn end(&mut self, targets: &mut Targets, key: &TargetKey, now: Now, out: &mut Effects) {
        let Some(job_id) = key else { return };
        submissions::refuse_deferred(&mut self.announced, targets, job_id, now, out);
        let Some(target) = targets.remove(key) else { return };
        self.announced.cgroups_went(job_id, now);
        out.push(LifecycleEffect::End(job_id.clone(), Box::new(target), now.realtime_us));
    }
}

pub(crate) fn reopen(targets: &mut Targets, key: &TargetKey, out: &mut Effects) {
    if let Some(target) = targets.get_mut(key) {
        target.sources.cancel_reopen();
        target.findings.forget();
        out.push(LifecycleEffect::OpenSources(key.clone()));
    }
}
