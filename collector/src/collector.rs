//! A running collector.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use polymeter_api::{Api, Listen, LiveValues};
use polymeter_proto::key::KeyPair;
use polymeter_service::clock::{Clock, boottime_ns};
use polymeter_service::keys::update;
use polymeter_store::{ClockJump, ClockLinks, Maintenance, Store, StoreError, WriteMode};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Unit;
use rustix::process::{Resource, getrlimit};
use tracing::warn;

use crate::agents::AgentDirectory;
use crate::api::start_api;
use crate::auth::{AuthHandler, AuthOptions, AuthorisedKeys, HandshakeFailure};
use crate::backlog::Backlog;
use crate::clock_offsets::ClockOffsets;
use crate::clock_skew::ClockSkewLog;
use crate::config::{CollectorConfig, KEYS};
use crate::control::firings::FiringSender;
use crate::control::node_outcome::OutcomeReport;
use crate::control::{self, ApiRequests, Control, CoordinatorLinks, Listeners, NoticeChoiceService};
use crate::error::{CollectorStartError, ThreadPanicked};
use crate::federation::{FederatePage, FederationConfig, NewestValues};
use crate::job_end::JobEndRunner;
use crate::keys::CollectorKeyFiles;
use crate::limits::{self, DESCRIPTORS_MIN};
use crate::metrics::Metrics;
use crate::notices::NoticedReceiver;
use crate::other_collectors::OtherCollectors;
use crate::page_server::{PageAddress, PageServer};
use crate::queues::{OutgoingSender, WriterQueueSender, outgoing_queue, writer_queue};
use crate::reading::ReadSessions;
use crate::receiver::{self, Receiver};
use crate::roles::Roles;
use crate::settings::SharedSettings;
use crate::shutdown::Shutdown;
use crate::sinks::{self, OtherSinks, SinkThreads, Sinks, StragglerWatch};
use crate::summaries::Summaries;
use crate::thread::spawn;
use crate::waker::Waker;
use crate::writer::{Totals, Writer, WriterLinks};

/// A running collector, until [`Collector::stop`]. If it is dropped instead, its threads commit what they
/// have and end, but nothing waits for them.
#[derive(Debug)]
pub struct Collector {
    endpoint: String,
    control_endpoints: Vec<String>,
    write_mode: WriteMode,
    clock: Clock,
    shutdown: ShutdownOnDrop,
    receiver: JoinHandle<u64>,
    writers: Vec<JoinHandle<Totals>>,
    maintenance: Maintenance,
    sinks: Sinks,
    sink_threads: SinkThreads,
    of_ended: OfEndedJobs,
    api: Option<Api>,
    control: Control,
    /// Dropped after the receiver, whose socket it guards.
    auth: Option<AuthHandler>,
    metrics: Option<PageServer>,
    federation: Option<PageServer>,
    config: CollectorConfig,
    roles: Roles,
    settings: SharedSettings,
}

#[derive(Debug)]
struct ShutdownOnDrop {
    shutdown: Shutdown,
    waker: Waker,
    clock: Clock,
}

impl ShutdownOnDrop {
    fn request(&self) {
        self.shutdown.request(self.clock.now().since_start);
        self.waker.wake();
    }
}

impl Drop for ShutdownOnDrop {
    fn drop(&mut self) {
        self.request();
    }
}

