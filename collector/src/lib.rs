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

pub mod clock;
pub mod commit;
pub mod config;
pub mod control;
pub mod directory;
pub mod inbox;
pub mod ingest;
pub mod limits;
pub mod log;
pub mod query;
mod receiver;
mod stop;
pub mod store;
mod writer;

use std::fmt;
use std::thread::{Builder, JoinHandle};

pub use config::Config;
pub use writer::Totals;

use crate::clock::Clock;
use crate::control::{Control, NoDoor, Open};
use crate::directory::Directory;
use crate::inbox::Waker;
use crate::receiver::Receiver;
use crate::stop::Stop;
use crate::store::upkeep::Upkeep;
use crate::store::{Choice, Store, StoreError, StoreUrl};
use crate::writer::Writer;

/// A collector at work, until [`Collector::stop`].
#[derive(Debug)]
pub struct Collector {
    endpoint: String,
    doors: Vec<String>,
    choice: Choice,
    clock: Clock,
    stop: Stop,
    waker: Waker,
    receiver: JoinHandle<u64>,
    writers: Vec<JoinHandle<Totals>>,
    upkeep: Option<Upkeep>,
    control: Option<Control>,
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
    Control(NoDoor),
    /// The machine gives no more threads or descriptors.
    Machine(std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind { endpoint, .. } => write!(f, "cannot listen at {endpoint}"),
            Self::Store { store, .. } => write!(f, "cannot use the store {store}"),
            Self::Control(NoDoor { place, .. }) => {
                write!(
                    f,
                    "users cannot ask at {place}; see `control_socket` and `control` in the configuration"
                )
            }
            Self::Machine(_) => f.write_str("cannot start a thread"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Bind { source, .. } => Some(source),
            Self::Store { source, .. } => Some(source),
            Self::Control(NoDoor { source, .. }) => Some(source),
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
        let stores = open_stores(config)?;
        let choice = stores
            .first()
            .map(Store::choice)
            .unwrap_or(Choice { way: store::Way::Sqlite, why: String::new() });
        let cannot_bind = |source| StartError::Bind { endpoint: config.listen.clone(), source };
        let socket = receiver::bind(context, &config.listen).map_err(cannot_bind)?;
        let endpoint =
            socket.get_last_endpoint().map_err(cannot_bind)?.unwrap_or_else(|_| config.listen.clone());
        let open = Open::doors(&config.control).map_err(StartError::Control)?;
        let doors = open.places();
        let upkeep = Upkeep::start(config, choice.way)?;
        let waker = Waker::new().map_err(StartError::Machine)?;
        let (answer_sender, answers) = inbox::answers(waker.clone());
        let directory = Directory::default();
        let (mut inboxes, mut writers) = (Vec::new(), Vec::new());
        for store in stores {
            let (sender, inbox) = inbox::inbox(waker.clone());
            inboxes.push(sender);
            let (answers, directory) = (answer_sender.clone(), directory.clone());
            let writer = Writer::new(config.clone(), clock, stop.clone(), inbox, answers, directory, store);
            writers.push(spawn("writer", move || writer.run())?);
        }
        // The writers and control alone hold the answers' sender now: when the last has gone, the receiver goes.
        let control = Control::start(open, directory, answer_sender, clock).map_err(StartError::Machine)?;
        let (control, heard) = control.unzip();
        let receiver = Receiver {
            socket,
            waker: waker.clone(),
            inboxes,
            answers,
            control: heard,
            clock,
            stop: stop.clone(),
        };
        let receiver = spawn("receiver", move || receiver.run())?;
        Ok(Self { endpoint, doors, choice, clock, stop, waker, receiver, writers, upkeep, control })
    }

    /// Where agents can connect: the endpoint that was bound, with its real port.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Where users can ask: paths, and addresses with their real ports.
    pub fn doors(&self) -> &[String] {
        &self.doors
    }

    /// How samples are written, and why.
    pub const fn choice(&self) -> &Choice {
        &self.choice
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
        if let Some(upkeep) = self.upkeep {
            broken |= upkeep.stop().is_err();
        }
        if broken { Err(Broken) } else { Ok(totals) }
    }
}

fn open_stores(config: &Config) -> Result<Vec<Store>, StartError> {
    let writers = match config.store {
        StoreUrl::Sqlite(_) => 1,
        StoreUrl::Postgres(_) => config.writers.max(1),
    };
    let open = |_| Store::open(&config.store, config.timescaledb);
    let stores = (0..writers).map(open).collect::<Result<_, _>>();
    stores.map_err(|source| StartError::Store { store: config.store.to_string(), source })
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, StartError> {
    Builder::new().name(name.to_owned()).spawn(work).map_err(StartError::Machine)
}
