//! Loop of the supervisor.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use polymeter_proto::catalogue::derived::Machine;
use polymeter_proto::control::DeviceReport;
use polymeter_proto::ledger::JobFacts;
use polymeter_proto::series::Identifier;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Interval;
use tracing::warn;

use super::calibrator::Calibrator;
use super::clock_watch::ClockWatch;
use super::cpu_meter::CpuMeter;
use super::demands::DeviceReporter;
use super::dispatcher::Dispatcher;
use super::edge::{Edge, NodeEdge, Search, Shared, now};
use super::owner_lookups::{JobPurpose, LookedUp, Purpose, User};
use super::pace::Pace;
use super::placement::Placement;
use super::wait::{Ticker, every, readable, until, waitable};
use super::{processes, sampler_notices, status_view};
use crate::admission::Admission;
use crate::cgroups::Mounts;
use crate::clock;
use crate::config::AgentConfig;
use crate::file_pages::{self, Release};
use crate::lanes::Command;
use crate::lifecycle::Lifecycle;
use crate::lifecycle::exit_events::ExitEvents;
use crate::lifecycle::exit_watcher::ExitWatcher;
use crate::plan::Plan;
use crate::request::SupervisorRequest;
use crate::rights::Rights;
use crate::sources::{Target, follow_created_cgroups, machine};
use crate::targets::{Access, Targets, TrackedTarget};
use crate::triggers::Triggers;

const FLUSH_FOR_WATCH: Duration = Duration::from_millis(200);

const CONFIRMED: Duration = Duration::from_secs(2);

/// How often numbers of jobs are looked for.
const NUMBERS_NS: u64 = 20_000_000;

/// One of so many rescans also asks all sources for what hardly changes: refresh intervals and unknown lines.
const CLOSELY: u64 = 5;

/// State machines with their edge, and the state of the loop.
#[derive(Debug)]
pub(crate) struct Supervisor {
    config: AgentConfig,
    machine: Machine,
    core: Dispatcher<NodeEdge>,
    cpu_meter: CpuMeter,
    clock_watch: ClockWatch,
    release: Release,
    placement: Placement,
    pace: Pace,
    calibrator: Calibrator,
    rescans: u64,
    rights: watch::Sender<Rights>,
    devices: DeviceReporter,
}

/// Cause of a wake-up of the supervisor.
#[derive(Debug, Clone, Copy)]
enum Woken {
    /// Something happened on the node.
    Event,
    Rescan,
    Other,
}

#[derive(Debug)]
pub(crate) struct Waits {
    notices: AsyncFd<OwnedFd>,
    exits: Option<AsyncFd<OwnedFd>>,
    cgroups: Option<AsyncFd<OwnedFd>>,
    rescan: Ticker,
    measure_cpu: Ticker,
    flush_for_watch: Interval,
    triggers: Arc<Triggers>,
}

impl Supervisor {
    pub(crate) fn new(
        config: AgentConfig,
        mounts: Mounts,
        cpus: Vec<usize>,
        shared: Shared,
        (rights, devices): (watch::Sender<Rights>, watch::Sender<DeviceReport>),
    ) -> Self {
        let placement = Placement::new(Arc::clone(&shared.channels));
        let node = Target::Node(Arc::clone(&shared.counters));
        let machine = machine(&mounts.proc);
        let standing = standing_plan(&config, machine);
        shared.triggers.change(|evaluator| evaluator.set_site(config.site_triggers()));
        let lifecycle = Lifecycle::new(config.cluster.clone(), standing, node, now());
        let core = Dispatcher {
            targets: Targets::new(config.job_visibility),
            admission: Admission::new(config.limits.clone(), cpus.len()),
            lifecycle,
            edge: NodeEdge::new(&config, mounts, cpus, shared),
        };
        Self {
            config,
            machine,
            core,
            cpu_meter: CpuMeter::default(),
            clock_watch: ClockWatch::default(),
            release: Release::default(),
            placement,
            pace: Pace::default(),
            calibrator: Calibrator::new(),
            rescans: 0,
            rights,
            devices: DeviceReporter::new(devices),
        }
    }