impl Collector {
    /// Opens the store, binds the endpoint and starts the threads. `inproc://` endpoints work within
    /// `context`. After an error no thread is left running.
    pub fn start(config: &CollectorConfig, context: &zmq::Context) -> Result<Self, CollectorStartError> {
        let (clock, shutdown) = (Clock::start(), Shutdown::default());
        let config = &named(config)?;
        let key_pair = read_keys(config)?;
        let stores = open_stores(config)?;
        let write_mode = write_mode(&stores);
        let listeners = Listeners::open(&config.control).map_err(CollectorStartError::Control)?;
        let control_endpoints = listeners.addresses();
        let waker = Waker::new().map_err(CollectorStartError::Thread)?;
        let metrics = new_metrics(&write_mode);
        // The order matters: if a later step fails, values are dropped in reverse order of their creation.
        let Listening { auth, authorised, endpoint, socket } =
            listen(config, context, key_pair.as_ref(), (&metrics, clock))?;
        let settings = SharedSettings::new(config);
        let maintenance = start_maintenance(config, &metrics, settings.clone())?;
        let server = config.metrics_listen.map(|address| serve_metrics(address, &metrics)).transpose()?;
        let (live, others) = (config.api.is_some().then(LiveValues::default), OtherCollectors::default());
        let ((reports, outcomes), (firings, fired), noticed) = control::queues(config.notices.is_some());
        let (federation, (sinks, sink_threads)) =
            start_sinks(config, live.clone(), (&firings, &others), &metrics, clock)?;
        let (outgoing_sender, outgoing) = outgoing_queue(waker.clone());
        // Without control no outcomes of jobs are reported.
        let outcomes = Some(outcomes).filter(|_| !control_endpoints.is_empty());
        let shared = Shared {
            firings,
            outgoing: outgoing_sender.clone(),
            directory: AgentDirectory::default(),
            settings: settings.clone(),
            sinks: sinks.clone(),
            shutdown: shutdown.clone(),
            clock,
            backlog: Backlog::new(stores.len()),
            clock_offsets: ClockOffsets::default(),
        };
        let (queues, writers) = start_writers(config, stores, &metrics, &waker, &shared, outcomes)?;
        let links = CoordinatorLinks::new(shared.directory, outgoing_sender, reports, fired, others);
        // From here on only the writers and control own senders of outgoing messages: the receiver ends when
        // all of them are dropped.
        drop((shared.outgoing, shared.sinks));
        let of_ended = start_job_end(config, &metrics, noticed, &shared.backlog, (clock, &shutdown))?;
        let users = (listeners, links, live, (shared.backlog, shared.clock_offsets));
        let (roles, api, (control, answers)) = start_users(config, &metrics, users, (&shutdown, clock))?;
        let receiver = Receiver {
            socket,
            waker: waker.clone(),
            queues,
            outgoing,
            control: answers,
            clock,
            shutdown: shutdown.clone(),
            authorised,
            metrics,
        };
        let receiver = spawn("receiver", move || receiver.run()).map_err(CollectorStartError::Thread)?;
        Ok(Self {
            endpoint,
            control_endpoints,
            write_mode,
            clock,
            shutdown: ShutdownOnDrop { shutdown, waker, clock },
            receiver,
            writers,
            maintenance,
            sinks,
            sink_threads,
            of_ended,
            api,
            control,
            auth,
            metrics: server,
            federation,
            config: config.clone(),
            settings,
            roles,
        })
    }

    /// Endpoint with its actual port.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Paths, and addresses with their actual ports.
    pub fn control_endpoints(&self) -> &[String] {
        &self.control_endpoints
    }

    /// Address with its actual port; none if the API is not served.
    pub fn api(&self) -> Option<&Listen> {
        self.api.as_ref().map(Api::address)
    }

    /// Address of the collector's own metrics, with its actual port.
    pub fn metrics(&self) -> Option<SocketAddr> {
        match self.metrics.as_ref().map(PageServer::address) {
            Some(PageAddress::Tcp(address)) => Some(*address),
            Some(PageAddress::Unix(_)) | None => None,
        }
    }

    /// Address of the page `/federate`, with its actual port.
    pub fn federation(&self) -> Option<&PageAddress> {
        self.federation.as_ref().map(PageServer::address)
    }

    /// Layout in which samples are written, with the reason for it.
    pub const fn write_mode(&self) -> &WriteMode {
        &self.write_mode
    }

    /// Returns true if the receiver has worked since the last call, and wakes it again.
    pub fn is_receiver_alive(&self) -> bool {
        let is_alive = !self.shutdown.waker.is_pending();
        self.shutdown.waker.wake();
        is_alive
    }

