//! The control socket: one JSON object per line in each direction, and always an answer.
//!
//! The kernel says who remote_requests. Root, the user as whom the agent runs and the configured administrators may do all; anybody
//! else may look at the jobs that she owns, mark them, and change how they are sampled, for a while.

mod answer;
mod client_quota;
mod fields;
mod listener;
pub(crate) mod remote;
mod request_handler;
mod scheduler_hooks;
mod verb;
mod watch_stream;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use polymeter_proto::series::SessionId;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::clock;
use crate::counters::Counters;
use crate::principal::Principal;
use crate::request::ManagerRequest;
use crate::user_database::Rights;

pub use answer::{
    Answer, CollectorStatus, Counts, MetricLine, Missing, PlanLine, Predicted, Refusal, RefusedLine,
    SourceStatus, Status, SubjectStatus,
};
use client_quota::{CONNECTIONS, ClientQuota, QuotaPermit, WATCHERS};
pub(crate) use listener::Listener;
pub use listener::beside;
use request_handler::RequestHandler;
pub use scheduler_hooks::{End, Start};
pub use verb::{Lease, Mark, Push, Register, Subject, Verb, Watch};

/// Bytes of one request.
const LINE_BYTES: u64 = 64 * 1024;

/// How long a connection may say nothing.
const SILENCE: Duration = Duration::from_secs(30);

/// How often is said again that connections cannot be accepted.
const AGAIN: Duration = Duration::from_secs(60);

/// What answers need beside the manager.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) session: SessionId,
    /// Where the samples go.
    pub(crate) collector: Arc<str>,
    pub(crate) counters: Arc<Counters>,
    /// Who may do what; another configuration may change it.
    pub(crate) rights: watch::Receiver<Rights>,
}

/// Whether a line is a request whose fields mean something; whether it would be granted is another matter.
///
/// # Errors
/// What is wrong with it, with the field.
pub fn check(line: &[u8]) -> Result<(), Refusal> {
    let nobody = Principal { uid: u32::MAX, administrator: false };
    match Verb::parse(line)? {
        Verb::Set(lease) => lease.spec(nobody).map(drop),
        Verb::Mark(mark) => mark.spec(nobody).map(drop),
        Verb::Push(push) => push.spec(nobody).map(drop),
        Verb::Register(job) => job.spec().map(drop),
        Verb::Start(start) => start.spec().map(drop),
        Verb::End(end) => end.spec().map(drop),
        Verb::Metrics(of) | Verb::Plan(of) | Verb::Reset(of) | Verb::Unregister(of) => of.id().map(drop),
        Verb::Watch(watch) => watch.spec().map(drop),
        Verb::Status | Verb::Jobs | Verb::Flush => Ok(()),
    }
}

/// RemoteAnswerSender until the runtime ends.
pub(crate) async fn serve(
    listener: (UnixListener, File),
    requests: mpsc::Sender<ManagerRequest>,
    context: Context,
) {
    // The lock goes when this ends, together with the socket.
    let (listener, _lock) = listener;
    let quotas = Arc::new((ClientQuota::new(CONNECTIONS), ClientQuota::new(WATCHERS)));
    let mut refused_at: Option<Instant> = None;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (requests, context, quotas) = (requests.clone(), context.clone(), Arc::clone(&quotas));
                tokio::spawn(async move {
                    // A client that goes away in the middle has no use for an error.
                    let (connections, watchers) = &*quotas;
                    accept(stream, &requests, &context, connections, watchers).await.ok();
                });
            }
            // Out of descriptors: wait for some connection to end.
            Err(error) => {
                if refused_at.is_none_or(|at| at.elapsed() >= AGAIN) {
                    tracing::warn!(%error, "cannot accept a connection to the control socket");
                    refused_at = Some(Instant::now());
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Finds out who came, and converses if there is room for that client.
async fn accept(
    mut stream: UnixStream,
    requests: &mpsc::Sender<ManagerRequest>,
    context: &Context,
    connections: &ClientQuota,
    watchers: &ClientQuota,
) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    let principal = context.rights.borrow().principal(&stream, peer.uid(), peer.gid())?;
    let Some(permit) = connections.acquire(principal) else {
        let message = "too many connections are open; end some, or ask several things over one";
        return write_answer(&mut stream, &Answer::refused(Refusal::new("busy", None, message))).await;
    };
    let handler = RequestHandler::new(principal, requests, context);
    serve_connection(stream, &handler, &permit, watchers).await
}

/// Reads requests and writes answers until the other side ends or is silent for too long.
async fn serve_connection(
    stream: UnixStream,
    handler: &RequestHandler<'_>,
    permit: &QuotaPermit<'_>,
    watchers: &ClientQuota,
) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut lines).take(LINE_BYTES);
        let read = match tokio::time::timeout(SILENCE, limited.read_until(b'\n', &mut line)).await {
            Ok(read) => read?,
            Err(_) => {
                let refusal = Refusal::new("timeout", None, "nothing came for 30 s");
                return write_answer(&mut write, &Answer::refused(refusal)).await;
            }
        };
        if read == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            let (code, message) = if read as u64 == LINE_BYTES {
                ("too_long", "a request has at most 65536 bytes")
            } else {
                ("incomplete", "the line has no end; every request ends with a newline")
            };
            return write_answer(&mut write, &Answer::refused(Refusal::new(code, None, message))).await;
        }
        permit.throttle().await;
        let began_ns = clock::thread_cpu_ns();
        let answer = match Verb::parse(&line) {
            // Which is charged as it goes on.
            Ok(Verb::Watch(wanted)) => {
                let last = watch_stream::stream(handler, permit, watchers, wanted, &mut write).await?;
                write_answer(&mut write, &last).await?;
                continue;
            }
            Ok(verb) => handler.answer(verb).await,
            Err(refusal) => Answer::refused(refusal),
        };
        write_answer(&mut write, &answer).await?;
        permit.charge(clock::thread_cpu_ns().saturating_sub(began_ns));
    }
}

/// Writes one line.
async fn write_answer(write: &mut (impl AsyncWriteExt + Unpin), answer: &Answer) -> io::Result<()> {
    write_lines(write, &answer.line()).await
}

/// Writes lines. Who does not read her answers is not waited for.
async fn write_lines(write: &mut (impl AsyncWriteExt + Unpin), lines: &[u8]) -> io::Result<()> {
    tokio::time::timeout(SILENCE, write.write_all(lines))
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
