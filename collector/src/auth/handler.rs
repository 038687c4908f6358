//! Thread that answers libzmq's authentication requests.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;
use std::time::Duration;

use polymeter_proto::key::KeyFileError;
use polymeter_service::clock::Clock;
use polymeter_service::key_files::KeysError;
use polymeter_service::log_throttle::LogThrottle;
use tracing::warn;
use zmq::{Context, DONTWAIT, POLLIN, PollItem, Socket};

use super::authorised::AuthorisedKeys;
use super::handshake::{self, HandshakeFailure, MonitorEvent};
use super::key_directory::{KeyDirectory, NodesByKey};
use super::zap;
use crate::metrics::Metrics;
use crate::waker::Waker;
use crate::{limits, thread};

#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthError {
    #[error("cannot create the authentication socket")]
    Socket(#[source] zmq::Error),
    #[error("cannot use the keys")]
    Keys(#[source] KeysError),
    #[error("cannot start the authentication thread")]
    Thread(#[source] std::io::Error),
}

/// Must outlive the socket that it guards: the thread ends when this is dropped and the socket is closed.
#[derive(Debug)]
pub(crate) struct AuthHandler {
    waker: Waker,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) struct AuthOptions<'a> {
    pub(crate) context: &'a Context,
    pub(crate) guarded: &'a Socket,
    /// Directory of authorised keys, and `bind_node_to_key`; none without keys.
    pub(crate) authorised: Option<(PathBuf, bool)>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Clock,
}

impl AuthHandler {
    /// Starts the thread. From then on connections are authenticated, if there are keys, and failures are
    /// counted.
    ///
    /// Fails, too, if other users can access the directory.
    pub(crate) fn start(options: AuthOptions<'_>) -> Result<(Self, Option<Arc<AuthorisedKeys>>), AuthError> {
        let monitor = monitor(options.context, options.guarded).map_err(AuthError::Socket)?;
        let zap = match options.authorised {
            None => None,
            Some((directory, bind_node_to_key)) => {
                let socket = zap_socket(options.context, options.guarded).map_err(AuthError::Socket)?;
                let keys = Arc::new(AuthorisedKeys::new(bind_node_to_key).map_err(AuthError::Thread)?);
                Some(Zap { socket, directory: KeyDirectory::new(directory), keys })
            }
        };
        let waker = Waker::new().map_err(AuthError::Thread)?;
        let ends = Arc::new(AtomicBool::new(false));
        let mut worker = Worker {
            zap,
            monitor,
            throttle: LogThrottle::new(limits::LOG_INTERVAL, limits::LOG_MESSAGES),
            metrics: options.metrics,
            clock: options.clock,
            waker: waker.clone(),
            ends: Arc::clone(&ends),
            is_socket_closed: false,
        };
        worker.read_keys().map_err(|error| AuthError::Keys(KeysError::File(error)))?;
        let keys = worker.zap.as_ref().map(|zap| Arc::clone(&zap.keys));
        let thread = thread::spawn("auth", move || worker.run()).map_err(AuthError::Thread)?;
        Ok((Self { waker, ends, thread: Some(thread) }, keys))
    }
}

impl Drop for AuthHandler {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        self.waker.wake();
        // A panic of the thread was reported when it occurred.
        self.thread.take().map(JoinHandle::join);
    }
}

fn zap_socket(context: &Context, guarded: &Socket) -> zmq::Result<Socket> {
    let socket = context.socket(zmq::REP)?;
    socket.set_linger(0)?;
    socket.bind(zap::ENDPOINT)?;
    guarded.set_zap_domain(zap::DOMAIN)?;
    Ok(socket)
}

/// Socket on which libzmq reports events of the connections of `guarded`.
fn monitor(context: &Context, guarded: &Socket) -> zmq::Result<Socket> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let endpoint = format!("inproc://polymeter-auth-{}", COUNT.fetch_add(1, Relaxed));
    guarded.monitor(&endpoint, handshake::EVENTS)?;
    let monitor = context.socket(zmq::PAIR)?;
    monitor.set_linger(0)?;
    monitor.connect(&endpoint)?;
    Ok(monitor)
}

struct Worker {
    zap: Option<Zap>,
    monitor: Socket,
    throttle: LogThrottle,
    metrics: Arc<Metrics>,
    clock: Clock,
    waker: Waker,
    ends: Arc<AtomicBool>,
    is_socket_closed: bool,
}

struct Zap {
    socket: Socket,
    directory: KeyDirectory,
    keys: Arc<AuthorisedKeys>,
}

