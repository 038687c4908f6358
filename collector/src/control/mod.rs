//! Control of whole jobs: what users ask here reaches all agents of a job, and the answer says what each of them says.
//!
//! ```text
//! users --local, network--> coordinator --answers--> receiver --ROUTER--> agents
//!                            ^                    |
//!                            +------ heard -------+
//! ```
//!
//! Who asks is said by the kernel on this machine, and by munged for others. A thread of its own, so that nobody who asks
//! delays a sample.

pub mod answer;
mod connection_limits;
mod coordinator;
mod line_io;
pub mod munge;
mod munge_listener;
pub(crate) mod outcome;
pub mod payload;
mod pending_file;
mod pending_requests;
mod request;
mod unix_listener;

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use tokio::sync::{mpsc, oneshot};

use self::answer::Refusal;
use self::coordinator::Coordinator;
use self::munge::Unmunge;
use self::outcome::OutcomeSender;
use self::pending_file::PendingFile;
#[cfg(fuzzing)]
pub use self::pending_file::requests;
use polymeter_service::clock::Clock;
use tracing::{error, warn};

use crate::agents::AgentDirectory;
use crate::limits;
use crate::messages::AgentAnswer;
use crate::queues::OutgoingSender;

/// Whether a line is a request that would be passed on to agents; what they make of it is another matter.
///
/// # Errors
/// What is wrong with it.
pub fn check(line: &[u8]) -> Result<(), Refusal> {
    request::parse(line).map(drop)
}

/// Where users ask.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControlConfig {
    /// The Unix socket for this machine; none for no such door.
    pub socket: Option<PathBuf>,
    /// The door for other machines; none for no such door.
    pub network: Option<NetworkConfig>,
    /// The file for requests that agents have not received yet; none if they are lost when the collector stops.
    pub pending_requests_file: Option<PathBuf>,
    /// The user who may tell how jobs ended, beside root.
    pub scheduler_user: Option<String>,
}

/// The door for other machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkConfig {
    /// Where it is: HOST:PORT.
    pub address: String,
    /// How its requests are checked.
    pub unmunge: Unmunge,
}

/// An endpoint for users that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for users at {place}, which `control_socket` or `control_listen` sets")]
pub struct ListenError {
    /// The path or address.
    pub place: String,
    /// The reason.
    pub source: io::Error,
}

/// The doors, opened.
#[derive(Debug, Default)]
pub(crate) struct Open {
    local: Option<UnixListener>,
    network: Option<(TcpListener, Unmunge)>,
    requests: Option<PathBuf>,
    scheduler_uid: Option<u32>,
}

/// The rest of the collector, as control knows it.
#[derive(Debug)]
pub(crate) struct CoordinatorLinks {
    /// Which agent tracks which job.
    pub(crate) directory: AgentDirectory,
    /// What agents are to hear.
    pub(crate) receiver: OutgoingSender,
    /// How jobs ended.
    pub(crate) outcomes: OutcomeSender,
}

/// The numeric id of a user. One that this machine does not know may nothing.
fn uid_of(name: &str) -> Option<u32> {
    let found = nix::unistd::User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    if found.is_none() {
        warn!(error = "this machine has no such user", user = name, "cannot use `scheduler_user`");
    }
    found
}

impl Open {
    /// Opens what is configured.
    pub(crate) fn doors(config: &ControlConfig) -> Result<Self, ListenError> {
        let local = config.socket.as_ref().map(|path| {
            unix_listener::listen(path)
                .map_err(|source| ListenError { place: path.display().to_string(), source })
        });
        let network = config.network.as_ref().map(|network| {
            let listener = munge_listener::listen(&network.address);
            let listener =
                listener.map_err(|source| ListenError { place: network.address.clone(), source })?;
            Ok((listener, network.unmunge.clone()))
        });
        let requests = config.pending_requests_file.clone();
        let scheduler_uid = config.scheduler_user.as_deref().and_then(uid_of);
        Ok(Self { local: local.transpose()?, network: network.transpose()?, requests, scheduler_uid })
    }

    /// Where users ask: paths, and addresses with their real ports.
    pub(crate) fn places(&self) -> Vec<String> {
        let local = self.local.as_ref().and_then(|listener| listener.local_addr().ok());
        let local = local.and_then(|address| Some(address.as_pathname()?.display().to_string()));
        let network = self.network.as_ref().and_then(|(listener, _)| listener.local_addr().ok());
        local.into_iter().chain(network.map(|address| format!("tcp://{address}"))).collect()
    }

    fn is_empty(&self) -> bool {
        self.local.is_none() && self.network.is_none()
    }
}

/// Control's thread, at work until [`Control::stop`].
#[derive(Debug)]
pub(crate) struct Control {
    thread: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

/// Control, and where the receiver hands it what agents answer.
pub(crate) type Started = (Control, mpsc::Sender<AgentAnswer>);

impl Control {
    /// Starts the thread; none where there is no door.
    pub(crate) fn start(doors: Open, others: CoordinatorLinks, clock: Clock) -> io::Result<Option<Started>> {
        if doors.is_empty() {
            return Ok(None);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let (heard, hears) = mpsc::channel(limits::CONTROL_ANSWERS);
        let pending_file = doors.requests.clone().map(PendingFile::at);
        let coordinator = Arc::new(Coordinator::new(others, clock, pending_file, doors.scheduler_uid));
        let work = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(doors, coordinator, hears) => {}
                    // Either way: whoever holds the other end wishes the stop, or has gone.
                    _ = stopped => {}
                }
            });
        };
        let thread = Builder::new().name("control".to_owned()).spawn(work)?;
        Ok(Some((Self { thread, stop }, heard)))
    }

    /// Ends the thread; says whether it ended well.
    pub(crate) fn stop(self) -> bool {
        // A thread that has ended needs no call.
        self.stop.send(()).ok();
        self.thread.join().is_ok()
    }
}

async fn serve(doors: Open, coordinator: Arc<Coordinator>, mut hears: mpsc::Receiver<AgentAnswer>) {
    if let Some(listener) = doors.local {
        tokio::spawn(guard(unix_listener::serve(listener, Arc::clone(&coordinator))));
    }
    if let Some((listener, unmunge)) = doors.network {
        tokio::spawn(guard(munge_listener::serve(listener, unmunge, Arc::clone(&coordinator))));
    }
    loop {
        tokio::select! {
            heard = hears.recv() => match heard {
                Some(heard) => coordinator.hear(heard),
                None => return,
            },
            news = coordinator.news() => coordinator.welcome(news),
        }
    }
}

async fn guard(door: impl Future<Output = io::Result<()>>) {
    if let Err(error) = door.await {
        error!(%error, "control listener stopped");
    }
}
