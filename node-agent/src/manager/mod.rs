//! The manager: decides what is sampled. It finds jobs, opens and closes their sources, and tells the sampler.
//!
//! Everything slow happens here, so that the sampler never waits for a file to open or a perf event to close.

mod annotate;
mod cost;
mod endings;
mod followed;
mod govern;
mod governor;
mod jobs;
mod leases;
mod owners;
mod parts;
mod probe;
mod pulse;
mod started;
mod view;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use polymeter_proto::catalogue::Definition;
use polymeter_proto::ledger::{Cause, Event};
use polymeter_proto::series::{Identifier, JobDescriptor};
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::accounts::Rights;
use crate::clock;
use crate::config::Config;
use crate::counters::Counters;
use crate::delivery::tap::Tap;
use crate::jobs::discovery::Discovery;
use crate::jobs::ends::Ends;
use crate::jobs::hierarchy::Mounts;
use crate::jobs::ids::Ids;
use crate::jobs::open::{Opened, Opener, Subject};
use crate::kernel;
use crate::log;
use crate::plan::Plan;
use crate::request::Request;
use crate::sampler::{ActiveSource, Command, Group, Notice, Port, SourceId, SourceKey, Told};
use crate::source::perf::Unavailable;
use crate::source::{Outcome, Reading, Source, Text};
use crate::status::Board;

use endings::Stirred;
use followed::{Followed, OpenSource, PerfOpened};
use govern::Used;
use governor::Governor;
use pulse::Pulse;
use started::StartedJobs;

/// How long after a change the sources of a subject are opened anew at the earliest, so that a device that comes and
/// goes all the time costs little.
const REOPEN_AFTER: Duration = Duration::from_secs(2);

/// How long to wait for the sampler to take a command when too many wait: it takes them all at its next wake-up.
const COMMAND_RETRY: Duration = Duration::from_millis(1);

/// The node has no job id, and comes first.
type Key = Option<Identifier>;

/// How often what is sampled is handed on while somebody watches.
const SHOW_EVERY: Duration = Duration::from_millis(200);

/// What the manager shares with the sampler and the sender.
pub(crate) struct Shared {
    pub(crate) port: Arc<Port>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) board: Arc<Board>,
    pub(crate) tap: Arc<Tap>,
}

