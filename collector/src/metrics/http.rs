//! An HTTP server of the pages `/metrics`, `/health` and `/ready`. Requests are bounded in size, time and
//! number.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::registered::Metrics;
use crate::{limits, thread};

/// The server's thread, which ends on drop.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server that listens at `address`.
    ///
    /// # Errors
    /// Returns an error if the address cannot be bound, or the thread cannot be created.
    pub(crate) fn start(address: SocketAddr, metrics: Arc<Metrics>) -> io::Result<Self> {
        let event_loop = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let listener = event_loop.block_on(TcpListener::bind(address))?;
        let bound = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn("metrics", move || {
            event_loop.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = serve(listener, metrics) => {}
                }
            });
        })?;
        Ok(Self { address: bound, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the address at which it listens, with its actual port.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic of the thread was reported when it occurred.
        self.thread.take().map(JoinHandle::join);
    }
}

async fn serve(listener: TcpListener, metrics: Arc<Metrics>) {
    let free = Arc::new(Semaphore::new(limits::HTTP_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let metrics = Arc::clone(&metrics);
                tokio::spawn(async move {
                    // A client that is slow or disconnects gets no answer.
                    timeout(limits::HTTP_TIMEOUT, handle(stream, &metrics)).await.ok();
                    drop(permit);
                });
            }
            // Probably no descriptor is free; an immediate retry would fail, too.
            Err(_) => tokio::time::sleep(limits::HTTP_TIMEOUT).await,
        }
    }
}

async fn handle(mut stream: TcpStream, metrics: &Metrics) -> io::Result<()> {
    let mut request = Vec::new();
    let response = loop {
        match parse(&request) {
            Parsed::Incomplete => {}
            Parsed::Complete(response) => break response,
        }
        let room = limits::HTTP_REQUEST_BYTES + 1 - request.len();
        if (&mut stream).take(room as u64).read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    };
    stream.write_all(&encode(response, metrics)).await?;
    stream.shutdown().await
}

/// The response to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Response {
    /// A page; without its body for `HEAD`.
    Page { page: ServedPage, body: bool },
    /// An error with this status.
    Error(&'static str),
}

/// A page of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServedPage {
    /// The collector's own metrics.
    Metrics,
    /// The state of the process: it runs.
    Health,
    /// The state of the store: it answers or not.
    Ready,
}

/// The bytes received so far.
#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    Incomplete,
    Complete(Response),
}

fn parse(request: &[u8]) -> Parsed {
    let ends = request.windows(4).any(|bytes| bytes == b"\r\n\r\n");
    if !ends {
        return match request.len() > limits::HTTP_REQUEST_BYTES {
            true => Parsed::Complete(Response::Error("431 Request Header Fields Too Large")),
            false => Parsed::Incomplete,
        };
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    Parsed::Complete(match words.as_slice() {
        [method, target, version] if version.starts_with(b"HTTP/1.") => route(method, target),
        _ => Response::Error("400 Bad Request"),
    })
}

/// Returns true if these bytes are a request that gets a response. For the fuzzer.
pub fn is_answered(request: &[u8]) -> bool {
    let metrics = Metrics::new(String::new());
    match parse(request) {
        Parsed::Incomplete => false,
        Parsed::Complete(response) => encode(response, &metrics).starts_with(b"HTTP/1.1 "),
    }
}

fn route(method: &[u8], target: &[u8]) -> Response {
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let page = match path {
        b"/metrics" => ServedPage::Metrics,
        b"/health" => ServedPage::Health,
        b"/ready" => ServedPage::Ready,
        _ => return Response::Error("404 Not Found"),
    };
    match method {
        b"GET" => Response::Page { page, body: true },
        b"HEAD" => Response::Page { page, body: false },
        _ => Response::Error("405 Method Not Allowed\r\nAllow: GET, HEAD"),
    }
}

fn encode(response: Response, metrics: &Metrics) -> Vec<u8> {
    const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    const PLAIN: &str = "text/plain";
    const OK: &str = "200 OK";
    let (status, kind, text, body) = match response {
        Response::Page { page, body } => {
            let (status, kind, text) = match page {
                ServedPage::Metrics => (OK, OPENMETRICS, metrics.to_text()),
                ServedPage::Health => (OK, PLAIN, "The collector runs.\n".to_owned()),
                ServedPage::Ready if metrics.is_ready() => (OK, PLAIN, "The store answers.\n".to_owned()),
                ServedPage::Ready => {
                    ("503 Service Unavailable", PLAIN, "The store does not answer; see the log.\n".to_owned())
                }
            };
            (status, kind, text, body)
        }
        Response::Error(status) => {
            (status, PLAIN, "The pages are GET /metrics, /health and /ready.\n".to_owned(), true)
        }
    };
    let mut message = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    if body {
        message.push_str(&text);
    }
    message.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(request: &str) -> Response {
        match parse(request.as_bytes()) {
            Parsed::Complete(response) => response,
            Parsed::Incomplete => panic!("{request:?} is complete"),
        }
    }

    #[test]
    fn serves_three_pages() {
        let body = Response::Page { page: ServedPage::Metrics, body: true };
        assert_eq!(response("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), body);
        assert_eq!(response("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), body);
        let head = response("HEAD /metrics HTTP/1.1\r\n\r\n");
        assert_eq!(head, Response::Page { page: ServedPage::Metrics, body: false });
        for (path, page) in [("/health", ServedPage::Health), ("/ready", ServedPage::Ready)] {
            let get = response(&format!("GET {path} HTTP/1.1\r\n\r\n"));
            assert_eq!(get, Response::Page { page, body: true });
        }
        let status = |request| match response(request) {
            Response::Error(status) => &status[..3],
            Response::Page { .. } => panic!("{request:?} is wrong"),
        };
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "405");
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), "404");
        assert_eq!(status("GET /metrics\r\n\r\n"), "400");
        assert_eq!(status("\r\n\r\n"), "400");
        assert_eq!(status("\u{16}\u{3}\u{1} \0 \r\n\r\n"), "400");
    }

    #[test]
    fn a_collector_is_ready_while_its_store_answers() {
        let metrics = Metrics::new(String::new());
        let calls = metrics.writer(0).store_calls;
        let ready = || {
            let answer = encode(Response::Page { page: ServedPage::Ready, body: true }, &metrics);
            String::from_utf8(answer).unwrap()
        };
        assert!(ready().starts_with("HTTP/1.1 200 ") && ready().ends_with("\r\n\r\nThe store answers.\n"));
        calls.begin();
        calls.end(false);
        assert!(ready().starts_with("HTTP/1.1 503 "), "{}", ready());
        let health = encode(Response::Page { page: ServedPage::Health, body: false }, &metrics);
        assert!(health.starts_with(b"HTTP/1.1 200 ") && health.ends_with(b"\r\n\r\n"));
    }

    #[test]
    fn requests_may_arrive_in_pieces_and_are_bounded() {
        let request = "GET /metrics HTTP/1.1\r\n\r\n";
        for end in 0..request.len() {
            assert_eq!(parse(&request.as_bytes()[..end]), Parsed::Incomplete);
        }
        let endless = vec![b'x'; limits::HTTP_REQUEST_BYTES + 1];
        assert!(
            matches!(parse(&endless), Parsed::Complete(Response::Error(status)) if status.starts_with("431"))
        );
    }
}