    /// Applies the part of `config` that can change at runtime: `commit_interval`, `commit_rows`,
    /// `session_timeout`, `[clock]`, `[retention]` and the roles of users. Sinks reopen their outputs.
    /// Returns the other keys with changed values, which require a restart.
    pub fn reload(&self, config: &CollectorConfig) -> Vec<String> {
        self.settings.set(config);
        if let Some(retention) = config.retention {
            self.maintenance.set_retention(retention);
        }
        self.roles.set(&config.roles);
        if let Err(error) = self.roles.store(&config.store, &self.shutdown.shutdown) {
            warn!(%error, "cannot start the thread that stores the managers of accounts");
        }
        self.sinks.reopen();
        update(KEYS, &mut self.config.clone(), config).at_restart
    }

    /// Commits and acknowledges the messages in the socket, and ends the threads. If the store does not
    /// answer, that takes little longer than [`limits::SHUTDOWN_COMMIT`].
    pub fn stop(self) -> Result<Totals, ThreadPanicked> {
        self.shutdown.request();
        let mut totals = Totals::default();
        let mut panicked = !self.api.is_none_or(Api::stop);
        panicked |= !self.control.stop();
        for writer in self.writers {
            match writer.join() {
                Ok(of_one) => totals.add(&of_one),
                Err(_) => panicked = true,
            }
        }
        match self.receiver.join() {
            Ok(refused) => totals.refused += refused,
            Err(_) => panicked = true,
        }
        drop((self.auth, self.metrics));
        // The writers have ended, so that these were the last senders of rows.
        drop(self.sinks);
        self.sink_threads.stop(self.clock);
        panicked |= !self.of_ended.command.is_none_or(JobEndRunner::stop);
        panicked |= !self.of_ended.summaries.stop();
        panicked |= self.maintenance.stop().is_err();
        if panicked { Err(ThreadPanicked) } else { Ok(totals) }
    }
}

fn check_descriptors() -> Result<(), CollectorStartError> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if limit < DESCRIPTORS_MIN { Err(CollectorStartError::Descriptors(limit)) } else { Ok(()) }
}

/// Adds a name for this run of the program in the store.
fn named(config: &CollectorConfig) -> Result<CollectorConfig, CollectorStartError> {
    let id = control::new_id().map_err(CollectorStartError::Thread)?;
    Ok(CollectorConfig { collector_id: Some(id), ..config.clone() })
}

fn start_maintenance(
    config: &CollectorConfig,
    metrics: &Metrics,
    settings: SharedSettings,
) -> Result<Maintenance, CollectorStartError> {
    let ahead: Gauge = Gauge::default();
    let help = "Time by which the clock of the store jumped ahead; no rows are removed while it is not 0";
    metrics.register_with_unit("clock_jump", help, Unit::Seconds, ahead.clone());
    let clock = ClockLinks {
        monotonic_ns: boottime_ns,
        report: Box::new(move |jump: Option<ClockJump>| {
            ahead.set(jump.map_or(0, |jump| jump.ahead_us() / 1_000_000));
            settings.set_clock_refused(jump.is_some());
        }),
    };
    config.store.start_maintenance(config.retention, clock).map_err(|source| store_error(config, source))
}

fn serve_metrics(address: SocketAddr, metrics: &Arc<Metrics>) -> Result<PageServer, CollectorStartError> {
    PageServer::start(&PageAddress::Tcp(address), Arc::clone(metrics))
        .map_err(|source| CollectorStartError::Metrics { address, source })
}

fn new_metrics(write_mode: &WriteMode) -> Arc<Metrics> {
    let metrics = Metrics::new(write_mode.to_string());
    metrics.refused_connections.create(HandshakeFailure::ALL.map(HandshakeFailure::as_str));
    Arc::new(metrics)
}

fn start_federation(
    config: &CollectorConfig,
    values: &NewestValues,
) -> Result<Option<PageServer>, CollectorStartError> {
    let Some(FederationConfig { listen, token_file }) = &config.federation else { return Ok(None) };
    let page = FederatePage::new(token_file.as_deref(), values.clone());
    let server = page.and_then(|page| PageServer::start(listen, Arc::new(page)));
    let failed = |source| CollectorStartError::Federation { address: listen.to_string(), source };
    server.map(Some).map_err(failed)
}

