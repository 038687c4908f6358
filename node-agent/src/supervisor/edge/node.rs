//! The edge of an agent: the files of its node, the sampler and the name service.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use polymeter_proto::batch::Job;
use polymeter_proto::catalogue::DEVICE_KIND;
use polymeter_proto::catalogue::Definition;
use polymeter_proto::series::{Identifier, Labels};
use polymeter_proto::trigger::Rule;
use polymeter_service::clock;
use polymeter_service::log_throttle::LogThrottle;
use tokio::sync::oneshot;
use tracing::warn;

use super::Edge;
use super::kept_triggers::KeptTriggers;
use crate::admission::{Descriptors, ReadTimes};
use crate::cgroups::{Mounts, SeenSteps, Step, StepAdmission, steps};
use crate::config::AgentConfig;
use crate::counters::Counters;
use crate::delivery::ring::RingRequests;
use crate::delivery::tap::Tap;
use crate::kernel;
use crate::lanes::{Channels, Command};
use crate::lifecycle::discovery::Discovery;
use crate::lifecycle::exit_events::ExitEvents;
use crate::lifecycle::{FoundJob, OwnerHint};
use crate::principal::Principal;
use crate::request::Availability;
use crate::sources::outside::OutsideDevices;
use crate::sources::{
    ExitedTasks, Finder, InterfaceNames, Opened, Outcome, ReadBuffer, Reading, ScanResult, SourceFactory,
    SummedFileSource, Target, Unavailable, UnknownLines, remove_resctrl_groups,
};
use crate::stats_cache::StatsCache;
use crate::supervisor::owner_lookups::{JobPurpose, LookedUp, NAME_SERVICE, OwnerLookups, User};
use crate::supervisor::probe::try_out;
use crate::targets::{
    Now, SessionIds, SourceChanges, SourceOwner, TargetKey, Targets, TrackedTarget, WantedOfStep, describe,
};
use crate::triggers::{AddError, Triggers};

/// Time after which a command is tried again if too many wait: the sampler takes them all at its next
/// wake-up.
const COMMAND_RETRY: Duration = Duration::from_millis(1);

const FIRST_READING: Duration = Duration::from_secs(2);

/// Time between two messages about the lines of one source that have no series, and the most sources with
/// such a message in it.
const LOG_INTERVAL: Duration = Duration::from_secs(3600);
const LOGGED_SOURCES: u32 = 8;

/// What the supervisor shares with the sampler and the sender.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) channels: Arc<Channels>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stats_cache: Arc<StatsCache>,
    pub(crate) tap: Arc<Tap>,
    pub(crate) ring_requests: Arc<RingRequests>,
    pub(crate) triggers: Arc<Triggers>,
}

#[derive(Debug)]
pub(in crate::supervisor) struct NodeEdge {
    pub(in crate::supervisor) shared: Shared,
    pub(in crate::supervisor) discovery: Discovery,
    pub(in crate::supervisor) exit_events: Option<ExitEvents>,
    pub(in crate::supervisor) owner_lookups: OwnerLookups,
    pub(in crate::supervisor) ids: SessionIds,
    pub(super) mounts: Mounts,
    cpus: Vec<usize>,
    perf_fd_limit: usize,
    busiest_processes: usize,
    ebpf: bool,
    exited: Arc<ExitedTasks>,
    interface_names: InterfaceNames,
    pub(in crate::supervisor) outside: OutsideDevices,
    descriptor_limit: usize,
    unknown_lines_log: LogThrottle,
    kept_triggers: KeptTriggers,
}

pub(in crate::supervisor) fn now() -> Now {
    Now { monotonic_ns: clock::monotonic_ns(), realtime_us: clock::steady_us() }
}

impl NodeEdge {
    pub(in crate::supervisor) fn new(
        config: &AgentConfig,
        mounts: Mounts,
        cpus: Vec<usize>,
        shared: Shared,
    ) -> Self {
        // Before any job is sampled, so that no RMID is missing.
        remove_resctrl_groups(&mounts);
        let mut outside = OutsideDevices::default();
        outside.update(&config.devices, &config.root);
        Self {
            shared,
            discovery: discovery(config, &mounts),
            exit_events: exit_events(),
            owner_lookups: OwnerLookups::new(NAME_SERVICE),
            ids: SessionIds::with_histograms(&config.histograms),
            mounts,
            cpus,
            perf_fd_limit: config.perf_fd_limit,
            busiest_processes: config.busiest_processes,
            ebpf: config.ebpf,
            exited: Arc::default(),
            interface_names: InterfaceNames::default(),
            outside,
            descriptor_limit: kernel::descriptor_limit(),
            unknown_lines_log: LogThrottle::new(LOG_INTERVAL, LOGGED_SOURCES),
            kept_triggers: KeptTriggers::open(config, now()),
        }
    }

