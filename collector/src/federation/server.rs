//! Thread that serves the page.

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use polymeter_proto::exposition::Format;
use polymeter_service::bearer_token::BearerToken;
use polymeter_service::silent_connections::SilentConnections;
use polymeter_service::unix_socket;
use rustix::process::geteuid;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::newest::NewestValues;
use super::{FederationConfig, PageAddress, page, selector};
use crate::{limits, thread};

/// Of a scraper with many selectors.
const REQUEST_BYTES: usize = 32 * 1024;

/// Limit of an answer, which is about 30 MB for this many.
const SERIES_MAX: usize = 200_000;

/// Limits one request and its answer, which takes some seconds for a million series.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The writers come before those who look at the values.
const NICENESS: i32 = 10;

/// Ends with its thread when it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    address: PageAddress,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Service {
    values: NewestValues,
    token: Option<BearerToken>,
}

enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Server {
    pub(crate) fn start(config: &FederationConfig, values: NewestValues) -> io::Result<Self> {
        let token = config.token_file.as_deref().map(BearerToken::read).transpose();
        let service = Arc::new(Service { values, token: token.map_err(io::Error::other)? });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (socket, address) = runtime.block_on(async { open(&config.listen) })?;
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn("federation", move || {
            rustix::process::nice(NICENESS).ok();
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = serve(socket, &service) => {}
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

impl Drop for Server {
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

async fn serve(socket: Socket, service: &Arc<Service>) {
    let mut connections = SilentConnections::new(limits::HTTP_CONNECTIONS);
    loop {
        let service = Arc::clone(service);
        let accepted = match &socket {
            Socket::Unix(listener) => listener.accept().await.map(|(stream, _)| {
                let may_read = |uid| uid == 0 || uid == geteuid().as_raw();
                let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
                let is_permitted = stream.peer_cred().is_ok_and(|peer| may_read(peer.uid()));
                is_permitted.then(|| (peer, tokio::spawn(async move { handle(stream, &service).await })))
            }),
            Socket::Tcp(listener) => listener.accept().await.map(|(stream, peer)| {
                Some((peer.ip(), tokio::spawn(async move { handle(stream, &service).await })))
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

async fn handle(stream: impl AsyncRead + AsyncWrite + Unpin, service: &Service) {
    let answer =
        service_fn(|request: Request<Incoming>| ready(Ok::<_, Infallible>(service.answer(&request))));
    let mut http = http1::Builder::new();
    http.keep_alive(false).half_close(true).max_buf_size(REQUEST_BYTES);
    // A client that is slow or disconnects gets no answer.
    timeout(TIMEOUT, http.serve_connection(TokioIo::new(stream), answer)).await.ok();
}

impl Service {
    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let authorization = header(request.headers(), AUTHORIZATION.as_str());
        if self.token.as_ref().is_some_and(|token| !token.is_in(authorization)) {
            let mut answer = refusal(StatusCode::UNAUTHORIZED, "the token is missing or wrong");
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return answer;
        }
        if request.uri().path() != "/federate" {
            return refusal(StatusCode::NOT_FOUND, "the page is GET /federate");
        }
        if request.method() != Method::GET {
            let mut answer = refusal(StatusCode::METHOD_NOT_ALLOWED, "the page is GET /federate");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
            return answer;
        }
        let selectors = match selector::of_query(request.uri().query().unwrap_or_default().as_bytes()) {
            Ok(selectors) => selectors,
            Err(error) => return refusal(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        let format = Format::negotiate(header(request.headers(), ACCEPT.as_str()));
        match page::text(&self.values, &selectors, format, SERIES_MAX) {
            Ok(text) => {
                let mut answer = Response::new(Full::from(text));
                answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
                answer
            }
            Err(error) => refusal(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string()),
        }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn refusal(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(format!("{text}\n")));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}
