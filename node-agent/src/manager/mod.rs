//! The manager: decides what is sampled. It finds jobs, opens and closes their sources, and tells the sampler.
//!
//! Everything slow happens here, so that the sampler never waits for a file to open or a perf event to close.

mod access;
pub(crate) mod capacity;
mod user_events;

mod final_sample;
mod govern;
mod tracked_target;

mod announced_jobs;
mod calibration;
mod jobs;
mod leases;
mod owner_lookup;
mod placement;
mod probe;
mod refused_requests;
mod sluids;
mod sources;
mod steps;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use polymeter_proto::ledger::{Cause, Event};
use polymeter_proto::series::{Identifier, JobDescriptor};
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::cgroups::Mounts;
use crate::clock;
use crate::config::Config;
use crate::counters::Counters;
use crate::delivery::tap::Tap;
use crate::kernel;
use crate::lanes::{Channels, Command, EventRecord, Notice, SourceId};
use crate::lifecycle::discovery::Discovery;
use crate::lifecycle::exit_events::ExitEvents;
use crate::lifecycle::exit_watcher::ExitWatcher;
use crate::log;
use crate::plan::Plan;
use crate::request::{AccessError, ManagerRequest};
use crate::sources::Target;
use crate::stats_cache::StatsCache;
use crate::targets::ids::Ids;
use crate::user_database::Rights;

use crate::admission::governor::Governor;
use access::Access;
use announced_jobs::AnnouncedJobs;
use calibration::Calibration;
use capacity::Capacity;
use final_sample::PendingRescans;
use govern::Used;
use placement::Placement;
use sluids::Sluids;
use tracked_target::{PerfOpened, TrackedTarget};

/// How long to wait for the sampler to take a command when too many wait: it takes them all at its next wake-up.
const COMMAND_RETRY: Duration = Duration::from_millis(1);

/// The node has no job id, and comes first.
type TargetKey = Option<Identifier>;

/// How often what is sampled is handed on while somebody watches.
const SHOW_EVERY: Duration = Duration::from_millis(200);

/// What the manager shares with the sampler and the sender.
pub(crate) struct Shared {
    pub(crate) channels: Arc<Channels>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stats_cache: Arc<StatsCache>,
    pub(crate) tap: Arc<Tap>,
}

/// The manager's state.
pub(crate) struct Manager {
    config: Config,
    mounts: Mounts,
    cpus: Vec<usize>,
    channels: Arc<Channels>,
    counters: Arc<Counters>,
    stats_cache: Arc<StatsCache>,
    tap: Arc<Tap>,
    ids: Ids,
    followed: BTreeMap<TargetKey, TrackedTarget>,
    owners: BTreeMap<SourceId, TargetKey>,
    free: BTreeSet<SourceId>,
    next_source: u32,
    discovery: Discovery,
    started: AnnouncedJobs,
    sluids: Sluids,
    capacity: Capacity,
    ends: Option<ExitEvents>,
    stirred: PendingRescans,
    idle_since: Instant,
    governor: Governor,
    used: Used,
    pulse: Calibration,
    placement: Placement,
    rights: watch::Sender<Rights>,
}

impl Manager {
    pub(crate) fn new(
        config: Config,
        mounts: Mounts,
        cpus: Vec<usize>,
        shared: Shared,
        rights: watch::Sender<Rights>,
    ) -> Self {
        let Shared { channels, counters, stats_cache, tap } = shared;
        let discovery = discovery_of(&config, &mounts);
        let placement = Placement::new(Arc::clone(&channels));
        Self {
            config,
            mounts,
            cpus,
            channels,
            counters,
            stats_cache,
            tap,
            ids: Ids::default(),
            followed: BTreeMap::new(),
            owners: BTreeMap::new(),
            free: BTreeSet::new(),
            next_source: 0,
            discovery,
            started: AnnouncedJobs::default(),
            sluids: Sluids::default(),
            capacity: Capacity::new(),
            ends: final_sample::watch(),
            stirred: PendingRescans::new(),
            idle_since: Instant::now(),
            governor: Governor::default(),
            used: Used::default(),
            pulse: Calibration::default(),
            placement,
            rights,
        }
    }