fn start_sinks(
    config: &CollectorConfig,
    live: Option<LiveValues>,
    (firings, others): (&FiringSender, &OtherCollectors),
    metrics: &Metrics,
    clock: Clock,
) -> Result<(Option<PageServer>, (Sinks, SinkThreads)), CollectorStartError> {
    let newest = NewestValues::new(limits::FEDERATION_SERIES);
    let federation = start_federation(config, &newest)?;
    let firings = firings.clone();
    let watch = StragglerWatch {
        rules: config.stragglers.clone(),
        report: Box::new(move |straggler| firings.offer_straggler(&straggler)),
        others: others.clone(),
        collector_id: config.collector_id.clone().unwrap_or_default(),
    };
    let others = OtherSinks {
        live,
        senders: (config.senders(), config.store.clone()),
        stragglers: Some(watch).filter(|watch| !watch.rules.is_empty()),
        federation: federation.is_some().then_some(newest),
    };
    let sinks = sinks::start(&config.sinks, others, metrics, clock).map_err(CollectorStartError::Thread)?;
    Ok((federation, sinks))
}

fn start_users(
    config: &CollectorConfig,
    metrics: &Metrics,
    (listeners, links, live, state): (
        Listeners,
        CoordinatorLinks,
        Option<LiveValues>,
        (Backlog, ClockOffsets),
    ),
    (shutdown, clock): (&Shutdown, Clock),
) -> Result<(Roles, Option<Api>, control::Started), CollectorStartError> {
    let roles = Roles::look_up(&config.roles);
    roles.store(&config.store, shutdown).map_err(CollectorStartError::Thread)?;
    let (api, requests) = start_api(config, &links.directory, (metrics, roles.clone()), live, state)?;
    let started = start_control(config, listeners, links, requests, (roles.clone(), clock))?;
    Ok((roles, api, started))
}

fn start_control(
    config: &CollectorConfig,
    listeners: Listeners,
    links: CoordinatorLinks,
    requests: ApiRequests,
    (roles, clock): (Roles, Clock),
) -> Result<control::Started, CollectorStartError> {
    let store = (&config.store, config.collector_id.as_deref().unwrap_or_default());
    let rules = config.notices.clone().unwrap_or_default().rules;
    let notices = NoticeChoiceService::start(config.store.clone(), rules, roles.clone())
        .map_err(CollectorStartError::Thread)?;
    Control::start(
        listeners,
        links,
        || ReadSessions::start(config.store.clone(), roles, config.control.read_timeouts, clock),
        requests,
        notices,
        store,
        clock,
    )
    .map_err(CollectorStartError::Thread)
}

#[derive(Debug)]
struct OfEndedJobs {
    command: Option<JobEndRunner>,
    summaries: Summaries,
}

fn start_job_end(
    config: &CollectorConfig,
    metrics: &Metrics,
    noticed: Option<NoticedReceiver>,
    backlog: &Backlog,
    (clock, shutdown): (Clock, &Shutdown),
) -> Result<OfEndedJobs, CollectorStartError> {
    let command = config
        .job_end
        .as_ref()
        .map(|command| JobEndRunner::start(command, &config.store, metrics, clock, shutdown))
        .transpose()
        .map_err(CollectorStartError::Thread)?;
    let stored = (&config.store, config.notices.as_ref().zip(noticed));
    let summaries = Summaries::start(stored, backlog.clone(), metrics, clock, shutdown);
    Ok(OfEndedJobs { command, summaries: summaries.map_err(CollectorStartError::Thread)? })
}

struct Shared {
    outgoing: OutgoingSender,
    directory: AgentDirectory,
    settings: SharedSettings,
    sinks: Sinks,
    firings: FiringSender,
    shutdown: Shutdown,
    clock: Clock,
    backlog: Backlog,
    clock_offsets: ClockOffsets,
}

