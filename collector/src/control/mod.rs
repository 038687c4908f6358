//! Control of whole jobs: a user's request is sent to all agents of a job. The answer contains the answer of
//! each agent.
//!
//! ```text
//! users --unix_listener, munge_listener--> coordinator --answers--> receiver --ROUTER--> agents
//!                                             ^                        |
//!                                             +------- answers --------+
//! ```
//!
//! Requests about jobs are in the store (`request_store`), so that they reach the agents of all collectors,
//! and survive this one.
//!
//! The kernel authenticates users of this machine, munged those of other machines. Control has its own
//! thread, so that no request delays a sample.

mod agent_requests;
mod answer_budget;
mod clock_probe;
mod connection_limits;
mod coordinator;
mod demand_table;
mod demands;
pub(crate) mod firings;
mod forwarding;
mod gathering;
mod job_requests;
mod line_io;
mod links;
pub mod munge;
mod munge_listener;
pub(crate) mod node_outcome;
mod nonce;
mod notice_choices;
mod pending_requests;
mod permission;
mod request_expiry;
mod request_store;
mod shared_demands;
mod targets;
mod unix_listener;

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::{Builder, JoinHandle};

use polymeter_api::{ControlRequest, TokenService};
use polymeter_proto::control::{Refusal, RoutedRequest};
use polymeter_service::clock::Clock;
use polymeter_service::unix_socket;
use polymeter_store::{FiringTable, StoreUrl, TableThread};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::{error, warn};

use self::coordinator::Coordinator;
use self::firings::{FiringReceiver, FiringSender};
pub(crate) use self::links::CoordinatorLinks;
use self::munge::Unmunge;
use self::node_outcome::{OutcomeReport, OutcomeSender};
pub(crate) use self::notice_choices::NoticeChoiceService;
use self::request_store::RequestStore;
use crate::clock_offsets::ClockOffsets;
use crate::limits::{self, ReadTimeouts};
use crate::notices::{NoticedReceiver, noticed_queue};
use crate::reading::ReadSessions;
use crate::session_messages::AgentAnswer;

