//! The control socket: one JSON object per line in each direction, and always an answer.
//!
//! The kernel says who asks. Root and the user as whom the agent runs may do all; anybody else may look at the jobs that
//! she owns, and change how they are sampled, for a while.

mod office;
mod wire;

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use polymeter_proto::series::SessionId;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};

use crate::counters::Counters;
use crate::log;
use crate::request::Request;

use office::Office;
pub use wire::{
    Answer, Counts, Lease, PlanLine, Predicted, Refusal, Register, SourceStatus, Status, SubjectStatus, Verb,
};

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
    let office = Office::new(stream.peer_cred()?.uid(), requests, context);
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
            Ok(verb) => office.answer(verb).await,
            Err(refusal) => Answer::refused(refusal),
        };
        // Who does not read her answers is not waited for.
        match tokio::time::timeout(SILENCE, write.write_all(&answer.line())).await {
            Ok(written) => written?,
            Err(_) => return Ok(()),
        }
    }
}
