//! Messages between the collector's threads, and the peers that they concern.

use std::sync::Arc;

use polymeter_proto::series::{Identifier, SessionId};
use polymeter_proto::wire::control::ControlLine;
use polymeter_proto::wire::message::ToAgent;

use crate::refusal::MessageRefusal;

/// Connection of an agent: the routing id that the ROUTER socket assigned, and the node that its key permits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Peer {
    routing_id: Arc<[u8]>,
    node: Option<Arc<Identifier>>,
}

impl From<&[u8]> for Peer {
    fn from(routing_id: &[u8]) -> Self {
        Self { routing_id: routing_id.into(), node: None }
    }
}

impl Peer {
    /// Restricts the peer to `node`, if there is one.
    pub fn bound_to(self, node: Option<Arc<Identifier>>) -> Self {
        Self { node, ..self }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.routing_id
    }

    /// Only node whose data the peer may send; none if it may send data of any node.
    pub fn node(&self) -> Option<&Identifier> {
        self.node.as_deref()
    }
}

/// A message from an agent, not yet decoded.
#[derive(Debug)]
pub(crate) struct ReceivedMessage {
    pub(crate) peer: Peer,
    /// A copy: a short message of ZeroMQ holds the whole buffer of its connection, 18 KiB with 4.3, for as
    /// long as it exists.
    pub(crate) bytes: Box<[u8]>,
}

#[derive(Debug)]
pub(crate) struct AgentAnswer {
    pub(crate) peer: Peer,
    pub(crate) session: SessionId,
    pub(crate) request: u64,
    pub(crate) line: ControlLine,
}

#[derive(Debug)]
pub(crate) enum Outgoing {
    Message(Peer, ToAgent),
    /// Has the session and sequence number if the message was a frame. The receiver decides whether it is
    /// answered.
    MessageRefusal(Peer, MessageRefusal, Option<(SessionId, u64)>),
}
