//! Thread of the API: its socket, and the connections on it.

mod connection;
mod listener;
mod places;
mod unparsed;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot};
use tracing::error;

use self::listener::Socket;
pub use self::listener::{ApiListener, ListenError};
use self::places::Places;
use crate::access::{Client, Peer};
use crate::config::{ApiConfig, Listen};
use crate::limits;
use crate::links::Links;
use crate::live::LiveValues;
use crate::readers::Readers;
use crate::routes::{Shared, router};

/// Runs until [`Api::stop`].
#[derive(Debug)]
pub struct Api {
    address: Listen,
    thread: JoinHandle<()>,
    readers: Readers,
    live: LiveValues,
    stop: oneshot::Sender<()>,
}

impl Api {
    pub fn start(config: &ApiConfig, listener: ApiListener, links: Links) -> io::Result<Self> {
        let (readers, live) = (Readers::new(links.clone(), &config.limits), links.live.clone());
        let runtime = Builder::new_current_thread()
            .enable_all()
            .thread_name("api-reader")
            // Beside the reads: the look-ups of users, and those that report their cancellation.
            .max_blocking_threads(config.limits.readers + 2)
            .on_thread_start(lower_priority)
            .build()?;
        let shared = Arc::new(Shared::new(config, links, readers.clone()));
        let ApiListener { socket, address } = listener;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("api".to_owned()).spawn(move || {
            lower_priority();
            serve(runtime, socket, shared, stopped);
        })?;
        Ok(Self { address, thread, readers, live, stop })
    }

    pub const fn address(&self) -> &Listen {
        &self.address
    }

    /// Closes all connections and ends the thread. Returns false if it panicked.
    pub fn stop(self) -> bool {
        self.live.stop();
        self.readers.stop();
        // This fails only if the thread has already ended.
        self.stop.send(()).ok();
        self.thread.join().is_ok()
    }
}

/// Lets ingest come before the calling thread. Without the permission to do so nothing changes.
pub fn lower_priority() {
    rustix::process::nice(limits::NICENESS).ok();
}

fn serve(runtime: Runtime, socket: Socket, shared: Arc<Shared>, stopped: oneshot::Receiver<()>) {
    let (readers, quota) = (shared.services.readers.clone(), Arc::clone(&shared.quota));
    runtime.block_on(async {
        tokio::select! {
            served = accept(socket, shared) => if let Err(error) = served {
                error!(%error, "HTTP API stopped");
            },
            // The stop was requested, or its sender was dropped.
            _ = stopped => {}
        }
        // Streams end by themselves, with an event that says why.
        let ended = async {
            while quota.streams() > 0 {
                tokio::time::sleep(limits::STREAM_STOP_INTERVAL).await;
            }
        };
        tokio::time::timeout(limits::STREAM_STOP_TIMEOUT, ended).await.ok();
    });
    // Connections to PostgreSQL must not be closed by an asynchronous thread.
    readers.stop();
    runtime.shutdown_timeout(limits::STOP_TIMEOUT);
}

struct Entrance {
    shared: Arc<Shared>,
    router: Router,
    places: Arc<Places>,
    refusals: Arc<Semaphore>,
}

async fn accept(socket: Socket, shared: Arc<Shared>) -> io::Result<()> {
    let places = Places::new(shared.services.links.metrics.displaced_connections.clone());
    let refusals = Arc::new(Semaphore::new(limits::REFUSALS));
    let entrance = Entrance { router: router(&shared), places, refusals, shared };
    match socket {
        Socket::Unix(listener) => accept_unix(UnixListener::from_std(listener)?, &entrance).await,
        Socket::Tcp(listener) => accept_tcp(TcpListener::from_std(listener)?, &entrance).await,
    }
}

async fn accept_unix(listener: UnixListener, entrance: &Entrance) -> ! {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if let Ok(peer) = stream.peer_cred() {
                    entrance.admit(stream, Peer::Unix(peer.uid()));
                }
            }
            Err(_) => tokio::time::sleep(limits::ACCEPT_DELAY).await,
        }
    }
}

async fn accept_tcp(listener: TcpListener, entrance: &Entrance) -> ! {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let peer = Peer::Tcp(address.ip().to_canonical());
                if entrance.shared.authenticator.may_connect(peer) {
                    // Small answers should not wait for one another.
                    stream.set_nodelay(true).ok();
                    entrance.admit(stream, peer);
                }
            }
            Err(_) => tokio::time::sleep(limits::ACCEPT_DELAY).await,
        }
    }
}

impl Entrance {
    fn admit<S>(&self, stream: S, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let metrics = &self.shared.services.links.metrics;
        let client = Client::new(peer);
        match self.places.take(&client, self.shared.authenticator.trust(peer)) {
            Ok(place) => {
                let (router, open) = (self.router.clone(), metrics.open_connection());
                tokio::spawn(async move {
                    connection::serve(stream, client, router).await;
                    drop((place, open));
                });
            }
            Err(problem) => {
                metrics.refused_connections.inc();
                if let Ok(refusal) = Arc::clone(&self.refusals).try_acquire_owned() {
                    tokio::spawn(async move {
                        connection::refuse(stream, problem).await;
                        drop(refusal);
                    });
                }
            }
        }
    }
}
