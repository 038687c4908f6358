//! The thread of the API: its socket, and the connections on it.

mod connection;
mod listener;
mod unparsed;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tracing::error;

use self::listener::Socket;
pub use self::listener::{ApiListener, ListenError};
use crate::access::Peer;
use crate::config::{ApiConfig, Listen};
use crate::limits;
use crate::links::Links;
use crate::live::LiveValues;
use crate::readers::Readers;
use crate::routes::{Shared, router};

/// The running API, until [`Api::stop`].
#[derive(Debug)]
pub struct Api {
    address: Listen,
    thread: JoinHandle<()>,
    readers: Readers,
    live: LiveValues,
    stop: oneshot::Sender<()>,
}

impl Api {
    /// Starts the thread.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
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
        let work = move || {
            lower_priority();
            serve(runtime, socket, shared, stopped);
        };
        let thread = std::thread::Builder::new().name("api".to_owned()).spawn(work)?;
        Ok(Self { address, thread, readers, live, stop })
    }

    /// Returns the address, with its actual port.
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

async fn accept(socket: Socket, shared: Arc<Shared>) -> io::Result<()> {
    let router = router(&shared);
    let places = Arc::new(Semaphore::new(limits::CONNECTIONS));
    match socket {
        Socket::Unix(listener) => {
            accept_unix(UnixListener::from_std(listener)?, &shared, &router, &places).await
        }
        Socket::Tcp(listener) => {
            accept_tcp(TcpListener::from_std(listener)?, &shared, &router, &places).await
        }
    }
    Ok(())
}

/// Returns a place for a connection.
async fn place(places: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    // The semaphore is never closed.
    Arc::clone(places).acquire_owned().await.ok()
}

async fn accept_unix(listener: UnixListener, shared: &Shared, router: &Router, places: &Arc<Semaphore>) {
    let mut of_users: HashMap<u32, Arc<()>> = HashMap::new();
    let refusals = Arc::new(Semaphore::new(limits::REFUSALS));
    while let Some(place) = place(places).await {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(limits::ACCEPT_DELAY).await;
            continue;
        };
        let Ok(uid) = stream.peer_cred().map(|peer| peer.uid()) else { continue };
        of_users.retain(|_, connections| Arc::strong_count(connections) > 1);
        let of_user = Arc::clone(of_users.entry(uid).or_default());
        let peer = Peer::Unix(uid);
        // One reference belongs to the list, and one is `of_user`.
        let is_many = Arc::strong_count(&of_user) > limits::CONNECTIONS_PER_USER + 1;
        let metrics = &shared.services.links.metrics;
        if is_many && !shared.authenticator.is_proxy(peer) {
            metrics.refused_connections.inc();
            if let Ok(refusal) = Arc::clone(&refusals).try_acquire_owned() {
                tokio::spawn(async move {
                    connection::refuse(stream).await;
                    drop((place, refusal));
                });
            }
            continue;
        }
        let (router, open) = (router.clone(), metrics.open_connection());
        tokio::spawn(async move {
            connection::serve(stream, peer, router).await;
            drop((place, of_user, open));
        });
    }
}

async fn accept_tcp(listener: TcpListener, shared: &Shared, router: &Router, places: &Arc<Semaphore>) {
    while let Some(place) = place(places).await {
        let Ok((stream, address)) = listener.accept().await else {
            tokio::time::sleep(limits::ACCEPT_DELAY).await;
            continue;
        };
        let peer = Peer::Tcp(address.ip().to_canonical());
        if !shared.authenticator.may_connect(peer) {
            continue;
        }
        // Small answers should not wait for one another.
        stream.set_nodelay(true).ok();
        let (router, open) = (router.clone(), shared.services.links.metrics.open_connection());
        tokio::spawn(async move {
            connection::serve(stream, peer, router).await;
            drop((place, open));
        });
    }
}
