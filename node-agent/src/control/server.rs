//! Connections of the control socket.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use polymeter_proto::control::{Answer, Refusal, Request};
use polymeter_service::log_throttle::LogThrottle;
use tokio::io::BufReader;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tracing::warn;

use super::client_quota::{CONNECTIONS, ClientQuota, QuotaPermit, WATCHERS};
use super::context::Context;
use super::lines::{read_line, write_answer};
use super::request_handler::RequestHandler;
use super::{verbs, watch_stream};
use crate::clock;
use crate::request::SupervisorRequest;

/// How often a fault of accepting connections is logged again.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Wait after an error of accepting a connection: there are no descriptors until some connection ends.
const RETRY_AFTER: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Quotas {
    connections: ClientQuota,
    watchers: ClientQuota,
}

pub(crate) async fn serve(
    listener: (UnixListener, File),
    requests: mpsc::Sender<SupervisorRequest>,
    context: Context,
) {
    // The lock is released when this function ends, together with the socket.
    let (listener, _lock) = listener;
    let quotas =
        Arc::new(Quotas { connections: ClientQuota::new(CONNECTIONS), watchers: ClientQuota::new(WATCHERS) });
    let mut throttle = LogThrottle::<String>::new(LOG_INTERVAL, 1);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (requests, context, quotas) = (requests.clone(), context.clone(), Arc::clone(&quotas));
                tokio::spawn(async move {
                    // The error of a client that has disconnected concerns nothing else.
                    accept(stream, &requests, &context, &quotas).await.ok();
                });
            }
            Err(error) => {
                if throttle.allows("accept", Duration::from_nanos(clock::monotonic_ns())) {
                    warn!(%error, "cannot accept a connection to the control socket");
                }
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}

/// Identifies the client, and serves the connection if its quota allows one more.
async fn accept(
    mut stream: UnixStream,
    requests: &mpsc::Sender<SupervisorRequest>,
    context: &Context,
    quotas: &Quotas,
) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    let principal = context.rights.borrow().principal(&stream, peer.uid(), peer.gid())?;
    let Some(permit) = quotas.connections.acquire(principal) else {
        let message = "too many connections; close some, or send several requests over one";
        return write_answer(&mut stream, &Answer::Refused(Refusal::new("busy", None, message))).await;
    };
    let handler = RequestHandler::new(principal, requests, context);
    serve_connection(stream, &handler, &permit, &quotas.watchers).await
}

/// Reads requests and writes answers until the client closes the connection or is silent for too long.
async fn serve_connection(
    stream: UnixStream,
    handler: &RequestHandler<'_>,
    permit: &QuotaPermit<'_>,
    watchers: &ClientQuota,
) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read);
    loop {
        let line = match read_line(&mut lines).await? {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(()),
            Err(refusal) => return write_answer(&mut write, &Answer::Refused(refusal)).await,
        };
        permit.throttle().await;
        let began_ns = clock::thread_cpu_ns();
        let answer = match Request::parse(&line) {
            // The stream charges its own CPU time while it runs.
            Ok(Request::Watch(request)) => {
                let last = watch_stream::stream(handler, permit, watchers, request, &mut write).await?;
                write_answer(&mut write, &last).await?;
                continue;
            }
            Ok(request) => verbs::execute(request, handler).await,
            Err(refusal) => Answer::Refused(refusal),
        };
        write_answer(&mut write, &answer).await?;
        permit.charge(clock::thread_cpu_ns().saturating_sub(began_ns));
    }
}
