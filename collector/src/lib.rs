//! Polymeter's collector: takes frames from agents, stores every sample once, and acknowledges after the commit.
//!
//! ```text
//! agents --ROUTER--> receiver --inboxes--> writers (ingest, gather, commit) --> store <-- query
//!            ^                                |
//!            +-------------- answers ---------+
//! users --> control --> receiver --> agents, and back the same way
//! ```
//!
//! The invariant: what is acknowledged is committed, and what is committed is committed once. Frames that are not
//! acknowledged are the agents' to keep, so that the collector holds nothing that it could not lose.

pub mod check;
mod clocks;
pub mod config;
pub mod control;
pub mod directory;
mod fair_queue;
#[cfg(fuzzing)]
pub mod fuzzing;
mod gate;
pub mod inbox;
pub mod ingest;
pub mod keys;
pub mod limits;
pub mod log;
mod memory;
mod metrics;
mod quiet;
mod receiver;
pub mod refusal;
mod settings;
mod stop;
mod writer;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

pub use config::Config;
use polymeter_proto::key::KeyPair;
pub use polymeter_service::clock;
pub use writer::Totals;

use crate::clock::Clock;
use crate::clocks::Clocks;
use crate::control::{Control, CoordinatorLinks, ListenError, Open};
use crate::directory::Directory;
use crate::gate::{Admission, Gate};
use crate::inbox::Waker;
use crate::keys::{KeyFiles, KeysError};
use crate::metrics::Metrics;
use crate::receiver::Receiver;
use crate::settings::SharedSettings;
use crate::stop::Stop;
use crate::writer::{Ways, Writer};
use polymeter_store::{Maintenance, OpenOptions, Store, StoreError, WriteMode};

/// A collector at work, until [`Collector::stop`].
#[derive(Debug)]
pub struct Collector {
    endpoint: String,
    doors: Vec<String>,
    write_mode: WriteMode,
    clock: Clock,
    stop: Stop,
    waker: Waker,
    receiver: JoinHandle<u64>,
    writers: Vec<JoinHandle<Totals>>,
    maintenance: Option<Maintenance>,
    control: Option<Control>,
    /// Let go after the receiver, whose socket it guards.
    gate: Option<Gate>,
    metrics: Option<metrics::Server>,
    config: Config,
    settings: SharedSettings,
}

/// Why a collector does not start.
#[derive(Debug)]
pub enum StartError {
    /// The endpoint cannot be bound.
    Bind {
        /// The endpoint.
        endpoint: String,
        /// ZeroMQ's reason.
        source: zmq::Error,
    },
    /// The store cannot be opened.
    Store {
        /// The store, without its password.
        store: String,
        /// Its reason.
        source: StoreError,
    },
    /// Users cannot be given a door.
    Control(ListenError),
    /// The keys cannot be used.
    Keys(KeysError),
    /// ZeroMQ does not make a socket as it is wanted.
    Socket {
        /// What it is for.
        what: &'static str,
        /// ZeroMQ's reason.
        source: zmq::Error,
    },
    /// The collector's own metrics cannot be served there.
    Metrics {
        /// Where.
        address: SocketAddr,
        /// The reason.
        source: std::io::Error,
    },
    /// The machine gives no more threads or descriptors.
    Machine(std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind { endpoint, .. } => write!(f, "cannot listen at {endpoint}"),
            Self::Store { store, .. } => write!(f, "cannot use the store {store}"),
            Self::Control(ListenError { place, .. }) => {
                write!(
                    f,
                    "users cannot ask at {place}; see `control_socket` and `control` in the configuration"
                )
            }
            Self::Keys(_) => f.write_str("the keys cannot be used"),
            Self::Socket { what, .. } => write!(f, "cannot make the socket of {what}"),
            Self::Metrics { address, .. } => write!(f, "cannot serve metrics at {address}"),
            Self::Machine(_) => f.write_str("cannot start a thread"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Bind { source, .. } => Some(source),
            Self::Store { source, .. } => Some(source),
            Self::Control(ListenError { source, .. }) => Some(source),
            Self::Keys(source) => Some(source),
            Self::Socket { source, .. } => Some(source),
            Self::Metrics { source, .. } => Some(source),
            Self::Machine(source) => Some(source),
        }
    }
}

