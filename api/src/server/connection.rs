//! One connection: its requests are served, or it is refused before the first one.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tower_service::Service;

use super::unparsed::ProblemStream;
use crate::access::Client;
use crate::answer::Problem;
use crate::limits;

/// Serves the requests of a connection until it ends. Errors concern only its client, which has disconnected.
pub(crate) async fn serve<S>(stream: S, client: Client, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let close = Arc::clone(&client.close);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(client.clone());
        router.clone().call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits::HEAD_TIMEOUT)
        .max_buf_size(limits::HEAD_BYTES)
        .max_headers(limits::HEADERS);
    let served = http.serve_connection(TokioIo::new(ProblemStream::new(stream)), service);
    tokio::select! {
        served = served => { served.map_err(io::Error::other).ok(); }
        () = close.notified() => {}
    }
}

/// Answers a connection that gets no place, and closes it. What the client sends is discarded for a short
/// time: a client that still writes would not read the answer otherwise.
pub(crate) async fn refuse(mut stream: impl AsyncRead + AsyncWrite + Unpin, problem: Problem) {
    let response = problem.last_answer();
    let answer = async {
        stream.write_all(response.as_bytes()).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(limits::HEAD_BYTES as u64), &mut tokio::io::sink()).await
    };
    // A client that is gone needs no answer.
    timeout(limits::REFUSAL_TIMEOUT, answer).await.ok();
}
