//! A running agent: its threads, joined.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use polymeter_proto::control::DeviceReport;
use polymeter_proto::ledger::JobFacts;
use polymeter_proto::period::Period;
use polymeter_proto::series::{Identifier, Processors, Roofs, SessionDescriptor, SessionId};
use polymeter_service::log::chain;
use rustix::thread::set_current_timer_slack;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{info, warn};

use crate::admission::MIN_DESCRIPTORS;
use crate::cgroups::Mounts;
use crate::clock;
use crate::config::{AgentConfig, Hindsight};
use crate::control;
use crate::counters::Counters;
use crate::delivery::collectors::{CollectorAddress, Collectors};
use crate::delivery::remote_requests::{self, RemoteRequestReceiver, RemoteRequestSender};
use crate::delivery::ring::{RingLimits, RingRequests};
use crate::delivery::sender::{self, ConnectError, Ending, Sender, Settings, Stopped};
use crate::delivery::spool_manager::SpoolConfig;
use crate::delivery::tap::{NewestValues, Tap};
use crate::kernel;
use crate::keys::AgentKeyFiles;
use crate::lanes::{Channels, Command, Sampler};
use crate::lifecycle::exit_watcher::ExitWatcher;
use crate::openmetrics::{Entrance, Server};
use crate::request::{
    AccessError, AnnotateError, JobSpec, PushSpec, RegisterError, SupervisorRequest, View, ask,
};
use crate::rights::Rights;
use crate::roof_file;
use crate::sources::{online_cpus, processors};
use crate::start_error::AgentStartError;
use crate::stats_cache::StatsCache;
use crate::supervisor::{Shared, Supervisor, waitable};
use crate::triggers::Triggers;

const REQUESTS: usize = 64;

#[derive(Debug)]
pub struct Agent {
    requests: mpsc::Sender<SupervisorRequest>,
    threads: Threads,
    ending: Arc<Ending>,
    channels: Arc<Channels>,
    counters: Arc<Counters>,
    session: SessionId,
    /// None unless it is configured.
    page: Option<Server>,
}

impl Agent {
    /// Refuses to start if this process may open too few descriptors; the error holds the limit.
    pub fn check_descriptors() -> Result<(), AgentStartError> {
        let limit = kernel::descriptor_limit();
        if limit < MIN_DESCRIPTORS { Err(AgentStartError::Descriptors(limit)) } else { Ok(()) }
    }

    /// Starts the threads of an agent. The context is shared with the collector if both run in one process.
    /// If a resource that the agent needs is unavailable, threads that have started end.
    pub fn start(config: AgentConfig, context: &zmq::Context) -> Result<Self, AgentStartError> {
        Self::check_descriptors()?;
        let session = sender::new_session().map_err(system("cannot generate a random session id"))?;
        let mounts = Mounts::read(&config.root).map_err(system("cannot find the cgroup hierarchies"))?;
        let cpus = online_cpus(&config.root).map_err(system("cannot find the CPUs"))?;
        let shared = Shared {
            channels: Arc::new(Channels::new().map_err(system("cannot create an eventfd"))?),
            counters: Arc::new(Counters::default()),
            stats_cache: Arc::new(StatsCache::default()),
            tap: Arc::new(Tap::with_newest(config.openmetrics.listen.is_some().then(|| {
                NewestValues::new(i64::try_from(config.flush_interval.as_nanos() / 1000).unwrap_or(i64::MAX))
            }))),
            ring_requests: Arc::new(RingRequests::holding(ring_limits(&config).keep_us)),
            triggers: Arc::new(Triggers::new(clock::steady_us())),
        };
        let (channels, counters) = (Arc::clone(&shared.channels), Arc::clone(&shared.counters));
        let (rights, told_rights) = watch::channel(Rights::of(&config));
        let (devices, told_devices) = watch::channel(DeviceReport::default());
        let (remote_requests, remote_receiver) = remote_requests::channel(Arc::clone(&channels));
        let processors = Processors { roofs: roofs(&config.roofs), ..processors(&config.root, &cpus) };
        let descriptor = descriptor(&config, processors)?;
        let page = serve_page(&config, &descriptor.node, &shared.tap)?;
        let sender = connect(context, &config, (session, descriptor), &shared, remote_requests)?;
        let listener = open_socket(&config)?;
        let (requests, received) = mpsc::channel(REQUESTS);
        let ending = Arc::new(Ending::default());

        let (flush, priority) = (config.flush_interval, config.realtime_priority);
        let remote_control = config.accepts_remote_control();
        let supervisor = Supervisor::new(config, mounts, cpus, shared, (rights, devices));
        let context = control::Context {
            session,
            counters: Arc::clone(&counters),
            rights: told_rights,
            devices: told_devices,
        };
        let endpoints = ControlEndpoints {
            listener,
            remote_requests: remote_receiver,
            remote_control,
            requests: requests.clone(),
            context,
            channels: Arc::clone(&channels),
        };
        let unstarted = Unstarted { sender, supervisor, received, endpoints, flush, priority };
        match unstarted.start(&channels, &counters, &ending) {
            Ok(threads) => Ok(Self { requests, threads, ending, channels, counters, session, page }),
            Err(error) => {
                // Nobody else ends the threads that have started.
                drop(channels.command(Command::Stop));
                ending.request(Duration::ZERO, &channels);
                Err(error)
            }
        }
    }