/// A thread of the collector ended by a fault of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a thread of the collector ended by a fault of the program")
    }
}

impl std::error::Error for Broken {}

impl Collector {
    /// Opens the store, binds the endpoint and starts the threads. Inside of `context`, `inproc://` endpoints work.
    ///
    /// # Errors
    /// When the store or the endpoint cannot be opened; nothing runs then.
    pub fn start(config: &Config, context: &zmq::Context) -> Result<Self, StartError> {
        let (clock, stop) = (Clock::start(), Stop::default());
        let pair = config.keys.as_ref().map(KeyFiles::read).transpose().map_err(StartError::Keys)?;
        let stores = open_stores(config)?;
        let write_mode = stores.first().map_or_else(
            || WriteMode { name: "none", reason: String::new() },
            |store| store.write_mode().clone(),
        );
        let open = Open::doors(&config.control).map_err(StartError::Control)?;
        let doors = open.places();
        let waker = Waker::new().map_err(StartError::Machine)?;
        let (answer_sender, answers) = inbox::answers(waker.clone());
        let (inboxes, outlets): (Vec<_>, Vec<_>) = stores.iter().map(|_| inbox::inbox(waker.clone())).unzip();
        let depths = inboxes.iter().map(inbox::InboxSender::depth).collect();
        let metrics = Arc::new(Metrics::new(write_mode.to_string(), depths));
        // In this order, since what is named last is let go first if something fails below.
        let Listening { gate, admission, endpoint, socket } =
            listen(config, context, pair.as_ref(), (&metrics, clock))?;
        let maintenance = config
            .store
            .start_maintenance()
            .map_err(|source| StartError::Store { store: config.store.to_string(), source })?;
        let server =
            config.metrics_listen.map(|address| metrics::Server::start(address, Arc::clone(&metrics)));
        let server = server.transpose()?;
        let (directory, clocks) = (Directory::default(), Clocks::default());
        let settings = SharedSettings::new(config);
        let mut writers = Vec::new();
        // One writer stores how jobs ended; without control nobody tells.
        let (outcome_sender, outcomes) = control::outcome::queue();
        let mut outcomes = Some(outcomes).filter(|_| !doors.is_empty());
        for (number, ((store, inbox), counts)) in
            stores.into_iter().zip(outlets).zip(metrics.writers()).enumerate()
        {
            let (answers, directory) = (answer_sender.clone(), directory.clone());
            let (clocks, metrics, settings) = (clocks.clone(), Arc::clone(counts), settings.clone());
            let outcomes = outcomes.take();
            let ways = Ways { inbox, answers, directory, clocks, metrics, outcomes, settings };
            let writer = Writer::new(config.clone(), clock, stop.clone(), ways, store, number == 0);
            writers.push(spawn("writer", move || writer.run())?);
        }
        // The writers and control alone hold the answers' sender now: when the last has gone, the receiver goes.
        let coordinator_links =
            CoordinatorLinks { directory, receiver: answer_sender, outcomes: outcome_sender };
        let control = Control::start(open, coordinator_links, clock).map_err(StartError::Machine)?;
        let (control, heard) = control.unzip();
        let receiver = Receiver {
            socket,
            waker: waker.clone(),
            inboxes,
            answers,
            control: heard,
            clock,
            stop: stop.clone(),
            admission,
            metrics,
        };
        let receiver = spawn("receiver", move || receiver.run())?;
        Ok(Self {
            endpoint,
            doors,
            write_mode,
            clock,
            stop,
            waker,
            receiver,
            writers,
            maintenance,
            control,
            gate,
            metrics: server,
            config: config.clone(),
            settings,
        })
    }

