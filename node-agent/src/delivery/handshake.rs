//! A test whether a collector accepts this node's agent.

use polymeter_proto::key::{KeyPair, PublicKey};
use polymeter_proto::series::SessionId;
use zmq::{Context, DONTWAIT};

use super::collectors::CollectorAddress;
use super::connection::{ConnectionEvent, Destination, connect, parse};
use crate::clock;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unaccepted {
    pub cause: String,
    pub remedy: String,
}

/// Tests if the collector accepts an agent with these keys: its own, and the collector's public one. Nothing
/// is sent. After `timeout_ms` the error tells why it does not.
pub fn handshake(
    context: &Context,
    endpoint: &str,
    keys: Option<(KeyPair, PublicKey)>,
    timeout_ms: u32,
) -> Result<(), Unaccepted> {
    let (own, key) = keys.unzip();
    let collector = CollectorAddress { endpoint: endpoint.to_owned(), key };
    let to = Destination { collector, own, session: SessionId(0) };
    let (_socket, monitor) = connect(context, &to, 0).map_err(|error| Unaccepted {
        cause: format!("the address cannot be used: {error}"),
        remedy: "correct `collector` in the agent's configuration".to_owned(),
    })?;
    let deadline_ns = clock::monotonic_ns().saturating_add(u64::from(timeout_ms) * 1_000_000);
    loop {
        let left_ms = deadline_ns.saturating_sub(clock::monotonic_ns()) / 1_000_000;
        if monitor.poll(zmq::POLLIN, i64::try_from(left_ms).unwrap_or(0)).unwrap_or(0) <= 0 {
            return Err(Unaccepted {
                cause: "no collector answers".to_owned(),
                remedy: "start polymeter-collector there; check the address and firewalls".to_owned(),
            });
        }
        let event = monitor.recv_multipart(DONTWAIT).unwrap_or_default();
        match event.first().and_then(|part| parse(part)) {
            Some(ConnectionEvent::Connected) => return Ok(()),
            Some(ConnectionEvent::Refused(refused)) => {
                let (cause, remedy) = refused.explain(to.own.as_ref());
                return Err(Unaccepted { cause: cause.to_owned(), remedy });
            }
            Some(ConnectionEvent::Disconnected) | None => {}
        }
    }
}