impl Worker {
    fn run(mut self) {
        let mut ends_since = None;
        loop {
            self.waker.clear();
            self.work();
            if self.ends.load(Relaxed) {
                // libzmq's I/O thread, and with it every socket, waits until the last report is read.
                let since = *ends_since.get_or_insert(self.now());
                if self.is_socket_closed || self.now().saturating_sub(since) > limits::AUTH_STOP_TIMEOUT {
                    return;
                }
            }
            if let Err(zmq::Error::ETERM | zmq::Error::ENOTSOCK) = self.wait() {
                return;
            }
        }
    }

    fn wait(&self) -> zmq::Result<()> {
        let mut items =
            vec![PollItem::from_fd(self.waker.raw_fd(), POLLIN), self.monitor.as_poll_item(POLLIN)];
        items.extend(self.zap.as_ref().map(|zap| zap.socket.as_poll_item(POLLIN)));
        let timeout_ms = i64::try_from(limits::KEYS_CHECK_INTERVAL.as_millis()).unwrap_or(i64::MAX);
        zmq::poll(&mut items, timeout_ms).map(drop)
    }

    fn work(&mut self) {
        if let Err(error) = self.read_keys()
            && self.throttle.allows("directory", self.now())
        {
            warn!(%error, remedy = "correct it; until then no agent is authorised", "cannot use the authorised keys");
        }
        for _ in 0..limits::AUTH_BURST {
            let Ok(event) = self.monitor.recv_multipart(DONTWAIT) else { break };
            match event.first().and_then(|part| handshake::parse(part)) {
                Some(MonitorEvent::Failed(failure)) => self.report(failure),
                Some(MonitorEvent::SocketClosed) => self.is_socket_closed = true,
                None => {}
            }
        }
        for _ in 0..limits::AUTH_BURST {
            if !self.answer() {
                break;
            }
        }
    }

    fn now(&self) -> Duration {
        self.clock.now().since_start
    }

    /// Logs only what the administrator can act on.
    fn report(&mut self, failure: HandshakeFailure) {
        self.metrics.refused_connections.add(failure.as_str(), 1);
        let Some((error, remedy)) = failure.explanation(self.zap.is_some()) else { return };
        if self.throttle.allows(failure.as_str(), self.now()) {
            warn!(error, remedy, "cannot accept a connection");
        }
    }

    fn read_keys(&mut self) -> Result<(), KeyFileError> {
        let Some(zap) = &mut self.zap else { return Ok(()) };
        let (nodes, result) = match zap.directory.changed(self.clock.now()) {
            Ok(None) => return Ok(()),
            Ok(Some(nodes)) => (nodes, Ok(())),
            Err(error) => (NodesByKey::new(), Err(error)),
        };
        self.metrics.authorised_keys.set(i64::try_from(nodes.len()).unwrap_or(i64::MAX));
        zap.keys.replace(nodes);
        result
    }

    fn answer(&mut self) -> bool {
        let Some(zap) = &self.zap else { return false };
        let Ok(parts) = zap.socket.recv_multipart(DONTWAIT) else { return false };
        let request = zap::parse(&parts);
        let authorised = request.as_ref().filter(|request| zap.keys.node(&request.key).is_some());
        let user_id = authorised.map(|request| zap.keys.user_id(&request.key));
        // A peer that has disconnected needs no answer.
        zap.socket.send_multipart(zap::answer(&parts, user_id.as_deref()), DONTWAIT).ok();
        if user_id.is_some() {
            self.metrics.accepted_connections.inc();
            return true;
        }
        self.metrics.refused_connections.add(HandshakeFailure::UnknownKey.as_str(), 1);
        let Some(request) = request else { return true };
        let directory = zap.directory.path().display().to_string();
        if self.throttle.allows(&*request.key.to_string(), self.now()) {
            let peer = peer_address(&request.address);
            warn!(
                error = %format_args!("its key {} is not authorised", request.key),
                remedy = %format_args!("to accept the agent, copy its public key to {directory}/NODE.pub"),
                peer,
                "cannot accept a connection of an agent"
            );
        }
        true
    }
}

fn peer_address(address: &str) -> String {
    match address.parse::<IpAddr>() {
        // An IPv6 socket reports IPv4 addresses in mapped form.
        Ok(address) => address.to_canonical().to_string(),
        Err(_) if address.is_empty() => "this machine".to_owned(),
        Err(_) => address.chars().take(100).collect(),
    }
}
