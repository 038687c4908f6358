//! One connection.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tower_service::Service;

use crate::limits;
use crate::peer::Peer;
use crate::unparsed::ProblemStream;

/// The client of a connection, for the requests on it.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) peer: Peer,
    /// Closes the connection.
    pub(crate) close: Arc<Notify>,
}

/// Serves the requests of a connection until it ends. Errors concern only its client, which has disconnected.
pub(crate) async fn serve<S>(stream: S, peer: Peer, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let client = Client { peer, close: Arc::new(Notify::new()) };
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
