//! The state machine of the life cycle of jobs.

mod discovered;

use std::collections::BTreeMap;
use std::path::PathBuf;

use polymeter_proto::ledger::Event;
use polymeter_proto::series::{Identifier, JobDescriptor, JobHandle};

use crate::admission::{Capacity, Descriptors};
use crate::cgroups::JobCgroups;
use crate::lanes::EventRecord;
use crate::lifecycle::announced_jobs::AnnouncedJobs;
use crate::lifecycle::event::{LifecycleEffect, LifecycleEvent, LifecycleTask, Registration};
use crate::lifecycle::rescans::{self, PendingRescans};
use crate::lifecycle::sluids::Sluids;
use crate::lifecycle::{owners, room, submissions};
use crate::plan::Plan;
use crate::request::{AnnouncementReply, RegisterError, StartSpec};
use crate::sources::Target;
use crate::targets::{JobHandles, Now, TargetKey, Targets, TrackedTarget};

/// The idle time after which an agent that was started for a job ends, in nanoseconds: the next job often starts at
/// once.
const IDLE_NS: u64 = 5_000_000_000;

type Effects = Vec<LifecycleEffect>;

/// The state machine.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    cluster: Option<Identifier>,
    /// The plan of a job without any request.
    standing: Plan,
    node: Target,
    handles: JobHandles,
    announced: AnnouncedJobs,
    sluids: Sluids,
    capacity: Capacity,
    pending_rescans: PendingRescans,
    idle_since_ns: u64,
}