    pub(in crate::supervisor) fn reload(&mut self, config: &AgentConfig, has_other_jobs: bool) {
        self.perf_fd_limit = config.perf_fd_limit;
        self.busiest_processes = config.busiest_processes;
        self.ebpf = config.ebpf;
        self.outside.update(&config.devices, &config.root);
        if has_other_jobs {
            self.discovery = discovery(config, &self.mounts);
        }
    }

    pub(in crate::supervisor) fn descriptors(&self) -> Descriptors {
        Descriptors { limit: self.descriptor_limit, open: kernel::open_descriptors() }
    }

    /// Descriptors that further perf events of a target may take.
    fn perf_room(&self, target: &TrackedTarget) -> usize {
        let of_job = self.perf_fd_limit.saturating_sub(target.sources.perf_descriptors());
        of_job.min(self.descriptors().spare())
    }

    fn factory<'a>(&'a self, target: &'a TrackedTarget) -> SourceFactory<'a> {
        SourceFactory {
            mounts: &self.mounts,
            cpus: &self.cpus,
            perf_descriptors: self.perf_room(target),
            first_perf_group: target.sources.next_perf_group(),
            is_released: target.release().is_some(),
            job: target.job.as_ref().map(|job| &job.descriptor.job_id),
            step: None,
            cpu_account: target.job.as_ref().map(|_| target.sources.cpu_account()),
            gpu_devices: target.gpu_devices.as_deref(),
            busiest: target.job.as_ref().map(|_| target.sources.busiest()),
            busiest_processes: self.busiest_processes,
            ebpf: self.ebpf,
            gpu_clients: target.job.as_ref().map(|_| target.sources.gpu_clients()),
            served_jobs: target.job.is_none().then(|| target.sources.served_jobs()),
            exited: Some(&self.exited),
            interface_names: Some(&self.interface_names),
            outside: Some(&self.outside).filter(|_| target.job.is_none()),
        }
    }

    pub(in crate::supervisor) fn count_unknown_lines(&mut self, targets: &Targets) {
        let now = Duration::from_nanos(clock::monotonic_ns());
        let mut all = 0;
        for (key, target) in targets.iter() {
            for (name, UnknownLines { lines, first }) in target.sources.unknown_lines() {
                all += lines as u64;
                if self.unknown_lines_log.allows(name.as_str(), now) {
                    let advice = if name.as_str().starts_with(DEVICE_KIND) {
                        "they are no values, repeat a series, have a time of their own that is far away, or are too many"
                    } else {
                        "please report them with the version of the kernel, or of the file system"
                    };
                    warn!(
                        "{lines} lines of {name} of {} are not known and have no series, as the line `{first}`; {advice}",
                        describe(key)
                    );
                }
            }
        }
        self.shared.counters.unknown_lines.store(all, Relaxed);
    }

    /// Opens the sources of devices that have other values, or were added or removed. Returns the names of
    /// the sources; none if there are no such devices.
    pub(in crate::supervisor) fn open_devices(
        &mut self,
        node: &mut TrackedTarget,
    ) -> Option<(BTreeSet<String>, SourceChanges)> {
        let changed = self.outside.take_changed();
        if changed.is_empty() {
            return None;
        }
        let opened = changed.iter().map(|name| (OutsideDevices::source_name(name), self.outside.open(name)));
        let opened: BTreeMap<_, _> = opened.collect();
        let names = opened.keys().cloned().collect();
        let owner = SourceOwner { key: &None, job: None, plan: &node.plan };
        Some((names, node.sources.commit_devices(&mut self.ids, owner, opened)))
    }

    /// Targets whose files must be opened anew now, because some were added or removed.
    pub(in crate::supervisor) fn changed_targets(targets: &mut Targets) -> Vec<TargetKey> {
        let now_ns = clock::monotonic_ns();
        let mut changed = Vec::new();
        for (key, target) in targets.iter_mut() {
            look_for_files(target, now_ns);
            if target.sources.take_reopen_due(now_ns) {
                changed.push(key.clone());
            }
        }
        changed
    }

