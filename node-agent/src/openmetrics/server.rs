//! Thread that serves the page.

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
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
use polymeter_proto::name::Selector;
use polymeter_proto::series::Identifier;
use polymeter_service::bearer_token::BearerToken;
use polymeter_service::silent_connections::SilentConnections;
use rustix::process::geteuid;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::entrance::{Entrance, Secrets, Socket};
use super::page::{Kept, Pages};
use crate::delivery::tap::Tap;

/// Connections of scrapers. Where there are more, the oldest one of the address with the most ends.
const CONNECTIONS: usize = 512;

/// A scraper's request has a few hundred bytes.
const REQUEST_BYTES: usize = 8 * 1024;

/// Limits one request and its answer, so that a slow client holds no connection for long.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Wait after an error of accepting a connection: there are no descriptors until some connection ends.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Jobs come before those who look at them.
const NICENESS: i32 = 10;

/// Ends with its thread when it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Service {
    pages: Pages,
    token: Option<BearerToken>,
}

impl Server {
    pub(crate) fn start(
        entrance: Entrance,
        node: Identifier,
        selectors: Vec<Selector>,
        tap: Arc<Tap>,
    ) -> io::Result<Self> {
        const STACK_BYTES: usize = 512 * 1024;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let has_jobs = entrance.is_private();
        let Entrance { socket, secrets: Secrets { token, tls } } = entrance;
        let kept = Mutex::new(Kept::default());
        let pages = Pages { tap, node, selectors, has_jobs, kept, clashes: AtomicU64::new(0) };
        let service = Arc::new(Service { pages, token });
        let (stop, stopped) = oneshot::channel();
        let builder = std::thread::Builder::new().name("openmetrics".to_owned()).stack_size(STACK_BYTES);
        let thread = builder.spawn(move || {
            rustix::process::nice(NICENESS).ok();
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    // Without a socket there is nothing to serve.
                    _ = serve(socket, &service, tls.as_ref()) => {}
                }
            });
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic of the thread was reported when it occurred.
        self.thread.take().map(JoinHandle::join);
    }
}

async fn serve(socket: Socket, service: &Arc<Service>, tls: Option<&TlsAcceptor>) -> io::Result<()> {
    match socket {
        Socket::Unix(listener) => serve_unix(UnixListener::from_std(listener)?, service).await,
        Socket::Tcp(listener) => serve_tcp(TcpListener::from_std(listener)?, service, tls).await,
    }
}

async fn serve_unix(listener: UnixListener, service: &Arc<Service>) -> ! {
    let mut connections = SilentConnections::new(CONNECTIONS);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(RETRY_AFTER).await;
            continue;
        };
        let may_read = |uid| uid == 0 || uid == geteuid().as_raw();
        if !stream.peer_cred().is_ok_and(|peer| may_read(peer.uid())) {
            continue;
        }
        let service = Arc::clone(service);
        let task = tokio::spawn(async move { handle(stream, &service).await });
        connections.add(IpAddr::V4(Ipv4Addr::LOCALHOST), task.abort_handle());
        // A request that has arrived is answered before others can displace it.
        tokio::task::yield_now().await;
    }
}

async fn serve_tcp(listener: TcpListener, service: &Arc<Service>, tls: Option<&TlsAcceptor>) -> ! {
    let mut connections = SilentConnections::new(CONNECTIONS);
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(RETRY_AFTER).await;
            continue;
        };
        let (service, tls) = (Arc::clone(service), tls.cloned());
        let task = tokio::spawn(async move {
            match tls {
                None => handle(stream, &service).await,
                Some(tls) => {
                    if let Ok(Ok(stream)) = timeout(TIMEOUT, tls.accept(stream)).await {
                        handle(stream, &service).await;
                    }
                }
            }
        });
        connections.add(peer.ip().to_canonical(), task.abort_handle());
        tokio::task::yield_now().await;
    }
}