    /// Watches exits in a thread of its own; none if it is unavailable.
    pub(crate) fn exit_watcher(&self) -> Option<Arc<ExitWatcher>> {
        self.core.edge.exit_events.as_ref().map(ExitEvents::exit_watcher).cloned()
    }

    /// Runs until asked to stop, and stops the sampler and the exit watcher.
    pub(crate) async fn run(mut self, requests: mpsc::Receiver<SupervisorRequest>, waits: Waits) {
        self.core.start().await;
        self.core.follow_devices().await;
        self.core.lifecycle.node_sampled(self.core.edge.descriptors());
        self.find_jobs(Search::Walk).await;
        self.work(requests, waits).await;
        if let Some(watcher) = self.exit_watcher() {
            watcher.stop();
        }
        self.core.edge.command(Command::Stop).await;
    }

    async fn work(&mut self, mut requests: mpsc::Receiver<SupervisorRequest>, mut waits: Waits) {
        loop {
            // First of all: a job's cgroups are gone some milliseconds after its end.
            self.core.handle_exits().await;
            self.devices.update(&self.core.targets, &self.core.edge.outside);
            let expiry_ns = Admission::next_expiry_ns(&self.core.targets);
            let calibration_ns = self.calibrator.due_ns(self.core.admission.has_prices(&self.core.targets));
            let mut woken = Woken::Event;
            tokio::select! {
                () = readable(waits.exits.as_ref()) => {}
                request = requests.recv() => match request {
                    None | Some(SupervisorRequest::Stop) => break,
                    Some(SupervisorRequest::Reload(config)) => {
                        self.reload(*config, &mut waits).await;
                    }
                    Some(request) => {
                        woken = if request.is_read() { Woken::Other } else { Woken::Event };
                        self.serve(request).await;
                    }
                },
                ready = waits.notices.readable() => {
                    if let Ok(mut guard) = ready {
                        self.core.edge.shared.channels.notices_event().clear();
                        guard.clear_ready();
                    }
                    woken = self.handle_notices().await;
                }
                () = until(expiry_ns) => self.core.expire().await,
                () = until(self.next_numbers_ns()) => self.look_for_numbers().await,
                () = readable(waits.cgroups.as_ref()) => {
                    if self.core.edge.discovery.changed() {
                        follow_created_cgroups();
                        self.find_jobs(Search::Walk).await;
                    }
                }
                Some(user) = self.core.edge.owner_lookups.next() => self.handle_looked_up(user).await,
                () = waits.rescan.tick() => {
                    self.rescan().await;
                    woken = Woken::Rescan;
                }
                () = waits.measure_cpu.tick() => {
                    self.measure_cpu().await;
                    if self.is_idle() || self.must_begin_anew() {
                        break;
                    }
                    woken = Woken::Other;
                }
                () = until(Some(calibration_ns)) => {
                    self.calibrator.start();
                    woken = Woken::Other;
                }
                Some(times) = self.calibrator.measured() => {
                    self.core.admission.calibrate(times);
                    woken = Woken::Other;
                }
                () = waits.triggers.wait() => self.core.act_on_triggers().await,
                () = until(self.placement.next_ns()) => {
                    self.placement.adjust();
                    woken = Woken::Other;
                }
                _ = waits.flush_for_watch.tick(), if self.core.edge.shared.tap.is_watched() => {
                    self.core.edge.command(Command::FlushForWatch).await;
                    woken = Woken::Other;
                }
            }
            self.keep_pace(woken, &waits);
        }
    }

