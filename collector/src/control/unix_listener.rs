//! Listener for this machine: a Unix socket, whose clients the kernel identifies.

use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::Arc;

use polymeter_proto::control::{CollectorAnswer, ReadRequest, Refusal};
use tokio::io::BufReader;
use tokio::net::{UnixListener, UnixStream};

use super::connection_limits::{ConnectionLimits, accept};
use super::coordinator::Coordinator;
use super::line_io;
use crate::limits;
use crate::reading::{ClientStream, ReadSessions, serve as serve_reading};

pub(super) async fn serve(
    listener: StdListener,
    coordinator: Arc<Coordinator>,
    sessions: ReadSessions,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let mut limits = ConnectionLimits::default();
    loop {
        let Some((stream, _)) = accept(listener.accept().await).await else { continue };
        let Ok(uid) = stream.peer_cred().map(|peer| peer.uid()) else { continue };
        let (coordinator, sessions) = (Arc::clone(&coordinator), sessions.clone());
        let permit = limits.acquire(uid);
        tokio::spawn(async move {
            // An error of a connection concerns only its client, which has disconnected.
            match permit {
                Some(_permit) => serve_connection(stream, uid, &coordinator, &sessions).await.ok(),
                None => refuse(stream).await.ok(),
            };
        });
    }
}

async fn refuse(mut stream: UnixStream) -> io::Result<()> {
    let busy = Refusal::new("busy", None, "too many connections of this user; try again in a moment");
    line_io::write(&mut stream, &CollectorAnswer::Refused(busy).to_line()).await
}

async fn serve_connection(
    stream: UnixStream,
    uid: u32,
    coordinator: &Arc<Coordinator>,
    sessions: &ReadSessions,
) -> io::Result<()> {
    // The collector's own user has the rights of root.
    let uid = if uid == rustix::process::geteuid().as_raw() { 0 } else { uid };
    let mut stream = BufReader::new(stream);
    loop {
        let answer = match line_io::read(&mut stream, limits::REQUEST_BYTES).await? {
            Ok(None) => return Ok(()),
            Ok(Some(request)) => match ReadRequest::parse(&request) {
                None => coordinator.answer(uid, &request).await,
                Some(read) => match read.and_then(|_| sessions.acquire(uid)) {
                    Ok(permit) => {
                        let received = stream.buffer().to_vec();
                        let stream = stream.into_inner().into_std()?;
                        return serve_reading(permit, ClientStream::Unix(stream), received);
                    }
                    Err(refusal) => CollectorAnswer::Refused(refusal),
                },
            },
            Err(refusal) => {
                return line_io::write(&mut stream, &CollectorAnswer::Refused(refusal).to_line()).await;
            }
        };
        line_io::write(&mut stream, &answer.to_line()).await?;
    }
}