    /// Manages until asked to stop, and stops what works for it. `notices` is to be readable when the sampler has something to
    /// say.
    pub(crate) async fn run(mut self, requests: mpsc::Receiver<ManagerRequest>, notices: AsyncFd<OwnedFd>) {
        self.manage(requests, notices).await;
        if let Some(lookout) = self.lookout() {
            lookout.stop();
        }
        self.command(Command::Stop).await;
    }

    async fn manage(&mut self, mut requests: mpsc::Receiver<ManagerRequest>, notices: AsyncFd<OwnedFd>) {
        self.follow_node().await;
        self.capacity.begin();
        self.look_for_jobs().await;
        let channels = Arc::clone(&self.channels);
        let mut watched = changes_of(&self.discovery);
        let ends = self.ends.as_ref().and_then(|ends| waitable(ends.descriptor()).ok());
        let mut governing = tokio::time::interval(govern::EVERY);
        governing.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut feeling = tokio::time::interval(calibration::EVERY);
        feeling.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut showing = tokio::time::interval(SHOW_EVERY);
        showing.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut rescan =
            tokio::time::interval(Duration::from_micros(self.config.rescan_interval.as_micros()));
        rescan.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            // Before anything else that there is to do: a job's cgroups are gone some milliseconds after its end.
            self.heed_ends().await;
            tokio::select! {
                () = readable(ends.as_ref()) => {}
                request = requests.recv() => match request {
                    None | Some(ManagerRequest::Stop) => break,
                    Some(ManagerRequest::Reload(config)) => {
                        self.reload(*config).await;
                        watched = changes_of(&self.discovery);
                        rescan = tokio::time::interval(Duration::from_micros(self.config.rescan_interval.as_micros()));
                    }
                    Some(request) => self.answer(request).await,
                },
                ready = notices.readable() => {
                    if let Ok(mut guard) = ready {
                        channels.notices_event().clear();
                        guard.clear_ready();
                    }
                    self.heed_notices().await;
                }
                () = until(self.next_lease_end()) => self.end_leases().await,
                () = until(self.sluids.next_ns()) => self.look_for_numbers().await,
                () = readable(watched.as_ref()) => {
                    if self.discovery.changed() {
                        self.look_for_jobs().await;
                    }
                }
                _ = rescan.tick() => {
                    self.look_for_jobs().await;
                    self.reopen_due().await;
                    self.look_again().await;
                    self.follow_all_parts().await;
                    self.learn_owners().await;
                }
                _ = governing.tick() => {
                    self.govern().await;
                    if self.has_nothing_to_do() {
                        break;
                    }
                }
                _ = feeling.tick() => self.pulse.take(),
                () = until(self.placement.next_ns()) => self.placement.look(),
                _ = showing.tick(), if self.tap.is_watched() => self.command(Command::FlushForWatch).await,
            }
        }
    }

    /// What sees the ends of jobs at once, for a thread of its own; none where there is nothing to be seen with.
    pub(crate) fn lookout(&self) -> Option<Arc<ExitWatcher>> {
        self.ends.as_ref().map(ExitEvents::lookout).cloned()
    }

    async fn command(&self, command: Command) {
        let mut command = command;
        while let Err(refused) = self.channels.command(command) {
            command = refused;
            tokio::time::sleep(COMMAND_RETRY).await;
        }
    }

    async fn answer(&mut self, request: ManagerRequest) {
        match request {
            ManagerRequest::View(reply) => {
                reply.send(self.view()).ok();
            }
            ManagerRequest::Register(spec, reply) => {
                let answer = self.register(*spec).await;
                reply.send(answer).ok();
            }
            ManagerRequest::Unregister(job_id, reply) => {
                let key = Some(job_id);
                let known = self.followed.get(&key).is_some_and(|followed| followed.found_at.is_none());
                if known {
                    self.end(&key).await;
                }
                reply.send(known).ok();
            }
            ManagerRequest::Start(spec, reply) => {
                let answer = self.start(*spec).await;
                reply.send(answer).ok();
            }
            ManagerRequest::End(job_id, facts, reply) => {
                self.scheduler_ended(&job_id, *facts).await;
                reply.send(()).ok();
            }
            ManagerRequest::Set(set, reply) => {
                let answer = self.set(*set).await;
                reply.send(answer).ok();
            }
            ManagerRequest::Mark(mark, reply) => {
                let answer = self.mark(*mark).await;
                reply.send(answer).ok();
            }
            ManagerRequest::Push(push, reply) => {
                let answer = self.push(*push).await;
                reply.send(answer).ok();
            }
            ManagerRequest::Metrics(who, job_id, reply) => {
                let may_see = self.access(who, &job_id, Access::See).map(drop);
                // It is gone between the two only if it is unknown.
                let metrics = may_see.and_then(|()| self.metrics_of(&job_id).ok_or(AccessError::Unknown));
                reply.send(metrics).ok();
            }
            ManagerRequest::ViewOne(who, job_id, reply) => {
                let followed = self.access(who, &job_id, Access::See);
                reply.send(followed.map(|followed| self.view_of(&job_id, followed))).ok();
            }
            ManagerRequest::Watch(who, job_id, selectors, reply) => {
                let followed = self.access(who, &job_id, Access::See);
                let job = followed.map(|followed| followed.job.as_ref().map(|job| job.handle));
                reply.send(job.map(|job| self.tap.watch(job, selectors))).ok();
            }
            ManagerRequest::Reset(who, job_id, reply) => {
                let answer = self.reset(who, job_id).await;
                reply.send(answer).ok();
            }
            ManagerRequest::Flush(reply) => {
                self.command(Command::Flush).await;
                reply.send(()).ok();
            }
            ManagerRequest::Stop | ManagerRequest::Reload(_) => {}
        }
    }

    async fn follow_node(&mut self) {
        let plan = Plan { baseline: self.config.baseline.clone(), ..Plan::default() };
        let target = Target::Node(Arc::clone(&self.counters));
        self.follow(None, None, target, plan, None).await;
    }

    async fn follow(
        &mut self,
        key: TargetKey,
        descriptor: Option<JobDescriptor>,
        target: Target,
        plan: Plan,
        found_at: Option<PathBuf>,
    ) {
        let job = descriptor.map(|descriptor| self.ids.job(descriptor));
        let mut followed = TrackedTarget::new(job, target, plan, found_at);
        self.open(&key, &mut followed, true).await;
        self.tell_plan(&mut followed, None).await;
        self.followed.insert(key, followed);
        self.count();
    }

    /// Puts into the data which periods are in force from now on.
    async fn tell_plan(&self, followed: &mut TrackedTarget, cause: Option<Cause>) {
        for change in followed.plan_changes(cause) {
            let told = EventRecord { job: followed.job.clone(), event: Event::PlanChange(change) };
            self.command(Command::RecordEvent(Box::new(told))).await;
        }
    }

    fn count(&self) {
        self.counters.jobs.store(self.followed.keys().flatten().count() as u64, Relaxed);
        self.counters.sources.store(self.owners.len() as u64, Relaxed);
    }

    async fn heed_notices(&mut self) {
        let mut look = false;
        while let Some(notice) = self.channels.next_notice() {
            match notice {
                Notice::Removed(id, source) => {
                    drop(source);
                    self.owners.remove(&id);
                    self.free.insert(id);
                    self.count();
                }
                Notice::Replaced(source) => drop(source),
                Notice::Gone(id) => {
                    look = true;
                    self.end_lasting(id);
                    self.reopen_later(id);
                }
                Notice::Changed(id) => self.reopen_later(id),
                Notice::Hung(id) => self.report_hung(id),
                Notice::Recovered(id) => self.report_recovered(id),
                Notice::Failing(id, errno) => self.report_failing(id, errno),
                Notice::Failed(id, errno) => {
                    let target = self.owners.get(&id).map_or_else(String::new, describe);
                    log::warning(&format!("a source of {target} cannot be read any more: {errno}"));
                    if let Some(followed) = self.owners.get(&id).and_then(|key| self.followed.get_mut(key)) {
                        // Should it be a perf group, it is no longer worth keeping.
                        followed.perf = PerfOpened::default();
                    }
                    self.end_lasting(id);
                    self.reopen_later(id);
                }
            }
        }
        if look {
            self.look_for_jobs().await;
        }
    }

    /// Puts another configuration in force: the plan of everything that is followed, and where jobs are looked for.
    async fn reload(&mut self, config: Config) {
        if config.jobs != self.config.jobs {
            self.discovery = discovery_of(&config, &self.mounts);
        }
        let parts_changed = config.steps != self.config.steps || config.tasks != self.config.tasks;
        let baseline_changed = config.baseline != self.config.baseline;
        self.config = config;
        self.rights.send_replace(Rights::of(&self.config));
        if baseline_changed {
            let keys: Vec<TargetKey> = self.followed.keys().cloned().collect();
            for key in keys {
                let Some(mut followed) = self.followed.remove(&key) else { continue };
                followed.plan.baseline = self.config.baseline.clone();
                self.open(&key, &mut followed, false).await;
                self.tell_plan(&mut followed, Some(Cause::Reload)).await;
                self.followed.insert(key, followed);
            }
        }
        if parts_changed {
            for followed in self.followed.values_mut().filter(|followed| followed.job.is_some()) {
                (followed.plan.steps, followed.plan.tasks) =
                    (self.config.steps.clone(), self.config.tasks.clone());
                // What is open was opened for another plan.
                followed.parts.clear();
            }
            self.follow_all_parts().await;
        }
        self.look_for_jobs().await;
    }

    /// The plan of a job of which nobody has wished anything yet.
    fn standing_plan(&self) -> Plan {
        let Config { baseline, steps, tasks, .. } = self.config.clone();
        Plan { baseline, steps, tasks, ..Plan::default() }
    }
}