    /// What [`Supervisor::run`] waits for. `notices` becomes readable when the sampler has notices. Fails
    /// without descriptors for timers.
    pub(crate) fn waits(&self, notices: AsyncFd<OwnedFd>) -> io::Result<Waits> {
        let exit_events = self.core.edge.exit_events.as_ref();
        let (rescan, measure_cpu) = self.intervals();
        Ok(Waits {
            notices,
            exits: exit_events.and_then(|exits| waitable(exits.descriptor()).ok()),
            cgroups: self.cgroup_changes(),
            rescan: Ticker::every(rescan)?,
            measure_cpu: Ticker::every(measure_cpu)?,
            flush_for_watch: every(FLUSH_FOR_WATCH),
            triggers: Arc::clone(&self.core.edge.shared.triggers),
        })
    }

    /// Readable when cgroups were created or removed.
    fn cgroup_changes(&self) -> Option<AsyncFd<OwnedFd>> {
        waitable(self.core.edge.discovery.descriptor()?).ok()
    }

    async fn handle_notices(&mut self) -> Woken {
        let handled = sampler_notices::handle(&mut self.core);
        let has_ranks_only = !handled.ranks.is_empty() && !handled.is_gone;
        for (source, ranks) in handled.ranks {
            self.core.ranks(source, ranks).await;
        }
        if handled.is_gone {
            self.find_jobs(Search::Walk).await;
        }
        if has_ranks_only { Woken::Other } else { Woken::Event }
    }

    async fn handle_looked_up(&mut self, looked_up: LookedUp<Purpose>) {
        let is_discovered = matches!(looked_up.purpose, Purpose::Job(JobPurpose::Discover(..)));
        self.core.handle_looked_up(looked_up).await;
        if is_discovered {
            // Its cgroups may have changed during the look-up.
            self.find_jobs(Search::Walk).await;
        }
    }

    fn keep_pace(&mut self, woken: Woken, waits: &Waits) {
        let is_other = match woken {
            Woken::Rescan if self.is_told_of_changes(waits) => self.pace.rescanned(),
            Woken::Event | Woken::Rescan => self.pace.happened(),
            Woken::Other => false,
        };
        if is_other {
            self.set_tickers(waits);
        }
    }

    /// True if an event wakes the supervisor whenever something changes that cannot wait for some seconds.
    fn is_told_of_changes(&self, waits: &Waits) -> bool {
        let edge = &self.core.edge;
        let needs_rescans =
            |target: &TrackedTarget| target.sources.follows_processes() || target.may_have_steps();
        waits.exits.is_some()
            && edge.discovery.is_told_of_changes()
            && edge.outside.is_empty()
            && !self.config.exit_when_idle
            && Admission::next_expiry_ns(&self.core.targets).is_none()
            && !self.core.targets.iter().any(|(_, target)| needs_rescans(target))
    }

    fn set_tickers(&self, waits: &Waits) {
        let (rescan, measure_cpu) = self.intervals();
        for (ticker, interval) in [(&waits.rescan, rescan), (&waits.measure_cpu, measure_cpu)] {
            if let Err(error) = ticker.set(interval) {
                warn!(%error, "cannot change the interval of rescans; restart the agent");
            }
        }
    }

    fn intervals(&self) -> (Duration, Duration) {
        self.pace.intervals(Duration::from_micros(self.config.rescan_interval.as_micros()))
    }

    async fn find_jobs(&mut self, search: Search) {
        let Dispatcher { edge, targets, lifecycle, .. } = &mut self.core;
        let walk = edge
            .find_jobs(search, targets, |found, descriptors| lifecycle.has_room(targets, found, descriptors));
        if let Some(walk) = walk {
            self.core.walked(walk).await;
        }
    }

    /// Returns the time at which numbers of jobs are looked for next.
    fn next_numbers_ns(&self) -> Option<u64> {
        let now = now();
        let is_wanted = self.core.lifecycle.unnumbered_jobs(now).next().is_some();
        is_wanted.then(|| now.monotonic_ns.saturating_add(NUMBERS_NS))
    }