/// The manager's state.
pub(crate) struct Manager {
    config: Config,
    mounts: Mounts,
    cpus: Vec<usize>,
    port: Arc<Port>,
    counters: Arc<Counters>,
    board: Arc<Board>,
    tap: Arc<Tap>,
    ids: Ids,
    followed: BTreeMap<Key, Followed>,
    owners: BTreeMap<SourceId, Key>,
    free: Vec<SourceId>,
    next_source: u32,
    discovery: Discovery,
    started: StartedJobs,
    ends: Option<Ends>,
    stirred: Stirred,
    idle_since: Instant,
    governor: Governor,
    used: Used,
    pulse: Pulse,
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
        let Shared { port, counters, board, tap } = shared;
        let discovery = discovery_of(&config, &mounts);
        Self {
            config,
            mounts,
            cpus,
            port,
            counters,
            board,
            tap,
            ids: Ids::default(),
            followed: BTreeMap::new(),
            owners: BTreeMap::new(),
            free: Vec::new(),
            next_source: 0,
            discovery,
            started: StartedJobs::default(),
            ends: endings::watch(),
            stirred: Stirred::new(),
            idle_since: Instant::now(),
            governor: Governor::default(),
            used: Used::default(),
            pulse: Pulse::default(),
            rights,
        }
    }

    /// Manages until asked to stop.
    pub(crate) async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        self.follow_node().await;
        self.look_for_jobs().await;
        let port = Arc::clone(&self.port);
        let Some(notices) = waitable(port.notices_doorbell().as_fd()) else {
            log::error("cannot wait for the sampler's notices; no job can be followed");
            return;
        };
        let mut watched = changes_of(&self.discovery);
        let ends = self.ends.as_ref().and_then(|ends| waitable(ends.descriptor()));
        let mut governing = tokio::time::interval(govern::EVERY);
        governing.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut feeling = tokio::time::interval(pulse::EVERY);
        feeling.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut showing = tokio::time::interval(SHOW_EVERY);
        showing.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut rescan = tokio::time::interval(Duration::from_micros(self.config.rescan.as_micros()));
        rescan.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            // Before anything else that there is to do: a job's cgroups are gone some milliseconds after its end.
            self.heed_ends().await;
            tokio::select! {
                () = readable(ends.as_ref()) => {}
                request = requests.recv() => match request {
                    None | Some(Request::Stop) => break,
                    Some(Request::Reload(config)) => {
                        self.reload(*config).await;
                        watched = changes_of(&self.discovery);
                        rescan = tokio::time::interval(Duration::from_micros(self.config.rescan.as_micros()));
                    }
                    Some(request) => self.answer(request).await,
                },
                ready = notices.readable() => {
                    if let Ok(mut guard) = ready {
                        port.notices_doorbell().silence();
                        guard.clear_ready();
                    }
                    self.heed_notices().await;
                }
                () = until(self.next_lease_end()) => self.end_leases().await,
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
                _ = showing.tick(), if self.tap.is_watched() => self.command(Command::Show).await,
            }
        }
        self.command(Command::Stop).await;
    }

    async fn command(&self, command: Command) {
        let mut command = command;
        while let Err(refused) = self.port.command(command) {
            command = refused;
            tokio::time::sleep(COMMAND_RETRY).await;
        }
    }

    async fn answer(&mut self, request: Request) {
        match request {
            Request::View(reply) => {
                reply.send(self.view()).ok();
            }
            Request::Register(spec, reply) => {
                let answer = self.register(*spec).await;
                reply.send(answer).ok();
            }
            Request::Unregister(job_id, reply) => {
                let key = Some(job_id);
                let known = self.followed.get(&key).is_some_and(|followed| followed.found_at.is_none());
                if known {
                    self.end(&key).await;
                }
                reply.send(known).ok();
            }
            Request::Start(spec, reply) => {
                let answer = self.start(*spec).await;
                reply.send(answer).ok();
            }
            Request::End(job_id, facts, reply) => {
                self.scheduler_ended(&job_id, *facts).await;
                reply.send(()).ok();
            }
            Request::Set(set, reply) => {
                let answer = self.set(*set).await;
                reply.send(answer).ok();
            }
            Request::Mark(mark, reply) => {
                let answer = self.mark(*mark).await;
                reply.send(answer).ok();
            }
            Request::Push(push, reply) => {
                let answer = self.push(*push).await;
                reply.send(answer).ok();
            }
            Request::Metrics(job_id, reply) => {
                reply.send(self.metrics_of(&job_id)).ok();
            }
            Request::Look(job_id, reply) => {
                reply.send(self.followed.get(&job_id).map(|followed| self.view_of(&job_id, followed))).ok();
            }
            Request::Watch(job_id, selectors, reply) => {
                let job =
                    self.followed.get(&job_id).map(|followed| followed.job.as_ref().map(|job| job.handle));
                reply.send(job.map(|job| self.tap.watch(job, selectors))).ok();
            }
            Request::Reset(who, job_id, reply) => {
                let answer = self.reset(who, job_id).await;
                reply.send(answer).ok();
            }
            Request::Flush(reply) => {
                self.command(Command::Flush).await;
                reply.send(()).ok();
            }
            Request::Stop | Request::Reload(_) => {}
        }
    }

    async fn follow_node(&mut self) {
        let plan = Plan { baseline: self.config.baseline.clone(), ..Plan::default() };
        let subject = Subject::Node(Arc::clone(&self.counters));
        self.follow(None, None, subject, plan, None).await;
    }

    async fn follow(
        &mut self,
        key: Key,
        descriptor: Option<JobDescriptor>,
        subject: Subject,
        plan: Plan,
        found_at: Option<PathBuf>,
    ) {
        let job = descriptor.map(|descriptor| self.ids.job(descriptor));
        let mut followed = Followed::new(job, subject, plan, found_at);
        self.open(&key, &mut followed, true).await;
        self.tell_plan(&mut followed, None).await;
        self.followed.insert(key, followed);
        self.count();
    }

    /// Brings the sources of a subject in line with its plan. Files are opened anew where others are wanted, or where
    /// that is asked for because something came or went; else they only get other periods. perf events that are open
    /// go on counting in any case. A job's new sources are read at once: its first reading waits for no deadline, also
    /// where its cgroups come one after the other.
    async fn open(&mut self, key: &Key, followed: &mut Followed, anew: bool) {
        let (perf, files) = followed.definitions();
        let target = followed.perf_target(&self.mounts);
        if target != followed.perf.target {
            followed.perf = PerfOpened { target, ..PerfOpened::default() };
            followed
                .sources
                .iter_mut()
                .filter(|(name, _)| is_perf(name))
                .for_each(|(_, source)| source.slots.clear());
        }
        let known = &followed.perf.definitions;
        let new_perf: Vec<_> = perf.into_iter().filter(|definition| !known.contains(definition)).collect();
        let anew = anew || files != followed.files;
        let wanted: Vec<_> = files.iter().filter(|_| anew).chain(new_perf.iter()).cloned().collect();
        let opener = Opener {
            mounts: &self.mounts,
            cpus: &self.cpus,
            perf_descriptors: self.config.perf_descriptors,
            first_perf_group: followed.perf.groups,
            part: None,
        };
        let (opened, unavailable) = opener.open(&followed.subject, &wanted);
        self.read_ended().await;
        followed.perf.groups += opened.iter().filter(|opened| is_perf(&opened.name)).count();
        followed.perf.definitions.extend(new_perf);
        followed.files = files;
        followed.unavailable.retain(|(metric, _)| is_perf(metric) || !anew);
        followed.unavailable.extend(
            unavailable.into_iter().map(|Unavailable { definition, reason }| (definition.name(), reason)),
        );
        let (kept, before): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut followed.sources)
            .into_iter()
            .partition(|(name, source)| is_lasting(name) || source.part.is_some() || !anew);
        self.regroup(followed, kept).await;
        self.replace(key, followed, opened, before, anew).await;
    }

    /// Gives sources that stay open the periods of the plan, and closes perf groups of which nothing is wanted.
    async fn regroup(&mut self, followed: &mut Followed, kept: BTreeMap<String, OpenSource>) {
        for (name, source) in kept {
            let Ok(called) = Identifier::try_from(name.as_str()) else { continue };
            let groups = self.groups(followed, &called, &source);
            if groups.is_empty() && is_perf(&name) {
                let gone =
                    |definition: &Definition| source.slots.iter().any(|slot| slot.definition == *definition);
                followed.perf.definitions.retain(|definition| !gone(definition));
                self.command(Command::Remove(source.id)).await;
                continue;
            }
            self.command(Command::Regroup(source.id, groups)).await;
            followed.sources.insert(name, source);
        }
    }

    /// Puts what was opened in the place of what has the same name, and closes what has no successor.
    async fn replace(
        &mut self,
        key: &Key,
        followed: &mut Followed,
        opened: Vec<Opened>,
        mut before: BTreeMap<String, OpenSource>,
        anew: bool,
    ) {
        let (dormant, awake): (Vec<_>, Vec<_>) =
            opened.into_iter().partition(|opened| opened.source.slots().is_empty());
        if anew {
            followed.dormant = dormant.into_iter().map(|opened| opened.source).collect();
        }
        let mut new = Vec::new();
        for Opened { name, source, part } in awake {
            let Ok(called) = Identifier::try_from(name.as_str()) else { continue };
            let id = before.remove(&name).map_or_else(
                || {
                    let id = self.new_source_id();
                    new.push(id);
                    id
                },
                |source| source.id,
            );
            let open = OpenSource { id, slots: source.slots().to_vec(), part };
            let groups = self.groups(followed, &called, &open);
            let source_key = SourceKey { job: followed.job.clone(), name: called };
            let active = ActiveSource::new(Arc::new(source_key), source, groups);
            self.owners.insert(id, key.clone());
            self.command(Command::Add(id, Box::new(active))).await;
            followed.sources.insert(name, open);
        }
        for source in before.into_values() {
            self.command(Command::Remove(source.id)).await;
        }
        self.read_ended().await;
        if followed.job.is_some() && !new.is_empty() {
            self.command(Command::ReadNow(new)).await;
        }
    }

    fn groups(&mut self, followed: &mut Followed, called: &Identifier, source: &OpenSource) -> Vec<Group> {
        let period = |name: &str| source.period(&followed.plan, name);
        self.ids.groups(followed.job.as_ref(), called, &mut followed.series, &source.slots, period)
    }

    fn new_source_id(&mut self) -> SourceId {
        self.free.pop().unwrap_or_else(|| {
            self.next_source += 1;
            SourceId(self.next_source - 1)
        })
    }

    /// Puts into the data which periods are in force from now on.
    async fn tell_plan(&self, followed: &mut Followed, cause: Option<Cause>) {
        for change in followed.plan_changes(cause) {
            let told = Told { job: followed.job.clone(), event: Event::PlanChange(change) };
            self.command(Command::Tell(Box::new(told))).await;
        }
    }

    fn count(&self) {
        self.counters.jobs.store(self.followed.keys().flatten().count() as u64, Relaxed);
        self.counters.sources.store(self.owners.len() as u64, Relaxed);
    }

    async fn heed_notices(&mut self) {
        let mut look = false;
        while let Some(notice) = self.port.next_notice() {
            match notice {
                Notice::Removed(id, source) => {
                    drop(source);
                    self.owners.remove(&id);
                    self.free.push(id);
                    self.count();
                }
                Notice::Replaced(source) => drop(source),
                Notice::Gone(id) => {
                    look = true;
                    self.reopen_later(id);
                }
                Notice::Changed(id) => self.reopen_later(id),
                Notice::Failed(id, errno) => {
                    let subject = self.owners.get(&id).map_or_else(String::new, describe);
                    log::warning(&format!("a source of {subject} cannot be read any more: {errno}"));
                    if let Some(followed) = self.owners.get(&id).and_then(|key| self.followed.get_mut(key)) {
                        // Should it be a perf group, it is no longer worth keeping.
                        followed.perf = PerfOpened::default();
                    }
                    self.reopen_later(id);
                }
            }
        }
        if look {
            self.look_for_jobs().await;
        }
    }

    fn reopen_later(&mut self, id: SourceId) {
        if let Some(followed) = self.owners.get(&id).and_then(|key| self.followed.get_mut(key)) {
            followed.reopen_at.get_or_insert(Instant::now() + REOPEN_AFTER);
        }
    }

    async fn reopen_due(&mut self) {
        let now = Instant::now();
        let (mut text, mut nothing) = (Text::default(), Reading::default());
        for followed in self.followed.values_mut() {
            let woken = |source: &mut Source| source.read(&mut text, &mut nothing) == Outcome::Changed;
            if followed.dormant.iter_mut().any(woken) {
                followed.reopen_at.get_or_insert(now);
            }
        }
        let due = |followed: &Followed| followed.reopen_at.is_some_and(|at| at <= now);
        let keys: Vec<Key> =
            self.followed.iter().filter(|(_, followed)| due(followed)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.reopen(&key).await;
        }
    }

    async fn reopen(&mut self, key: &Key) {
        let Some(mut followed) = self.followed.remove(key) else { return };
        followed.reopen_at = None;
        followed.probe.forget();
        self.open(key, &mut followed, true).await;
        self.tell_plan(&mut followed, None).await;
        self.followed.insert(key.clone(), followed);
        self.count();
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
            let keys: Vec<Key> = self.followed.keys().cloned().collect();
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

/// Whether a source stays when the files are opened anew.
fn is_lasting(source: &str) -> bool {
    is_perf(source) || source == annotate::PUSHED
}

/// Whether a source or a metric is one of perf's.
fn is_perf(name: &str) -> bool {
    name.starts_with("perf")
}

fn describe(key: &Key) -> String {
    key.as_ref().map_or_else(|| "the node".to_owned(), |job_id| format!("job {job_id}"))
}

fn discovery_of(config: &Config, mounts: &Mounts) -> Discovery {
    let (discovery, error) = Discovery::new(mounts.clone(), config.jobs.clone());
    if let Some(error) = error {
        log::warning(&format!(
            "no inotify ({error}): jobs are found by the rescan every {} only",
            config.rescan
        ));
    }
    discovery
}

/// A copy of a descriptor, for tokio to wait on.
fn waitable(descriptor: BorrowedFd<'_>) -> Option<AsyncFd<OwnedFd>> {
    kernel::async_descriptor(descriptor.try_clone_to_owned().ok()?).ok()
}

fn changes_of(discovery: &Discovery) -> Option<AsyncFd<OwnedFd>> {
    waitable(discovery.descriptor()?)
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
pub(crate) fn ask<T>(make: impl FnOnce(oneshot::Sender<T>) -> Request) -> (Request, oneshot::Receiver<T>) {
    let (sender, receiver) = oneshot::channel();
    (make(sender), receiver)
}