    /// Returns the metrics that are not available, with the reasons.
    pub fn register(&self, spec: JobSpec) -> Result<Vec<(String, String)>, RegisterError> {
        self.ask(|reply| SupervisorRequest::Register(Box::new(spec), reply)).unwrap_or(Ok(Vec::new()))
    }

    pub fn push(&self, spec: PushSpec) -> Result<(), AnnotateError> {
        let pushed = self.ask(|reply| SupervisorRequest::Push(Box::new(spec), reply));
        pushed.unwrap_or(Err(AccessError::Unknown.into()))
    }

    pub fn end(&self, job_id: Identifier, facts: JobFacts) {
        self.ask(|reply| SupervisorRequest::End(job_id, Box::new(facts), reply));
    }

    /// Takes the final sample of a registered job and stops tracking it. False if there is no such job.
    pub fn unregister(&self, job_id: Identifier) -> bool {
        self.ask(|reply| SupervisorRequest::Unregister(job_id, reply)).unwrap_or(false)
    }

    pub fn view(&self) -> View {
        self.ask(SupervisorRequest::View).unwrap_or_default()
    }

    /// [`AgentConfig::update`] has left out what cannot change.
    pub fn reload(&self, config: AgentConfig) {
        self.requests.blocking_send(SupervisorRequest::Reload(Box::new(config))).ok();
    }

    /// Waits until the agent stops by itself: it was started with the option to exit when idle, and is idle;
    /// or the wall clock was set, and it is to begin anew. [`Agent::stop`] sends the samples that it still
    /// holds.
    pub async fn idle(&self) {
        self.requests.closed().await;
    }