    /// Calls `confirmed` when the sampler has taken the first readings of the new sources: the requester may
    /// be holding the job's first process until then.
    pub(in crate::supervisor) async fn after_first_reading(
        &mut self,
        confirmed: impl FnOnce() + Send + 'static,
    ) {
        let (reply, taken) = oneshot::channel();
        self.command(Command::Confirm(reply)).await;
        tokio::spawn(async move {
            // A sampler that has ended does not answer, and takes no readings either.
            tokio::time::timeout(FIRST_READING, taken).await.ok();
            confirmed();
        });
    }
}

impl Edge for NodeEdge {
    fn now(&self) -> Now {
        now()
    }

    fn ids(&mut self) -> &mut SessionIds {
        &mut self.ids
    }

    fn read_times(&self) -> ReadTimes {
        self.shared.stats_cache.read_times()
    }

    fn open_sources(&mut self, key: &TargetKey, target: &mut TrackedTarget, is_anew: bool) -> SourceChanges {
        if is_anew && self.factory(target).has_files_with_alternative(&target.target) {
            target.sources.replace_by_files();
        }
        let (definitions, perf_cgroup) = (target.definitions(), target.perf_cgroup(&self.mounts));
        let is_released = target.release().is_some();
        let wanted = target.sources.wanted(definitions, perf_cgroup, is_released, is_anew);
        let factory = self.factory(target);
        let (mut opened, unavailable) = factory.open(&target.target, &wanted.definitions);
        let lacking = self.outside.lacking(&wanted.of_devices).cloned();
        let lacking: Vec<Unavailable> = lacking
            .map(|definition| Unavailable::for_good(definition, OutsideDevices::LACKING.to_owned()))
            .collect();
        if is_anew {
            opened.extend(factory.watches(&target.target, target.sources.stand_ins()));
        }
        target.sources.set_lacking(&lacking);
        let owner = SourceOwner { key, job: target.job.as_ref(), plan: &target.plan };
        target.sources.commit(&mut self.ids, owner, wanted, opened, unavailable)
    }

    fn has_other_files(&mut self, target: &mut TrackedTarget, wanted: &[Definition]) -> bool {
        let is_missing = wanted.iter().any(|definition| target.sources.may_find(&definition.name()));
        look_for_files(target, clock::monotonic_ns()) || is_missing
    }

    fn counters_owner(&self) -> Option<u32> {
        let lock = std::fs::metadata(self.mounts.likwid_lock()).ok()?;
        Some(lock.uid()).filter(|uid| *uid != rustix::process::geteuid().as_raw())
    }

    fn probe(&self, target: &TrackedTarget, definitions: &[Definition]) -> BTreeMap<String, Availability> {
        let (opened, unavailable) = self.factory(target).open(&target.target, definitions);
        try_out(definitions, opened, unavailable)
    }

    fn steps_of(&self, target: &TrackedTarget) -> BTreeMap<String, Step> {
        target.cgroups().map(steps::find).unwrap_or_default()
    }

    fn admits_step(&self, key: &TargetKey, target: &mut TrackedTarget, name: &str) -> bool {
        // Without descriptors it waits for the next rescan.
        if self.descriptors().spare() == 0 {
            return false;
        }
        let admission = target.sources.admit_step(name);
        if admission == StepAdmission::Last {
            let steps = SeenSteps::LIMIT;
            warn!(
                "cannot sample further steps and tasks of {}: the limit of {steps} is reached",
                describe(key)
            );
        }
        admission != StepAdmission::Refused
    }

    fn open_step(
        &self,
        target: &TrackedTarget,
        step: &Arc<Step>,
        wanted: &WantedOfStep,
        perf_descriptors: usize,
    ) -> (Vec<Opened>, Vec<Unavailable>) {
        if Labels::escaped(step.labels.clone()).is_err() {
            return (Vec::new(), Vec::new());
        }
        let factory = SourceFactory {
            perf_descriptors: self.perf_room(target).saturating_sub(perf_descriptors),
            first_perf_group: wanted.first_perf_group,
            step: Some(step),
            cpu_account: None,
            busiest: None,
            gpu_clients: None,
            ..self.factory(target)
        };
        let cgroups = Target::Cgroups(step.cgroups.clone());
        factory.open(&cgroups, &wanted.definitions)
    }