    /// Where agents can connect: the endpoint that was bound, with its real port.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Where users can ask: paths, and addresses with their real ports.
    pub fn doors(&self) -> &[String] {
        &self.doors
    }

    /// Where the collector's own metrics are served, if anywhere, with the real port.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(metrics::Server::address)
    }

    /// How samples are written, and why.
    pub const fn write_mode(&self) -> &WriteMode {
        &self.write_mode
    }

    /// Puts into force what of `config` can change while the collector runs: `commit_interval`, `commit_rows` and
    /// `[clock]`. Returns the other keys whose values have changed: they count after a restart.
    pub fn reload(&self, config: &Config) -> Vec<&'static str> {
        self.settings.set(config);
        settings::fixed_changes(&self.config, config)
    }

    /// Takes what lies in the socket, commits and acknowledges it, and ends the threads. Takes no longer than
    /// [`limits::STOP_COMMIT`] or a little more, if the store is away.
    ///
    /// # Errors
    /// When a thread ended by a fault of the program.
    pub fn stop(self) -> Result<Totals, Broken> {
        self.stop.wish(self.clock.now().since_start);
        self.waker.wake();
        let mut totals = Totals::default();
        let mut broken = !self.control.is_none_or(Control::stop);
        for writer in self.writers {
            match writer.join() {
                Ok(of_one) => totals.add(&of_one),
                Err(_) => broken = true,
            }
        }
        match self.receiver.join() {
            Ok(refused) => totals.refused += refused,
            Err(_) => broken = true,
        }
        drop((self.gate, self.metrics));
        if let Some(maintenance) = self.maintenance {
            broken |= maintenance.stop().is_err();
        }
        if broken { Err(Broken) } else { Ok(totals) }
    }
}

/// A socket that is bound, and what guards it. The gate stands behind the socket, so that it is let go later.
struct Listening {
    socket: zmq::Socket,
    /// Where it is bound, with its real port.
    endpoint: String,
    gate: Option<Gate>,
    admission: Option<Arc<Admission>>,
}

/// Binds the socket for agents, after the gate has been set up: no connection may come before it can be judged.
fn listen(
    config: &Config,
    context: &zmq::Context,
    pair: Option<&KeyPair>,
    (metrics, clock): (&Arc<Metrics>, Clock),
) -> Result<Listening, StartError> {
    let cannot_bind = |source| StartError::Bind { endpoint: config.listen.clone(), source };
    let socket = receiver::make_socket(context, pair)
        .map_err(|source| StartError::Socket { what: "the receiver", source })?;
    let mut listening = Listening { socket, endpoint: config.listen.clone(), gate: None, admission: None };
    // Within one process there are no connections to be judged, and so no keys.
    if !config.listen.starts_with("inproc://") {
        let authorised =
            config.keys.as_ref().map(|keys| (keys.authorised_agents.clone(), config.bind_node_to_key));
        let guarded = &listening.socket;
        let plan = gate::Plan { context, guarded, authorised, metrics: Arc::clone(metrics), clock };
        let (gate, admission) = Gate::start(plan)?;
        (listening.gate, listening.admission) = (Some(gate), admission);
    }
    listening.socket.bind(&config.listen).map_err(cannot_bind)?;
    if let Ok(bound) = listening.socket.get_last_endpoint().map_err(cannot_bind)? {
        listening.endpoint = bound;
    }
    Ok(listening)
}

fn open_stores(config: &Config) -> Result<Vec<Store>, StartError> {
    let writers = if config.store.has_parallel_writers() { config.writers.max(1) } else { 1 };
    let open =
        |_| Store::open(&config.store, &OpenOptions { timescale: config.timescaledb, may_create: true });
    let stores = (0..writers).map(open).collect::<Result<_, _>>();
    stores.map_err(|source| StartError::Store { store: config.store.to_string(), source })
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, StartError> {
    Builder::new().name(name.to_owned()).spawn(work).map_err(StartError::Machine)
}
