//! An HTTP server of one page: `GET /metrics`. Requests are bounded in length, time and number.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::Metrics;
use crate::{StartError, limits};

/// The thread that answers.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `address` and answers.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub(crate) fn start(address: SocketAddr, metrics: Arc<Metrics>) -> Result<Self, StartError> {
        let cannot_listen = |source| StartError::Metrics { address, source };
        let event_loop = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(StartError::Machine)?;
        let listener = event_loop.block_on(TcpListener::bind(address)).map_err(cannot_listen)?;
        let bound = listener.local_addr().map_err(cannot_listen)?;
        let (stop, stopped) = oneshot::channel();
        let thread = crate::spawn("metrics", move || {
            event_loop.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = serve(listener, metrics) => {}
                }
            });
        })?;
        Ok(Self { address: bound, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens, with its real port.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A thread that panicked has said so.
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
                    // Who is slow or goes away gets no answer; there is nobody to tell.
                    timeout(limits::HTTP_PATIENCE, attend(stream, &metrics)).await.ok();
                    drop(permit);
                });
            }
            // Out of descriptors, most likely: some time helps, and trying at once does not.
            Err(_) => tokio::time::sleep(limits::HTTP_PATIENCE).await,
        }
    }
}

async fn attend(mut stream: TcpStream, metrics: &Metrics) -> io::Result<()> {
    let mut request = Vec::new();
    let answer = loop {
        match judge(&request) {
            Judged::Incomplete => {}
            Judged::Complete(answer) => break answer,
        }
        let room = limits::HTTP_REQUEST_BYTES + 1 - request.len();
        if (&mut stream).take(room as u64).read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    };
    stream.write_all(&respond(answer, metrics)).await?;
    stream.shutdown().await
}

/// What a request is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Metrics { body: bool },
    Wrong(&'static str),
}

/// What the bytes that have come are.
#[derive(Debug, PartialEq, Eq)]
enum Judged {
    Incomplete,
    Complete(Answer),
}

fn judge(request: &[u8]) -> Judged {
    let ends = request.windows(4).any(|bytes| bytes == b"\r\n\r\n");
    if !ends {
        return match request.len() > limits::HTTP_REQUEST_BYTES {
            true => Judged::Complete(Answer::Wrong("431 Request Header Fields Too Large")),
            false => Judged::Incomplete,
        };
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    Judged::Complete(match words.as_slice() {
        [method, target, version] if version.starts_with(b"HTTP/1.") => judge_line(method, target),
        _ => Answer::Wrong("400 Bad Request"),
    })
}

/// For the fuzzer: whether an answer to these bytes is due, and can be sent.
#[cfg(fuzzing)]
pub fn is_answered(request: &[u8]) -> bool {
    let metrics = Metrics::new(String::new(), Vec::new());
    match judge(request) {
        Judged::Incomplete => false,
        Judged::Complete(answer) => respond(answer, &metrics).starts_with(b"HTTP/1.1 "),
    }
}

fn judge_line(method: &[u8], target: &[u8]) -> Answer {
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    match (path, method) {
        (b"/metrics", b"GET") => Answer::Metrics { body: true },
        (b"/metrics", b"HEAD") => Answer::Metrics { body: false },
        (b"/metrics", _) => Answer::Wrong("405 Method Not Allowed\r\nAllow: GET, HEAD"),
        _ => Answer::Wrong("404 Not Found"),
    }
}

fn respond(answer: Answer, metrics: &Metrics) -> Vec<u8> {
    const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let (status, kind, text, body) = match answer {
        Answer::Metrics { body } => ("200 OK", OPENMETRICS, metrics.to_text(), body),
        Answer::Wrong(status) => (status, "text/plain", "There is only GET /metrics.\n".to_owned(), true),
    };
    let mut response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    if body {
        response.push_str(&text);
    }
    response.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(request: &str) -> Answer {
        match judge(request.as_bytes()) {
            Judged::Complete(answer) => answer,
            Judged::Incomplete => panic!("{request:?} is complete"),
        }
    }

    #[test]
    fn only_one_page_is_there() {
        let body = Answer::Metrics { body: true };
        assert_eq!(answer("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), body);
        assert_eq!(answer("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), body);
        assert_eq!(answer("HEAD /metrics HTTP/1.1\r\n\r\n"), Answer::Metrics { body: false });
        let status = |request| match answer(request) {
            Answer::Wrong(status) => &status[..3],
            Answer::Metrics { .. } => panic!("{request:?} is wrong"),
        };
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "405");
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), "404");
        assert_eq!(status("GET /metrics\r\n\r\n"), "400");
        assert_eq!(status("\r\n\r\n"), "400");
        assert_eq!(status("\u{16}\u{3}\u{1} \0 \r\n\r\n"), "400");
    }

    #[test]
    fn a_request_may_come_in_pieces_and_not_be_endless() {
        let request = "GET /metrics HTTP/1.1\r\n\r\n";
        for end in 0..request.len() {
            assert_eq!(judge(&request.as_bytes()[..end]), Judged::Incomplete);
        }
        let endless = vec![b'x'; limits::HTTP_REQUEST_BYTES + 1];
        assert!(
            matches!(judge(&endless), Judged::Complete(Answer::Wrong(status)) if status.starts_with("431"))
        );
    }
}