    /// Asks the supervisor for a sign of life. None if too many other requests wait for it.
    pub(crate) fn probe(&self) -> Option<oneshot::Receiver<View>> {
        let (request, answer) = ask(SupervisorRequest::View);
        self.requests.try_send(request).ok().map(|()| answer)
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub const fn session(&self) -> SessionId {
        self.session
    }

    fn ask<T>(&self, make: impl FnOnce(oneshot::Sender<T>) -> SupervisorRequest) -> Option<T> {
        let (request, answer) = ask(make);
        self.requests.blocking_send(request).ok()?;
        answer.blocking_recv().ok()
    }

    /// Stops sampling, sends the remaining samples, and waits for at most `patience` until they are
    /// acknowledged.
    pub fn stop(self, patience: Duration) -> Stopped {
        drop(self.page);
        self.requests.blocking_send(SupervisorRequest::Stop).ok();
        // A thread that panicked has logged that already; the others must still be ended.
        let Threads { supervisor, sampler, exit_watcher, sender } = self.threads;
        for thread in [supervisor, sampler].into_iter().chain(exit_watcher) {
            thread.join().ok();
        }
        self.ending.request(patience, &self.channels);
        sender.join().unwrap_or(Stopped { all_acknowledged: false, all_kept: false })
    }
}

#[derive(Debug)]
struct Threads {
    supervisor: JoinHandle<()>,
    sampler: JoinHandle<()>,
    exit_watcher: Option<JoinHandle<()>>,
    sender: JoinHandle<Stopped>,
}

/// What the threads own, before they start.
struct Unstarted {
    sender: Sender,
    supervisor: Supervisor,
    received: mpsc::Receiver<SupervisorRequest>,
    endpoints: ControlEndpoints,
    flush: Period,
    priority: Option<u8>,
}

impl Unstarted {
    /// Starts the threads, and waits until the supervisor can run. After an error some of them run.
    fn start(
        self,
        channels: &Arc<Channels>,
        counters: &Arc<Counters>,
        ending: &Arc<Ending>,
    ) -> Result<Threads, AgentStartError> {
        let Self { sender, supervisor, received, endpoints, flush, priority } = self;
        let (for_sampler, counted) = (Arc::clone(channels), Arc::clone(counters));
        let sampler = spawn("sampler", move || sample(for_sampler, counted, flush, priority))?;
        let wanted = Arc::clone(ending);
        let sender = spawn("sender", move || sender.run(&wanted))?;
        let exit_watcher = match supervisor.exit_watcher() {
            Some(watcher) => {
                let channels = Arc::clone(channels);
                Some(spawn("exit watcher", move || watch_exits(&watcher, &channels, priority))?)
            }
            None => None,
        };
        let (ready, is_ready) = sync_channel(1);
        let supervisor = spawn("supervisor", move || supervise(supervisor, received, endpoints, &ready))?;
        is_ready
            .recv()
            .unwrap_or_else(|gone| Err(io::Error::other(gone)))
            .map_err(system("cannot start tracking jobs and serving the control socket"))?;
        Ok(Threads { supervisor, sampler, exit_watcher, sender })
    }
}

fn system(doing: &'static str) -> impl Fn(io::Error) -> AgentStartError {
    move |error| AgentStartError::System(doing, error)
}

fn connect(
    context: &zmq::Context,
    config: &AgentConfig,
    (session, descriptor): (SessionId, SessionDescriptor),
    shared: &Shared,
    remote_requests: RemoteRequestSender,
) -> Result<Sender, AgentStartError> {
    let keys = config.keys.as_ref().map(AgentKeyFiles::read).transpose().map_err(AgentStartError::Keys)?;
    let configured = config.collectors.iter().enumerate().map(|(place, endpoint)| CollectorAddress {
        endpoint: endpoint.clone(),
        key: keys.as_ref().and_then(|keys| keys.of_collector(place)),
    });
    let collectors = Collectors {
        configured: configured.collect(),
        order: config.collector_order,
        node: descriptor.node.to_string(),
    };
    let settings = Settings {
        collectors,
        return_after_ns: config.collector_return.map(Period::as_nanos),
        own_keys: keys.map(|keys| keys.own),
        session,
        descriptor,
        outbox_bytes: config.outbox_bytes,
        keep_acknowledged_bytes: config.keep_acknowledged_bytes,
        spool: config.spool.clone().map(|directory| SpoolConfig { directory, bytes: config.spool_bytes }),
        remote_requests,
        tap: Arc::clone(&shared.tap),
        ring: ring_limits(config),
        ring_requests: Arc::clone(&shared.ring_requests),
        triggers: Arc::clone(&shared.triggers),
    };
    let Shared { channels, counters, stats_cache, .. } = shared;
    Sender::connect(context, settings, Arc::clone(channels), Arc::clone(counters), Arc::clone(stats_cache))
        .map_err(|error| match error {
            ConnectError::Socket(error) => AgentStartError::Collector(config.collectors.join(", "), error),
            ConnectError::Spool(error) => AgentStartError::Spool(error),
        })
}

fn ring_limits(config: &AgentConfig) -> RingLimits {
    let us = |period: Period| i64::try_from(period.as_micros()).unwrap_or(i64::MAX);
    let Hindsight { keep, after_end, memory_bytes, rate_bytes, .. } = config.hindsight;
    RingLimits {
        keep_us: us(keep),
        after_end_us: us(after_end),
        settle_us: us(config.flush_interval).saturating_mul(2),
        memory_bytes,
        bytes_per_s: rate_bytes,
        outbox_bytes: config.outbox_bytes,
    }
}

fn serve_page(
    config: &AgentConfig,
    node: &Identifier,
    tap: &Arc<Tap>,
) -> Result<Option<Server>, AgentStartError> {
    let entrance = Entrance::open(&config.openmetrics).map_err(AgentStartError::OpenMetrics)?;
    let Some(entrance) = entrance else { return Ok(None) };
    let server = Server::start(entrance, node.clone(), config.openmetrics.metrics.clone(), Arc::clone(tap));
    server.map(Some).map_err(system("cannot start the thread of the page of metrics"))
}

fn open_socket(config: &AgentConfig) -> Result<Option<control::Listener>, AgentStartError> {
    let Some(path) = &config.control_socket else { return Ok(None) };
    let listener = control::Listener::open(path);
    listener.map(Some).map_err(|error| AgentStartError::Control(path.clone(), error))
}

fn descriptor(config: &AgentConfig, processors: Processors) -> Result<SessionDescriptor, AgentStartError> {
    let node = match &config.node {
        Some(node) => node.clone(),
        None => {
            let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
            Identifier::try_from(name.as_str()).map_err(|_invalid| AgentStartError::Node(name))?
        }
    };
    let agent_version = Identifier::try_from(env!("CARGO_PKG_VERSION"))
        .map_err(|_invalid| AgentStartError::Node(String::new()))?;
    Ok(SessionDescriptor { node, agent_version, started_us: clock::steady_us(), processors })
}

fn roofs(path: &Path) -> Option<Roofs> {
    roof_file::read(path).unwrap_or_else(|error| {
        warn!(error = chain(&error), "the roofs of the node are not announced");
        None
    })
}

fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, AgentStartError> {
    /// No thread here recurses; the default of 8 MiB would only inflate the address space.
    const STACK_BYTES: usize = 512 * 1024;
    let builder = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
    builder.spawn(run).map_err(|error| AgentStartError::System("cannot start a thread", error))
}

fn sample(channels: Arc<Channels>, counters: Arc<Counters>, flush: Period, priority: Option<u8>) {
    // By default the kernel lets a sleeping thread of ordinary priority oversleep by 50 µs.
    set_current_timer_slack(std::num::NonZeroU64::new(1)).ok();
    match priority.map(kernel::set_fifo_priority) {
        None => {}
        Some(Ok(())) => channels.set_realtime_thread(rustix::thread::gettid()),
        Some(Err(error)) => info!(
            %error,
            remedy = "on a busy node, samples with periods below 10 ms may be missed",
            "cannot sample with real-time priority"
        ),
    }
    Sampler::new(channels, counters, flush).run();
}

fn watch_exits(watcher: &ExitWatcher, channels: &Channels, priority: Option<u8>) {
    // The sampler has logged it, should the priority be refused.
    if priority.is_none_or(|priority| kernel::set_fifo_priority(priority).is_err()) {
        raise_priority();
    }
    // If too many commands wait, the supervisor's own command has to do.
    watcher.run(|job| drop(channels.command(Command::ReadJob(job))));
}

/// Raises the calling thread's priority among ordinary threads: the cgroups that it reads are gone some
/// milliseconds later.
fn raise_priority() {
    const NICE: i32 = -10;
    // Without the right to it, ends of jobs on a busy node may be noticed too late.
    rustix::process::setpriority_process(None, NICE).ok();
}

struct ControlEndpoints {
    listener: Option<control::Listener>,
    /// Requests that come through the collector.
    remote_requests: RemoteRequestReceiver,
    remote_control: bool,
    requests: mpsc::Sender<SupervisorRequest>,
    context: control::Context,
    channels: Arc<Channels>,
}

/// Runs the supervisor until the end. First reports whether it can run: it cannot with too few descriptors.
fn supervise(
    supervisor: Supervisor,
    received: mpsc::Receiver<SupervisorRequest>,
    endpoints: ControlEndpoints,
    ready: &SyncSender<io::Result<()>>,
) {
    // The supervisor uses little CPU time, and the cgroups of a short job must be opened soon.
    raise_priority();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let ended = runtime.and_then(|runtime| {
        let ended = runtime.block_on(supervised(supervisor, received, endpoints, ready));
        // The end does not wait for a name service that does not answer.
        runtime.shutdown_background();
        ended
    });
    if let Err(error) = ended {
        // `start` waits for this.
        ready.send(Err(error)).ok();
    }
}

async fn supervised(
    supervisor: Supervisor,
    received: mpsc::Receiver<SupervisorRequest>,
    endpoints: ControlEndpoints,
    ready: &SyncSender<io::Result<()>>,
) -> io::Result<()> {
    let waits = supervisor.waits(waitable(endpoints.channels.notices_event().as_fd())?)?;
    let listener = endpoints.listener.map(control::Listener::wait_on).transpose()?;
    ready.send(Ok(())).ok();
    // Both end with the runtime, when the supervisor has ended.
    let (asking, context) = (endpoints.requests.clone(), endpoints.context.clone());
    tokio::spawn(control::remote::serve(
        endpoints.remote_requests,
        endpoints.remote_control,
        asking,
        context,
    ));
    if let Some(listener) = listener {
        tokio::spawn(control::serve(listener, endpoints.requests, endpoints.context));
    }
    supervisor.run(received, waits).await;
    Ok(())
}
