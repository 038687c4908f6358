//! Thread that serves pages by HTTP. Requests are bounded in size, time and number.

use std::convert::Infallible;
use std::fmt;
use std::future::ready;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use polymeter_service::silent_connections::SilentConnections;
use polymeter_service::unix_socket;
use rustix::process::geteuid;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::{limits, thread};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageAddress {
    /// Unix socket for root and the collector's user.
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl fmt::Display for PageAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

pub(crate) trait Pages: Send + Sync + 'static {
    /// Name of the thread.
    const NAME: &'static str;
    const REQUEST_BYTES: usize;
    /// Limits one request and its answer.
    const TIMEOUT: Duration;
    const NICENESS: i32;

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>>;
}

/// Ends with its thread when it is dropped.
#[derive(Debug)]
pub(crate) struct PageServer {
    address: PageAddress,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl PageServer {
    pub(crate) fn start<P: Pages>(address: &PageAddress, pages: Arc<P>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (socket, address) = runtime.block_on(async { open(address) })?;
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(P::NAME, move || {
            rustix::process::nice(P::NICENESS).ok();
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = serve(socket, &pages) => {}
                }
            });
        })?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Includes the actual port.
    pub(crate) const fn address(&self) -> &PageAddress {
        &self.address
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic of the thread was reported when it occurred.
        self.thread.take().map(JoinHandle::join);
    }
}

/// Must be called within a runtime. Returns the address with the actual port, too.
fn open(address: &PageAddress) -> io::Result<(Socket, PageAddress)> {
    match address {
        PageAddress::Unix(path) => {
            let listener = UnixListener::from_std(unix_socket::listen(path)?)?;
            Ok((Socket::Unix(listener), address.clone()))
        }
        PageAddress::Tcp(address) => {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let bound = PageAddress::Tcp(listener.local_addr()?);
            Ok((Socket::Tcp(TcpListener::from_std(listener)?), bound))
        }
    }
}

async fn serve<P: Pages>(socket: Socket, pages: &Arc<P>) {
    // A request is answered as soon as it has arrived: a connection that is open waits for its client.
    let mut connections = SilentConnections::new(limits::HTTP_CONNECTIONS);
    loop {
        let pages = Arc::clone(pages);
        let accepted = match &socket {
            Socket::Unix(listener) => listener.accept().await.map(|(stream, _)| {
                let may_read = |uid| uid == 0 || uid == geteuid().as_raw();
                let is_permitted = stream.peer_cred().is_ok_and(|peer| may_read(peer.uid()));
                let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
                is_permitted.then(|| (peer, tokio::spawn(async move { handle(stream, &*pages).await })))
            }),
            Socket::Tcp(listener) => listener.accept().await.map(|(stream, peer)| {
                Some((peer.ip(), tokio::spawn(async move { handle(stream, &*pages).await })))
            }),
        };
        match accepted {
            Ok(Some((peer, task))) => {
                connections.add(peer, task.abort_handle());
                // A request that has arrived is answered before others can displace it.
                tokio::task::yield_now().await;
            }
            Ok(None) => {}
            // Probably no descriptor is free; an immediate retry would fail, too.
            Err(_) => tokio::time::sleep(limits::HTTP_TIMEOUT).await,
        }
    }
}

pub(crate) async fn handle<P: Pages>(stream: impl AsyncRead + AsyncWrite + Unpin, pages: &P) {
    let answer = service_fn(|request: Request<Incoming>| ready(Ok::<_, Infallible>(pages.answer(&request))));
    let mut http = http1::Builder::new();
    http.keep_alive(false).half_close(true).title_case_headers(true).max_buf_size(P::REQUEST_BYTES);
    // A client that is slow or disconnects gets no answer.
    timeout(P::TIMEOUT, http.serve_connection(TokioIo::new(stream), answer)).await.ok();
}