impl Lifecycle {
    /// Creates a machine without jobs. `node` is the target of the node's own metrics.
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
        }
    }

    /// Handles an event, and appends the resulting effects to `out`, in order.
    pub(crate) fn handle(
        &mut self,
        targets: &mut Targets,
        event: LifecycleEvent,
        now: Now,
        out: &mut Vec<LifecycleEffect>,
    ) {
        match event {
            LifecycleEvent::Started => {
                let plan = Plan { baseline: self.standing.baseline.clone(), ..Plan::default() };
                targets.insert(None, TrackedTarget::new(None, self.node.clone(), plan, None));
                out.push(LifecycleTask::OpenSources(None).into());
            }
            LifecycleEvent::NodeSampled(descriptors) => self.capacity = Capacity::new(descriptors.open),
            LifecycleEvent::Walked { found, vanished, passed_over, descriptors } => {
                let found = room::fit(&mut self.capacity, targets, found, passed_over, descriptors, now, out);
                self.walked(targets, found, &vanished, now, out);
            }
            LifecycleEvent::JobDiscovered { found, number, owner_uid } => {
                self.identified(targets, found, number, owner_uid, now, out);
            }
            LifecycleEvent::JobRegistered(registration) => {
                self.register(targets, *registration, now, out);
            }
            LifecycleEvent::JobUnregistered(job_id, reply) => {
                let is_known = targets.job(&job_id).is_some_and(|target| target.found_at.is_none());
                if is_known {
                    self.end(targets, &Some(job_id), now, out);
                }
                out.push(LifecycleEffect::AnswerUnregistration(reply, is_known));
            }
            LifecycleEvent::JobAnnounced { spec, owner_name, reply } => {
                self.announce(targets, *spec, owner_name, reply, now, out);
            }
            LifecycleEvent::SchedulerEnded(job_id, facts, reply) => {
                submissions::scheduler_ended(&mut self.announced, targets, &job_id, *facts, out);
                out.push(LifecycleEffect::AnswerEnd(reply));
            }
            LifecycleEvent::NextRescan => self.pending_rescans.next(targets, out),
            LifecycleEvent::MissedRescans => rescans::missed(targets, out),
            LifecycleEvent::ExitsWatched(key, is_missed) => {
                rescans::exits_watched(targets, key, is_missed, out);
            }
            LifecycleEvent::RescanIncomplete(key) => {
                if let Some(target) = targets.get_mut(&key) {
                    target.rescans.note_missed();
                }
            }
            LifecycleEvent::OwnersWanted => owners::look_up(targets, now, out),
            LifecycleEvent::OwnerLookedUp { key, job, uid, name } => {
                if targets.get(&key).is_some_and(|target| target.handle() == Some(job)) {
                    self.owner_looked_up(targets, &key, uid, name, out);
                }
            }
            LifecycleEvent::SubmissionAnswered { job_id, level, result, reply } => {
                submissions::answered(&mut self.announced, targets, &job_id, level, &result, now, out);
                let outcome = submissions::merge(&mut self.announced, &job_id, result, reply.is_some());
                if let (Some(outcome), Some(reply)) = (outcome, reply) {
                    out.push(LifecycleEffect::AnswerAnnouncement(reply, Ok(Some(outcome))));
                }
            }
            LifecycleEvent::FilesChanged(key) => reopen(targets, key, out),
            LifecycleEvent::ConfigReloaded(cluster, standing) => {
                (self.cluster, self.standing) = (cluster, standing);
            }
        }
    }

    /// Queues the jobs in which something happened for a rescan; true if a process or a cgroup has ended. Returns those
    /// that must be read at once, before anything else.
    pub(crate) fn exits_seen(
        &mut self,
        targets: &mut Targets,
        exits: BTreeMap<Identifier, bool>,
        now: Now,
    ) -> Vec<JobHandle> {
        self.pending_rescans.exits_seen(targets, exits, now)
    }

    /// Returns whether jobs are to be rescanned because something happened in them.
    pub(crate) fn has_pending_rescans(&self) -> bool {
        !self.pending_rescans.is_empty()
    }

    /// Returns the cgroups of jobs whose numbers are unknown; true if the search for the number is to be given up.
    pub(crate) fn unnumbered_jobs(&self, now: Now) -> impl Iterator<Item = (&JobCgroups, bool)> {
        self.sluids.unnumbered(now)
    }

    /// Returns whether there is room for `found` jobs; if not, their owners' shares count.
    pub(crate) fn has_room(&self, targets: &Targets, found: usize, descriptors: Descriptors) -> bool {
        found <= self.capacity.room(targets, descriptors)
    }

    /// Returns whether the agent has been idle for `IDLE_NS`.
    pub(crate) fn is_idle(&mut self, targets: &Targets, now: Now) -> bool {
        self.announced.forget_old(now);
        if targets.job_count() > 0 || !self.announced.is_empty() {
            self.idle_since_ns = now.monotonic_ns;
        }
        now.monotonic_ns.saturating_sub(self.idle_since_ns) >= IDLE_NS
    }

    /// Starts tracking a job.
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
        out.push(LifecycleTask::OpenSources(key.clone()).into());
        out.push(LifecycleTask::WatchExits(key).into());
    }

    /// Tracks a job that is registered, if there is room.
    fn register(&mut self, targets: &mut Targets, registration: Registration, now: Now, out: &mut Effects) {
        let Registration { spec, target, descriptors, reply } = registration;
        let job_id = spec.job_id.clone();
        let admitted = if targets.job(&job_id).is_some() {
            Err(RegisterError::Known)
        } else if !Capacity::has_room_for(targets, spec.owner_uid, descriptors) {
            Err(RegisterError::TooMany)
        } else {
            target
        };
        let registered = admitted.map(|target| {
            let descriptor = JobDescriptor {
                job_id: spec.job_id,
                cluster: spec.cluster.or(self.cluster.clone()),
                owner_uid: spec.owner_uid,
                owner: spec.owner,
                started_us: now.realtime_us,
            };
            let plan = Plan { registration: spec.sampling, ..self.standing.clone() };
            self.track(targets, descriptor, target, plan, None, out);
            job_id
        });
        out.push(LifecycleEffect::AnswerRegistration(reply, registered));
    }

    /// Keeps the scheduler's announcement of a job. If its cgroups exist already, its owner's request is granted or
    /// refused.
    fn announce(
        &mut self,
        targets: &mut Targets,
        spec: StartSpec,
        owner_name: Option<Identifier>,
        reply: AnnouncementReply,
        now: Now,
        out: &mut Effects,
    ) {
        let (job_id, owner_uid) = (spec.job_id.clone(), spec.owner_uid);
        if let Err(error) = self.announced.announce(spec, now) {
            out.push(LifecycleEffect::AnswerAnnouncement(reply, Err(error)));
            return;
        }
        if targets.job(&job_id).is_none() {
            out.push(LifecycleEffect::AnswerAnnouncement(reply, Ok(None)));
            return;
        }
        if let Some(uid) = owner_uid {
            owners::set(targets, &Some(job_id.clone()), uid, owner_name, out);
        }
        self.announced.cgroups_came(&job_id);
        submissions::record_facts(&mut self.announced, targets, &job_id, now, out);
        submissions::request_leases(&mut self.announced, targets, &job_id, Some(reply), out);
    }

    /// Sets the owner of a job after the look-up, and requests the lease that waited for it.
    fn owner_looked_up(
        &mut self,
        targets: &mut Targets,
        key: &TargetKey,
        uid: Option<u32>,
        name: Option<Identifier>,
        out: &mut Effects,
    ) {
        if let (Some(uid), Some(job_id)) = (uid, key) {
            owners::set(targets, key, uid, name, out);
            submissions::request_leases(&mut self.announced, targets, job_id, None, out);
        }
    }

    /// Takes the final sample of a job and stops tracking it.
    fn end(&mut self, targets: &mut Targets, key: &TargetKey, now: Now, out: &mut Effects) {
        let Some(job_id) = key else { return };
        submissions::refuse_deferred(&mut self.announced, targets, job_id, now, out);
        let Some(target) = targets.remove(key) else { return };
        self.announced.cgroups_went(job_id, now);
        out.push(LifecycleEffect::UnwatchExits(job_id.clone()));
        let Some(job) = target.job.clone() else { return };
        out.push(LifecycleEffect::FinalSample(job.handle));
        out.push(LifecycleEffect::CloseSources(Box::new(target)));
        let event = Event::JobEnded { job: job.handle, at_us: now.realtime_us };
        out.push(LifecycleEffect::Record(EventRecord { job: Some(job), event }));
    }
}

/// Opens all files of a target anew.
fn reopen(targets: &mut Targets, key: TargetKey, out: &mut Effects) {
    if let Some(target) = targets.get_mut(&key) {
        target.sources.cancel_reopen();
        target.findings.forget();
        out.push(LifecycleTask::OpenSources(key).into());
    }
}
