//! An HTTP server of the pages `/metrics`, `/health` and `/ready`. Requests are bounded in size, time and
//! number.

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::registered::Metrics;
use crate::{limits, thread};
use polymeter_service::silent_connections::SilentConnections;

#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
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

    /// Includes the actual port.
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
    // A request is answered as soon as it has arrived: a connection that is open waits for its client.
    let mut connections = SilentConnections::new(limits::HTTP_CONNECTIONS);
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let metrics = Arc::clone(&metrics);
                let task = tokio::spawn(async move { handle(stream, &metrics).await });
                connections.add(peer.ip(), task.abort_handle());
                // A request that has arrived is answered before others can displace it.
                tokio::task::yield_now().await;
            }
            // Probably no descriptor is free; an immediate retry would fail, too.
            Err(_) => tokio::time::sleep(limits::HTTP_TIMEOUT).await,
        }
    }
}

async fn handle(stream: impl AsyncRead + AsyncWrite + Unpin, metrics: &Metrics) {
    let service = service_fn(|request: Request<Incoming>| {
        ready(Ok::<_, Infallible>(answer(request.method(), request.uri().path(), metrics)))
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false).half_close(true).title_case_headers(true).max_buf_size(limits::HTTP_REQUEST_BYTES);
    // A client that is slow or disconnects gets no answer.
    timeout(limits::HTTP_TIMEOUT, http.serve_connection(TokioIo::new(stream), service)).await.ok();
}

fn answer(method: &Method, path: &str, metrics: &Metrics) -> Response<Full<Bytes>> {
    const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    const PLAIN: &str = "text/plain";
    const PAGES: &str = "The pages are GET /metrics, /health and /ready.\n";
    let is_read = method == Method::GET || method == Method::HEAD;
    let (status, kind, text) = match path {
        "/metrics" | "/health" | "/ready" if !is_read => {
            (StatusCode::METHOD_NOT_ALLOWED, PLAIN, PAGES.to_owned())
        }
        "/metrics" => (StatusCode::OK, OPENMETRICS, metrics.to_text()),
        "/health" => (StatusCode::OK, PLAIN, "The collector runs.\n".to_owned()),
        "/ready" if metrics.is_ready() => (StatusCode::OK, PLAIN, "The store answers.\n".to_owned()),
        "/ready" => {
            let text = "The store does not answer; see the log.\n".to_owned();
            (StatusCode::SERVICE_UNAVAILABLE, PLAIN, text)
        }
        _ => (StatusCode::NOT_FOUND, PLAIN, PAGES.to_owned()),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// Answer to a client that sends these bytes and then closes its side; used by the fuzzer.
pub fn metrics_answer(request: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    if let Ok(event_loop) = tokio::runtime::Builder::new_current_thread().enable_time().build() {
        let stream = tokio::io::join(request, &mut answer);
        event_loop.block_on(handle(stream, &Metrics::new(String::new())));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status line; empty without an answer.
    fn status(request: impl AsRef<[u8]>) -> String {
        let answer = String::from_utf8(metrics_answer(request.as_ref())).unwrap();
        answer.split_once("\r\n").map(|(line, _)| line.to_owned()).unwrap_or_default()
    }

    fn body(request: &str) -> String {
        let answer = String::from_utf8(metrics_answer(request.as_bytes())).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    #[test]
    fn serves_three_pages() {
        for target in ["/metrics", "/metrics?x=1"] {
            let page = body(&format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"));
            assert!(page.starts_with("# HELP ") && page.ends_with("# EOF\n"), "{page}");
        }
        assert_eq!(body("HEAD /metrics HTTP/1.1\r\n\r\n"), "");
        assert_eq!(body("GET /health HTTP/1.1\r\n\r\n"), "The collector runs.\n");
        assert_eq!(body("GET /ready HTTP/1.1\r\n\r\n"), "The store answers.\n");
        assert_eq!(status("GET /metrics HTTP/1.0\r\n\r\n"), "HTTP/1.0 200 OK");
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
        for malformed in ["GET /metrics\r\n\r\n", "\u{16}\u{3}\u{1} \0 \r\n\r\n"] {
            assert_eq!(status(malformed), "HTTP/1.1 400 Bad Request", "{malformed:?}");
        }
    }

    #[test]
    fn a_collector_is_ready_while_its_store_answers() {
        let metrics = Metrics::new(String::new());
        let calls = metrics.writer(0).store_calls;
        let status = |path: &str| answer(&Method::GET, path, &metrics).status().as_u16();
        assert_eq!((status("/ready"), status("/health")), (200, 200));
        calls.begin();
        calls.end(false);
        assert_eq!((status("/ready"), status("/health")), (503, 200));
    }

    #[test]
    fn requests_are_bounded_and_need_an_end() {
        let request = b"GET /metrics HTTP/1.1\r\n\r\n";
        for end in 0..request.len() {
            assert_eq!(metrics_answer(&request[..end]), b"", "{end}");
        }
        let endless = vec![b'x'; limits::HTTP_REQUEST_BYTES + 1];
        assert_eq!(status(endless), "HTTP/1.1 431 Request Header Fields Too Large");
    }
}