fn start_writers(
    config: &CollectorConfig,
    stores: Vec<Store>,
    metrics: &Metrics,
    waker: &Waker,
    shared: &Shared,
    mut outcomes: Option<mpsc::Receiver<OutcomeReport>>,
) -> Result<(Vec<WriterQueueSender>, Vec<JoinHandle<Totals>>), CollectorStartError> {
    let clock_skew = ClockSkewLog::default();
    let (mut queues, mut writers) = (Vec::new(), Vec::new());
    for (number, store) in stores.into_iter().enumerate() {
        let metrics = metrics.writer(number);
        let (sender, queue) =
            writer_queue(waker.clone(), metrics.queue.clone(), shared.backlog.writer(number));
        queues.push(sender);
        let links = WriterLinks {
            queue,
            outgoing: shared.outgoing.clone(),
            directory: shared.directory.clone(),
            clock_skew: clock_skew.clone(),
            metrics,
            // The first writer stores the outcomes of jobs.
            outcomes: outcomes.take(),
            clock_offsets: shared.clock_offsets.clone(),
            settings: shared.settings.clone(),
            sinks: shared.sinks.clone(),
            firings: shared.firings.clone(),
        };
        let writer =
            Writer::new(config.clone(), shared.clock, shared.shutdown.clone(), links, store, number == 0);
        writers.push(spawn("writer", move || writer.run()).map_err(CollectorStartError::Thread)?);
    }
    Ok((queues, writers))
}

/// A bound socket and its authentication. Fields are dropped in order: the authentication must be dropped
/// last.
struct Listening {
    socket: zmq::Socket,
    endpoint: String,
    auth: Option<AuthHandler>,
    authorised: Option<Arc<AuthorisedKeys>>,
}

/// Binds the socket for agents after authentication has started, so that every connection is checked.
fn listen(
    config: &CollectorConfig,
    context: &zmq::Context,
    key_pair: Option<&KeyPair>,
    (metrics, clock): (&Arc<Metrics>, Clock),
) -> Result<Listening, CollectorStartError> {
    let cannot_bind = |source| CollectorStartError::Bind { endpoint: config.listen.clone(), source };
    let socket = receiver::make_socket(context, key_pair)
        .map_err(|source| CollectorStartError::Socket { purpose: "the receiver", source })?;
    let mut listening = Listening { socket, endpoint: config.listen.clone(), auth: None, authorised: None };
    // Within one process there are no connections to authenticate, and therefore no keys.
    if !config.listen.starts_with("inproc://") {
        let authorised =
            config.keys.as_ref().map(|keys| (keys.authorised_agents.clone(), config.bind_node_to_key));
        let guarded = &listening.socket;
        let options = AuthOptions { context, guarded, authorised, metrics: Arc::clone(metrics), clock };
        let (auth, authorised) = AuthHandler::start(options)?;
        (listening.auth, listening.authorised) = (Some(auth), authorised);
    }
    listening.socket.bind(&config.listen).map_err(cannot_bind)?;
    if let Ok(bound) = listening.socket.get_last_endpoint().map_err(cannot_bind)? {
        listening.endpoint = without_mapping(bound);
    }
    Ok(listening)
}

/// Writes an IPv4 address as such, where libzmq wrote `tcp://[::ffff:ADDRESS]:PORT`.
fn without_mapping(endpoint: String) -> String {
    let mapped = endpoint.strip_prefix("tcp://[::ffff:").and_then(|rest| rest.split_once("]:"));
    match mapped {
        Some((address, port)) if address.contains('.') => format!("tcp://{address}:{port}"),
        _ => endpoint,
    }
}

fn read_keys(config: &CollectorConfig) -> Result<Option<KeyPair>, CollectorStartError> {
    config.keys.as_ref().map(CollectorKeyFiles::read).transpose().map_err(CollectorStartError::Keys)
}

fn open_stores(config: &CollectorConfig) -> Result<Vec<Store>, CollectorStartError> {
    check_descriptors()?;
    let writers = if config.store.has_parallel_writers() { config.writers.max(1) } else { 1 };
    let options = config.open_options(true);
    let stores = (0..writers).map(|_| Store::open(&config.store, &options)).collect::<Result<_, _>>();
    stores.map_err(|source| store_error(config, source))
}

/// The same for all writers.
fn write_mode(stores: &[Store]) -> WriteMode {
    stores
        .first()
        .map_or_else(|| WriteMode { name: "none", reason: String::new() }, |store| store.write_mode().clone())
}

fn store_error(config: &CollectorConfig, source: StoreError) -> CollectorStartError {
    CollectorStartError::Store { store: config.store.to_string(), source }
}