    fn scan_cgroups(&self, key: &TargetKey, target: &mut TrackedTarget) -> bool {
        if self.descriptors().spare() == 0 {
            return false;
        }
        let mut is_incomplete = false;
        let mut perf_room = self.perf_room(target);
        for (name, finder) in target.sources.finders() {
            let before = finder.perf_descriptors();
            match (finder.scan(perf_room), &*finder) {
                (ScanResult::All, _) => {}
                (ScanResult::Some, _) => is_incomplete = true,
                (ScanResult::TooMany, Finder::Cgroups(_)) => {
                    let most = SummedFileSource::CGROUPS;
                    warn!(
                        "cannot sum {name} over all cgroups of {}: the limit of {most} is reached",
                        describe(key)
                    );
                }
                (ScanResult::TooMany, Finder::Processes(_)) => warn!(
                    "cannot count the perf events of all processes of {}: the limit of descriptors is reached; raise \
                     perf_fd_limit, or sample fewer events",
                    describe(key)
                ),
            }
            perf_room = perf_room.saturating_sub(finder.perf_descriptors().saturating_sub(before));
        }
        is_incomplete
    }

    fn watch_exits(&mut self, key: &TargetKey, target: &TrackedTarget) -> bool {
        match (key, &mut self.exit_events, target.cgroups(), target.handle()) {
            (Some(job_id), Some(exit_events), Some(cgroups), Some(handle)) => {
                exit_events.watch(job_id, handle, cgroups)
            }
            _ => false,
        }
    }

    fn unwatch_exits(&mut self, job_id: &Identifier) {
        if let Some(exit_events) = &mut self.exit_events {
            exit_events.forget(job_id);
        }
    }

    fn exits(&mut self) -> BTreeMap<Identifier, bool> {
        self.exit_events.as_mut().map(ExitEvents::drain).unwrap_or_default()
    }

    fn identify(
        &mut self,
        found: FoundJob,
        needs_number: bool,
        owner: Option<Identifier>,
    ) -> Option<LookedUp<JobPurpose>> {
        let number = needs_number.then(|| self.job_number(&found.cgroups)).flatten();
        let user = User { name: owner, ..User::default() };
        self.owner_lookups.start(user, JobPurpose::Discover(found, number))
    }

    fn look_up_owner(
        &mut self,
        key: TargetKey,
        target: &TrackedTarget,
        hint: OwnerHint,
    ) -> Option<LookedUp<JobPurpose>> {
        let (user, job) = (self.owner(target, hint), target.handle()?);
        self.owner_lookups.start(user, JobPurpose::Complete(key, job))
    }

    fn add_trigger(&self, job: &Arc<Job>, rule: Rule, by: Principal) -> Result<(), AddError> {
        self.shared.triggers.change(|evaluator| evaluator.add(job, rule, by))
    }

    fn keep_triggers(&mut self, targets: &Targets) {
        self.kept_triggers.update(&self.shared.triggers, targets, now());
    }

    async fn command(&mut self, command: Command) {
        let mut command = command;
        while let Err(refused) = self.shared.channels.command(command) {
            command = refused;
            tokio::time::sleep(COMMAND_RETRY).await;
        }
    }

    fn count(&self, targets: &Targets) {
        let counters = &self.shared.counters;
        counters.jobs.store(targets.job_count() as u64, Relaxed);
        counters.sources.store(self.ids.sources.len() as u64, Relaxed);
    }

    fn count_left_out(&mut self, jobs: usize, descriptors: Descriptors) {
        let counters = &self.shared.counters;
        counters.jobs_left_out.store(jobs as u64, Relaxed);
        counters.descriptors.store(descriptors.open as u64, Relaxed);
        counters.descriptor_limit.store(descriptors.limit as u64, Relaxed);
    }
}

/// Reads the sources of a target that have no slots. Returns true if there is something new, and schedules
/// the reopening.
fn look_for_files(target: &mut TrackedTarget, now_ns: u64) -> bool {
    let (mut text, mut nothing) = (ReadBuffer::default(), Reading::default());
    let mut changed_steps = Vec::new();
    for opened in target.sources.dormant() {
        if opened.source.read(&mut text, &mut nothing) == Outcome::Changed {
            changed_steps.push(opened.step.clone());
        }
    }
    for step in &changed_steps {
        target.sources.reopen_soon(step.as_ref().map(|step| step.name.as_str()), now_ns);
    }
    !changed_steps.is_empty()
}

fn exit_events() -> Option<ExitEvents> {
    let error = match ExitEvents::new() {
        Ok(events) => return Some(events),
        Err(error) => error,
    };
    warn!(
        %error,
        "cannot watch for the ends of jobs; activity after a job's last regular sample is not recorded"
    );
    None
}

fn discovery(config: &AgentConfig, mounts: &Mounts) -> Discovery {
    let (discovery, error) = Discovery::new(mounts.clone(), config.jobs.clone());
    if let Some(error) = error {
        let interval = config.rescan_interval;
        warn!(%error, "cannot use inotify; new jobs are found only by the rescan every {interval}");
    }
    discovery
}