async fn handle(stream: impl AsyncRead + AsyncWrite + Unpin, service: &Service) {
    let answer = service_fn(|request: Request<Incoming>| {
        ready(Ok::<_, Infallible>(service.answer(request.method(), request.uri().path(), request.headers())))
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false).half_close(true).max_buf_size(REQUEST_BYTES);
    // A client that is slow or disconnects gets no answer.
    timeout(TIMEOUT, http.serve_connection(TokioIo::new(stream), answer)).await.ok();
}

impl Service {
    fn answer(&self, method: &Method, path: &str, headers: &HeaderMap) -> Response<Full<Bytes>> {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if self.token.as_ref().is_some_and(|token| !token.is_in(header(AUTHORIZATION))) {
            let mut answer = refusal(StatusCode::UNAUTHORIZED, "The token is missing or wrong.\n");
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return answer;
        }
        if path != "/metrics" {
            return refusal(StatusCode::NOT_FOUND, "The page is GET /metrics.\n");
        }
        if method != Method::GET && method != Method::HEAD {
            let mut answer = refusal(StatusCode::METHOD_NOT_ALLOWED, "The page is GET /metrics.\n");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        let format = Format::negotiate(header(ACCEPT));
        let mut answer = Response::new(Full::new(self.pages.text(format)));
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
        answer
    }
}

fn refusal(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(text));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    answer
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    use super::*;
    use crate::config::{OpenMetricsConfig, PageAddress};
    use crate::delivery::tap::NewestValues;

    /// A free port of this machine.
    fn free() -> std::net::SocketAddr {
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    fn start(config: &OpenMetricsConfig) -> Server {
        let tap = Arc::new(Tap::with_newest(Some(NewestValues::new(1))));
        let entrance = Entrance::open(config).unwrap().unwrap();
        Server::start(entrance, Identifier::try_from("n1").unwrap(), vec!["*".parse().unwrap()], tap).unwrap()
    }

    fn ask(mut stream: impl Read + Write, request: &str) -> String {
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // A server that closes before it has read a whole request resets the connection.
        let end = stream.read_to_end(&mut answer);
        assert!(end.is_ok() || !answer.is_empty(), "{end:?}");
        String::from_utf8(answer).unwrap()
    }

    fn listen(address: PageAddress) -> OpenMetricsConfig {
        OpenMetricsConfig { listen: Some(address), ..OpenMetricsConfig::default() }
    }

    #[test]
    fn the_socket_is_private_and_answers_in_both_formats() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/metrics.sock");
        let server = start(&listen(PageAddress::Unix(path.clone())));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let connect = || UnixStream::connect(&path).unwrap();
        let text = ask(connect(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("text/plain; version=0.0.4"),
            "{text}"
        );
        assert!(text.ends_with("polymeter_page_refused_total{node=\"n1\"} 0\n"), "{text}");
        let accept = "Accept: application/openmetrics-text; version=1.0.0\r\n";
        let text = ask(connect(), &format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{accept}\r\n"));
        assert!(text.contains("application/openmetrics-text") && text.ends_with("# EOF\n"), "{text}");
        for (request, status) in [
            ("POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "HTTP/1.1 405"),
            ("GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "HTTP/1.1 404"),
            ("nonsense\r\n\r\n".to_owned(), "HTTP/1.1 400"),
            (format!("GET /{} HTTP/1.1\r\n", "x".repeat(REQUEST_BYTES)), "HTTP/1.1 4"),
        ] {
            let answer = ask(connect(), &request);
            assert!(answer.starts_with(status), "{request}: {answer}");
        }
        let taken = Entrance::open(&listen(PageAddress::Unix(path.clone())));
        assert!(matches!(taken, Err(super::super::EntranceError::Listen(..))));
        drop(server);
        drop(start(&listen(PageAddress::Unix(path))));
    }

    fn private(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    }

    #[test]
    fn a_token_opens_the_page() {
        let directory = tempfile::tempdir().unwrap();
        let token_file = directory.path().join("token");
        private(&token_file, "0123456789abcdef\n");
        let address = free();
        let token_file = Some(token_file);
        let server = start(&OpenMetricsConfig { token_file, ..listen(PageAddress::Tcp(address)) });
        let get = |header: &str| {
            let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{header}\r\n");
            ask(TcpStream::connect(address).unwrap(), &request)
        };
        assert!(get("Authorization: Bearer 0123456789abcdef\r\n").starts_with("HTTP/1.1 200"));
        for wrong in ["", "Authorization: Bearer 0123456789abcdeX\r\n", "Authorization: Basic eDp5\r\n"] {
            assert!(get(wrong).starts_with("HTTP/1.1 401"), "{wrong}");
        }
        drop(server);
    }

    #[test]
    fn silent_clients_keep_nobody_out() {
        let address = free();
        let server = start(&listen(PageAddress::Tcp(address)));
        let silent: Vec<_> = (0..CONNECTIONS + 20).map(|_| TcpStream::connect(address).unwrap()).collect();
        let request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        assert!(ask(TcpStream::connect(address).unwrap(), request).starts_with("HTTP/1.1 200"));
        drop((silent, server));
    }
}