/// Checks that a line is a request for agents. They may still refuse it.
pub fn check(line: &[u8]) -> Result<(), Refusal> {
    RoutedRequest::parse(line).map(drop)
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControlConfig {
    /// Unix socket for this machine; none if there is no such listener.
    pub socket: Option<PathBuf>,
    pub network: Option<NetworkConfig>,
    /// User who may report final states of jobs, besides root.
    pub scheduler_user: Option<String>,
    pub read_timeouts: ReadTimeouts,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkConfig {
    /// HOST:PORT
    pub address: String,
    pub unmunge: Unmunge,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot open the control endpoint {place} (set by `control_socket` or `control_listen`)")]
pub struct ListenError {
    /// Path or address.
    pub place: String,
    pub source: io::Error,
}

#[derive(Debug, Default)]
pub(crate) struct Listeners {
    local: Option<UnixListener>,
    network: Option<(TcpListener, Unmunge)>,
    scheduler_uid: Option<u32>,
}

/// None for a user that this machine does not know, which has no rights.
fn uid_of(name: &str) -> Option<u32> {
    let found = nix::unistd::User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    if found.is_none() {
        warn!(user = %name, "cannot find `scheduler_user`: this machine has no such user");
    }
    found
}

type Outcomes = (OutcomeSender, Receiver<OutcomeReport>);

/// Queues of final states of jobs, and of triggers that fired; of those that are to be noticed, if there are
/// notices.
pub(crate) fn queues(
    has_notices: bool,
) -> (Outcomes, (FiringSender, FiringReceiver), Option<NoticedReceiver>) {
    let (sender, noticed) = has_notices.then(noticed_queue).unzip();
    (node_outcome::queue(), firings::queue(sender), noticed)
}

/// Name for this run of the program. Fails if the system provides no random bytes.
pub(crate) fn new_id() -> io::Result<String> {
    nonce::nonce()
}

impl Listeners {
    pub(crate) fn open(config: &ControlConfig) -> Result<Self, ListenError> {
        let local = config.socket.as_ref().map(|path| {
            unix_socket::listen(path)
                .map_err(|source| ListenError { place: path.display().to_string(), source })
        });
        let network = config.network.as_ref().map(|network| {
            let listener = munge_listener::listen(&network.address);
            let listener =
                listener.map_err(|source| ListenError { place: network.address.clone(), source })?;
            Ok((listener, network.unmunge.clone()))
        });
        let scheduler_uid = config.scheduler_user.as_deref().and_then(uid_of);
        Ok(Self { local: local.transpose()?, network: network.transpose()?, scheduler_uid })
    }

    /// Paths, and addresses with their actual ports.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let local = self.local.as_ref().and_then(|listener| listener.local_addr().ok());
        let local = local.and_then(|address| Some(address.as_pathname()?.display().to_string()));
        let network = self.network.as_ref().and_then(|(listener, _)| listener.local_addr().ok());
        local.into_iter().chain(network.map(|address| format!("tcp://{address}"))).collect()
    }

    fn is_empty(&self) -> bool {
        self.local.is_none() && self.network.is_none()
    }
}

/// Runs until [`Control::stop`].
#[derive(Debug)]
pub(crate) struct Control {
    thread: JoinHandle<()>,
    sessions: ReadSessions,
    stop: oneshot::Sender<()>,
}

pub(crate) type Started = (Control, mpsc::Sender<AgentAnswer>);

#[derive(Debug)]
pub(crate) struct ApiRequests {
    pub(crate) queue: mpsc::Receiver<ControlRequest>,
    pub(crate) tokens: TokenService,
    pub(crate) clock_offsets: ClockOffsets,
    pub(crate) is_served: bool,
}

impl Control {
    /// Starts the thread. It measures the clocks of the agents even without users. Requests are kept in the
    /// store if there is a listener, the HTTP API, or another collector whose requests it could forward.
    pub(crate) fn start(
        listeners: Listeners,
        links: CoordinatorLinks,
        sessions: impl FnOnce() -> io::Result<ReadSessions>,
        api: ApiRequests,
        notices: NoticeChoiceService,
        (store, collector_id): (&StoreUrl, &str),
        clock: Clock,
    ) -> io::Result<Started> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let sessions = sessions()?;
        let (stop, stopped) = oneshot::channel();
        let (answers, received) = mpsc::channel(limits::CONTROL_ANSWERS);
        let has_requests = !listeners.is_empty() || api.is_served || store.has_parallel_writers();
        let firing_table = TableThread::start("triggers", store.clone(), FiringTable::open)?;
        let store = RequestStore::start(store, collector_id, clock)?;
        let CoordinatorLinks { directory, receiver, outcomes, fired, others } = links;
        let links = (directory, receiver, outcomes, others);
        let coordinator = Coordinator::new(links, clock, store, listeners.scheduler_uid, api.tokens, notices);
        let coordinator = Arc::new(coordinator);
        let sessions_of_listeners = sessions.clone();
        let thread = Builder::new().name("control".to_owned()).spawn(move || {
            runtime.block_on(async {
                let jobs = Arc::clone(coordinator.jobs());
                let leaving = Arc::clone(&jobs);
                if has_requests {
                    tokio::spawn(jobs.keep());
                }
                tokio::spawn(firings::serve(fired, Arc::clone(coordinator.jobs()), firing_table));
                tokio::spawn(coordinator.clock_probe().run(api.clock_offsets));
                tokio::spawn(Arc::clone(coordinator.demands()).run());
                tokio::select! {
                    () = serve(listeners, coordinator, (received, api.queue), sessions_of_listeners) => {}
                    // The stop was requested, or its sender was dropped.
                    _ = stopped => {}
                }
                // Without an answer the other collectors notice it some seconds later.
                if has_requests {
                    timeout(limits::LEAVE_TIMEOUT, leaving.leave()).await.ok();
                }
            });
        })?;
        Ok((Self { thread, sessions, stop }, answers))
    }

    /// Ends the thread and all sessions of reading. Returns false if the thread panicked.
    pub(crate) fn stop(self) -> bool {
        self.sessions.stop();
        // This fails only if the thread has already ended.
        self.stop.send(()).ok();
        self.thread.join().is_ok()
    }
}

async fn serve(
    listeners: Listeners,
    coordinator: Arc<Coordinator>,
    (mut answers, mut api): (mpsc::Receiver<AgentAnswer>, mpsc::Receiver<ControlRequest>),
    sessions: ReadSessions,
) {
    if let Some(listener) = listeners.local {
        tokio::spawn(guard(unix_listener::serve(listener, Arc::clone(&coordinator), sessions.clone())));
    }
    if let Some((listener, unmunge)) = listeners.network {
        tokio::spawn(guard(munge_listener::serve(listener, unmunge, Arc::clone(&coordinator), sessions)));
    }
    loop {
        tokio::select! {
            answer = answers.recv() => match answer {
                Some(answer) => coordinator.take_answer(answer),
                None => return,
            },
            // Without the API its end of the queue is closed, and this branch is never taken again.
            Some(ControlRequest { uid, line, reply }) = api.recv() => {
                let coordinator = Arc::clone(&coordinator);
                // A client that is gone needs no answer.
                tokio::spawn(async move { reply.send(coordinator.answer(uid, &line).await).ok() });
            }
            sessions = coordinator.changed_sessions() => coordinator.jobs().sessions_connected(sessions),
        }
    }
}

async fn guard(listener: impl Future<Output = io::Result<()>>) {
    if let Err(error) = listener.await {
        error!(%error, "control listener stopped");
    }
}