    async fn look_for_numbers(&mut self) {
        if self.core.edge.has_numbers(self.core.lifecycle.unnumbered_jobs(now())) {
            self.find_jobs(Search::Walk).await;
        }
    }

    /// Checks everything that may have changed without a notification.
    async fn rescan(&mut self) {
        follow_created_cgroups();
        self.find_jobs(Search::Rescan).await;
        for key in NodeEdge::changed_targets(&mut self.core.targets) {
            self.core.files_changed(&key).await;
        }
        self.core.follow_devices().await;
        let looks_closely = self.pace.is_quiet() || self.rescans.is_multiple_of(CLOSELY);
        self.rescans += 1;
        if looks_closely {
            self.core.take_intervals().await;
            self.core.edge.count_unknown_lines(&self.core.targets);
        }
        processes::find(&mut self.core);
        self.core.handle_exits().await;
        self.core.rescan_missed().await;
        for key in self.core.targets.keys_where(TrackedTarget::may_have_steps) {
            self.core.find_steps(&key).await;
        }
        self.core.owners_wanted().await;
    }

    /// Places the sampler's thread, returns pages that are not needed, and limits the cost of leases.
    async fn measure_cpu(&mut self) {
        self.placement.adjust_with_others();
        if self.release.is_due(self.core.edge.shared.counters.sources.load(Relaxed)) {
            file_pages::release();
        }
        let Some(used_percent) = self.cpu_meter.measure() else { return };
        if Admission::next_expiry_ns(&self.core.targets).is_some() {
            self.core.govern(used_percent).await;
        }
    }

    /// True if the agent is to exit when idle, has been idle for a while, and the collector has acknowledged
    /// everything.
    fn is_idle(&mut self) -> bool {
        let is_idle = self.core.lifecycle.is_idle(&self.core.targets, now());
        let outbox_bytes = self.core.edge.shared.counters.outbox_bytes.load(Relaxed);
        self.config.exit_when_idle && is_idle && outbox_bytes == 0
    }

    /// True if the wall clock was set, and the agent can begin anew with it.
    fn must_begin_anew(&mut self) -> bool {
        let has_sent_all = self.core.edge.shared.counters.outbox_bytes.load(Relaxed) == 0;
        let is_free = has_sent_all && Admission::may_begin_anew(&self.core.targets);
        self.clock_watch.must_begin_anew(clock::ahead_ns(), is_free)
    }

    async fn reload(&mut self, config: AgentConfig, waits: &mut Waits) {
        self.core.edge.reload(&config, config.jobs != self.config.jobs);
        self.core.targets.set_job_visibility(config.job_visibility);
        self.config = config;
        let of_site = self.config.site_triggers();
        self.core.edge.shared.triggers.change(|evaluator| evaluator.set_site(of_site));
        self.rights.send_replace(Rights::of(&self.config));
        let standing = standing_plan(&self.config, self.machine);
        self.core.reload(self.config.cluster.clone(), self.config.limits.clone(), standing).await;
        self.find_jobs(Search::Walk).await;
        waits.cgroups = self.cgroup_changes();
        self.set_tickers(waits);
    }

    async fn close_removed(&mut self) {
        let (reply, taken) = oneshot::channel();
        self.core.edge.command(Command::Confirm(reply)).await;
        // A sampler that has ended does not answer.
        tokio::time::timeout(CONFIRMED, taken).await.ok();
        // What was found in the last moment finds no sampler.
        drop(sampler_notices::handle(&mut self.core));
    }

    async fn scheduler_ended(&mut self, job_id: &Identifier, facts: JobFacts) {
        // Its cgroups may have been created since the last walk.
        if self.core.lifecycle.awaits(&self.core.targets, job_id) {
            self.find_jobs(Search::Walk).await;
        }
        self.core.trigger_end(job_id, &facts);
        self.core.scheduler_ended(job_id, facts).await;
    }

