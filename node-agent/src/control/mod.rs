//! The control socket: one JSON object per line in each direction, and always an answer.
//!
//! It answers `status`, `jobs`, `register`, `unregister` and `flush`, for root and for the user as whom the agent runs.

mod wire;

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use polymeter_proto::series::SessionId;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};

use crate::clock;
use crate::counters::Counters;
use crate::log;
use crate::manager::ask;
use crate::request::{RegisterError, Request};

pub use wire::{Answer, Counts, Refusal, Register, SourceStatus, Status, SubjectStatus, Verb};

/// Bytes of one request.
const LINE_BYTES: u64 = 64 * 1024;

/// Connections at once; more have to wait.
const CONNECTIONS: usize = 64;

/// How long a connection may say nothing.
const SILENCE: Duration = Duration::from_secs(30);

/// What answers need beside the manager.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) session: SessionId,
    pub(crate) counters: Arc<Counters>,
}

/// Opens the socket at `path`. A socket there that nobody listens on, left by an agent that was killed, is replaced.
pub(crate) fn listen(path: &Path) -> io::Result<StdListener> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let is_socket = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another agent listens there"));
        }
        fs::remove_file(path)?;
    }
    let listener = StdListener::bind(path)?;
    // Everybody may knock; the kernel says who it is.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers until the runtime ends.
pub(crate) async fn serve(listener: StdListener, requests: mpsc::Sender<Request>, context: Context) {
    let listener = match UnixListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return log::error(&format!("cannot serve the control socket: {error}")),
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (requests, context) = (requests.clone(), context.clone());
                tokio::spawn(async move {
                    // A client that goes away in the middle has no use for an error.
                    converse(stream, &requests, &context).await.ok();
                    drop(place);
                });
            }
            // Out of descriptors: wait for some connection to end.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn converse(stream: UnixStream, requests: &mpsc::Sender<Request>, context: &Context) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut lines).take(LINE_BYTES);
        let read = match tokio::time::timeout(SILENCE, limited.read_until(b'\n', &mut line)).await {
            Ok(read) => read?,
            Err(_) => {
                let refusal = Refusal::new("timeout", None, "nothing came for 30 s");
                return write.write_all(&Answer::refused(refusal).line()).await;
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
            return write.write_all(&Answer::refused(Refusal::new(code, None, message)).line()).await;
        }
        let answer = match wire::parse(&line) {
            Ok(verb) => obey(verb, uid, requests, context).await,
            Err(refusal) => Answer::refused(refusal),
        };
        write.write_all(&answer.line()).await?;
    }
}

/// Root and the agent's own user may do all; nobody else anything yet.
fn may(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

async fn obey(verb: Verb, uid: u32, requests: &mpsc::Sender<Request>, context: &Context) -> Answer {
    if !may(uid) {
        return Answer::refused(Refusal::new(
            "forbidden",
            None,
            "only root and the agent's own user may ask; run this with sudo",
        ));
    }
    let gone = || Answer::refused(Refusal::new("stopping", None, "the agent is about to end"));
    match verb {
        Verb::Status | Verb::Jobs => {
            let (request, answer) = ask(Request::View);
            if requests.send(request).await.is_err() {
                return gone();
            }
            let Ok(view) = answer.await else { return gone() };
            Answer::Status(Box::new(Status::new(context.session, &counts(&context.counters), &view)))
        }
        Verb::Register(wanted) => register(wanted, requests).await.unwrap_or_else(gone),
        Verb::Unregister { job } => {
            let Ok(job_id) = job.as_str().try_into() else {
                return Answer::refused(Refusal::new(
                    "invalid",
                    Some("job"),
                    "it cannot be the name of a job",
                ));
            };
            let (request, answer) = ask(|reply| Request::Unregister(job_id, reply));
            if requests.send(request).await.is_err() {
                return gone();
            }
            match answer.await {
                Err(_) => gone(),
                Ok(true) => Answer::Done {},
                Ok(false) => Answer::refused(Refusal::new(
                    "unknown_job",
                    Some("job"),
                    "no job with this id was registered",
                )),
            }
        }
        Verb::Flush => {
            let (request, answer) = ask(Request::Flush);
            if requests.send(request).await.is_err() || answer.await.is_err() {
                gone()
            } else {
                Answer::Done {}
            }
        }
    }
}

/// Has the manager follow a job; no answer where it is about to end.
async fn register(wanted: Register, requests: &mpsc::Sender<Request>) -> Option<Answer> {
    let spec = match wanted.spec() {
        Ok(spec) => spec,
        Err(refusal) => return Some(Answer::refused(refusal)),
    };
    let (request, answer) = ask(|reply| Request::Register(Box::new(spec), reply));
    requests.send(request).await.ok()?;
    Some(match answer.await.ok()? {
        Ok(unavailable) => Answer::Registered { unavailable },
        Err(error) => {
            let (code, field) = match error {
                RegisterError::Known => ("known_job", Some("job")),
                RegisterError::TooMany => ("too_many", None),
                RegisterError::NoSuchCgroup(_) | RegisterError::NoCgroup => ("invalid", Some("cgroups")),
            };
            Answer::refused(Refusal::new(code, field, &error.to_string()))
        }
    })
}

fn counts(counters: &Counters) -> Counts {
    Counts {
        due: counters.due.load(Relaxed),
        taken: counters.taken.load(Relaxed),
        late: counters.late.load(Relaxed),
        missed: counters.missed.load(Relaxed),
        absent: counters.absent.load(Relaxed),
        dropped: counters.dropped.load(Relaxed),
        frames_sent: counters.frames_sent.load(Relaxed),
        frames_acknowledged: counters.frames_acknowledged.load(Relaxed),
        bytes_sent: counters.bytes_sent.load(Relaxed),
        outbox_bytes: counters.outbox_bytes.load(Relaxed),
        cpu_ns: clock::process_cpu_ns(),
        resident_bytes: crate::source::own::resident_bytes(),
    }
}