fn describe(key: &TargetKey) -> String {
    key.as_ref().map_or_else(|| "the node".to_owned(), |job_id| format!("job {job_id}"))
}

fn discovery_of(config: &Config, mounts: &Mounts) -> Discovery {
    let (discovery, error) = Discovery::new(mounts.clone(), config.jobs.clone());
    if let Some(error) = error {
        log::warning(&format!(
            "no inotify ({error}): jobs are found by the rescan every {} only",
            config.rescan_interval
        ));
    }
    discovery
}

/// A copy of a descriptor, for tokio to wait on.
///
/// # Errors
/// When no descriptor can be had.
pub(crate) fn waitable(descriptor: BorrowedFd<'_>) -> io::Result<AsyncFd<OwnedFd>> {
    kernel::async_descriptor(descriptor.try_clone_to_owned()?)
}

fn changes_of(discovery: &Discovery) -> Option<AsyncFd<OwnedFd>> {
    waitable(discovery.descriptor()?).ok()
}

/// Sleeps until a time of the monotonic clock, in nanoseconds; for ever where there is none.
async fn until(at_ns: Option<u64>) {
    match at_ns {
        None => std::future::pending().await,
        Some(at_ns) => {
            let left_ns = at_ns.saturating_sub(clock::monotonic_ns());
            tokio::time::sleep(Duration::from_nanos(left_ns)).await;
        }
    }
}

async fn readable(watched: Option<&AsyncFd<OwnedFd>>) {
    match watched {
        None => std::future::pending().await,
        Some(watched) => match watched.readable().await {
            Ok(mut guard) => guard.clear_ready(),
            Err(_) => std::future::pending().await,
        },
    }
}

/// A request with a place for its answer.
pub(crate) fn ask<T>(
    make: impl FnOnce(oneshot::Sender<T>) -> ManagerRequest,
) -> (ManagerRequest, oneshot::Receiver<T>) {
    let (sender, receiver) = oneshot::channel();
    (make(sender), receiver)
}