    /// Serves a request. An answer is dropped if the requester does not wait any more.
    async fn serve(&mut self, request: SupervisorRequest) {
        let shared = &self.core.edge.shared;
        match request {
            SupervisorRequest::View(reply) => {
                drop(reply.send(status_view::view_all(&self.core.targets, &shared.stats_cache)));
            }
            SupervisorRequest::ViewOne(principal, key, reply) => {
                let target = self.core.targets.access(principal, &key, Access::See);
                drop(reply.send(target.map(|target| status_view::view(&key, target, &shared.stats_cache))));
            }
            SupervisorRequest::Watch(principal, key, selectors, reply) => {
                let target = self.core.targets.access(principal, &key, Access::See);
                drop(reply.send(target.map(|target| shared.tap.watch(target.handle(), selectors))));
            }
            SupervisorRequest::Flush(reply) => {
                self.core.edge.command(Command::Flush).await;
                reply.send(()).ok();
            }
            SupervisorRequest::Mark(mark, reply) => drop(reply.send(self.core.mark(*mark).await)),
            SupervisorRequest::Push(push, reply) => drop(reply.send(self.core.push(*push).await)),
            SupervisorRequest::Regions(regions, reply) => {
                drop(reply.send(self.core.regions(*regions).await));
            }
            SupervisorRequest::Set(request, reply) => drop(reply.send(self.core.set(*request).await)),
            SupervisorRequest::Demand(spec, reply) => drop(reply.send(self.core.demand(*spec).await)),
            SupervisorRequest::Reset(principal, key, level, reply) => {
                reply.send(self.core.reset(principal, &key, level).await).ok();
            }
            SupervisorRequest::Release(request, reply) => {
                let released = self.core.release(&request).await;
                self.close_removed().await;
                drop(reply.send(released));
            }
            SupervisorRequest::Resume(principal, key, reply) => {
                reply.send(self.core.resume(principal, &key).await).ok();
            }
            SupervisorRequest::Metrics(principal, key, reply) => {
                drop(reply.send(self.core.metrics(principal, &key).await));
            }
            SupervisorRequest::Register(spec, reply) => {
                let user = User { uid: spec.owner_uid, name: spec.owner.clone(), wants_name: false };
                self.core.look_up(user, Purpose::Register(spec, reply)).await;
            }
            SupervisorRequest::Unregister(job_id, reply) => {
                reply.send(self.core.unregister(job_id).await).ok();
            }
            SupervisorRequest::Start(spec, reply) => {
                let wants_name =
                    self.core.targets.job(&spec.job_id).is_some_and(TrackedTarget::lacks_owner_name);
                let user = User { uid: spec.owner_uid, name: spec.owner.clone(), wants_name };
                self.core.look_up(user, Purpose::Announce(spec, reply)).await;
            }
            SupervisorRequest::End(job_id, facts, reply) => {
                self.scheduler_ended(&job_id, *facts).await;
                reply.send(()).ok();
            }
            SupervisorRequest::AddTrigger(spec, reply) => drop(reply.send(self.core.add_trigger(*spec))),
            SupervisorRequest::Keep(spec, reply) => {
                reply.send(self.core.keep_interval(*spec)).ok();
            }
            SupervisorRequest::RemoveTrigger(principal, job_id, name, reply) => {
                reply.send(self.core.remove_trigger(principal, job_id, name)).ok();
            }
            SupervisorRequest::Triggers(by, job_id, reply) => {
                drop(reply.send(self.core.triggers(by, job_id)))
            }
            SupervisorRequest::Stop | SupervisorRequest::Reload(_) => {}
        }
    }
}

fn standing_plan(config: &AgentConfig, machine: Machine) -> Plan {
    let AgentConfig { baseline, steps, tasks, hindsight, .. } = config.clone();
    Plan { machine, baseline, steps, tasks, ring: hindsight.metrics, ..Plan::default() }
}
