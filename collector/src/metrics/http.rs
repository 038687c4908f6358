//! The pages `/metrics`, `/health` and `/ready`.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use super::registered::Metrics;
use crate::limits;
use crate::page_server::{Pages, handle};

impl Pages for Metrics {
    const NAME: &'static str = "metrics";
    const REQUEST_BYTES: usize = limits::HTTP_REQUEST_BYTES;
    const TIMEOUT: Duration = limits::HTTP_TIMEOUT;
    const NICENESS: i32 = 0;

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        answer(request.method(), request.uri().path(), self)
    }
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
