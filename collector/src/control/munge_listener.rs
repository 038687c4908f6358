//! Listener for other machines: TCP, with a MUNGE credential for each request.
//!
//! The collector begins with a nonce. The request is the payload of a MUNGE credential, after a fixed text
//! and the nonce, so that a credential is not accepted if it was made for another purpose or collector, or
//! was intercepted. One request per connection, or a session of reading.

use std::io;
use std::net::TcpListener as StdListener;
use std::sync::Arc;

use polymeter_proto::control::{CollectorAnswer, Greeting, ReadRequest, Refusal, signed_request};
use polymeter_service::clock;
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::info;

use super::connection_limits::accept;
use super::coordinator::Coordinator;
use super::line_io;
use super::munge::Unmunge;
use super::nonce::nonce;
use crate::limits;
use crate::reading::{ClientStream, ReadSessions, serve as serve_reading};
use polymeter_service::silent_connections::SilentConnections;

pub(super) fn listen(address: &str) -> io::Result<StdListener> {
    let listener = StdListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

pub(super) async fn serve(
    listener: StdListener,
    unmunge: Unmunge,
    coordinator: Arc<Coordinator>,
    sessions: ReadSessions,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let unmunges = Arc::new(Semaphore::new(limits::UNMUNGE_PROCESSES));
    let places = Arc::new(Semaphore::new(limits::CONTROL_CONNECTIONS));
    let mut silent = SilentConnections::new(limits::CONTROL_CONNECTIONS);
    loop {
        let Some((stream, peer)) = accept(listener.accept().await).await else { continue };
        let (coordinator, unmunge, unmunges) =
            (Arc::clone(&coordinator), unmunge.clone(), Arc::clone(&unmunges));
        let (sessions, places) = (sessions.clone(), Arc::clone(&places));
        let task = tokio::spawn(async move {
            // An error of a connection concerns only its client, which has disconnected.
            let Ok(received) = receive(stream).await else { return };
            let Ok(place) = places.acquire_owned().await else { return };
            // Another task: only one that waits for its client gives way to others.
            tokio::spawn(async move {
                serve_connection(received, (&unmunge, &unmunges), &coordinator, &sessions).await.ok();
                drop(place);
            });
        });
        silent.add(peer.ip(), task.abort_handle());
        tokio::task::yield_now().await;
    }
}

/// A connection, its nonce, and the credential that the client sent; none if it closed the connection.
struct Received {
    stream: BufReader<TcpStream>,
    nonce: String,
    credential: Result<Option<Vec<u8>>, Refusal>,
}

async fn receive(stream: TcpStream) -> io::Result<Received> {
    let mut stream = BufReader::new(stream);
    let nonce = nonce()?;
    let greeting = Greeting::new(nonce.clone(), env!("CARGO_PKG_VERSION"), clock::realtime_us());
    line_io::write(&mut stream, greeting.to_line().as_bytes()).await?;
    let credential = line_io::read(&mut stream, limits::CREDENTIAL_BYTES).await?;
    Ok(Received { stream, nonce, credential })
}

async fn serve_connection(
    received: Received,
    (unmunge, unmunges): (&Unmunge, &Semaphore),
    coordinator: &Arc<Coordinator>,
    sessions: &ReadSessions,
) -> io::Result<()> {
    let Received { mut stream, nonce, credential } = received;
    let answer = match credential {
        Ok(None) => return Ok(()),
        Err(refusal) => CollectorAnswer::Refused(refusal),
        Ok(Some(credential)) => match authenticate(&credential, &nonce, unmunge, unmunges).await {
            Ok((uid, request)) => match ReadRequest::parse(&request) {
                None => coordinator.answer(uid, &request).await,
                Some(read) => match read.and_then(|_| sessions.acquire(uid)) {
                    Ok(permit) => {
                        let received = stream.buffer().to_vec();
                        let stream = stream.into_inner().into_std()?;
                        return serve_reading(permit, ClientStream::Tcp(stream), received);
                    }
                    Err(refusal) => CollectorAnswer::Refused(refusal),
                },
            },
            Err(refusal) => {
                info!(error = %refusal.message, "cannot accept a request");
                CollectorAnswer::Refused(refusal)
            }
        },
    };
    line_io::write(&mut stream, &answer.to_line()).await
}

async fn authenticate(
    credential: &[u8],
    nonce: &str,
    unmunge: &Unmunge,
    unmunges: &Semaphore,
) -> Result<(u32, Vec<u8>), Refusal> {
    let _permit = unmunges.acquire().await;
    let credential = unmunge.decode(credential).await?;
    let request = signed_request(&credential.payload, nonce).ok_or_else(|| {
        let message = "invalid credential: it was created for another purpose or connection";
        Refusal::new("credential", None, message)
    })?;
    Ok((credential.uid, request.to_vec()))
}
