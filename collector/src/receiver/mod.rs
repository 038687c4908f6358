//! Receiver: the only thread that owns the socket. It distributes messages, sends answers, and waits
//! neither for the store nor for an agent.
//!
//! While a writer's queue is full it does not read: ZeroMQ's queues fill, then the connections, and the data
//! wait in the agents' outboxes. Acknowledgements are still sent, since they free memory there.

mod refusals;
mod socket;

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

use polymeter_proto::series::SessionId;
use polymeter_proto::wire::control::ControlLine;
use polymeter_proto::wire::message::{ToAgent, ToCollector};
use polymeter_proto::wire::{DecodeError, VERSION, frame, message};
use rustix::event::Timespec;
use zmq::{DONTWAIT, POLLIN, PollItem, Socket};

use self::refusals::Refusals;
pub(crate) use self::socket::make as make_socket;
use polymeter_service::clock::Clock;

use crate::auth::AuthorisedKeys;
use crate::fair_queue::Offered;
use crate::ingest::session_of;
use crate::limits;
use crate::metrics::Metrics;
use crate::queues::WriterQueueSender;
use crate::refusal::{MessageRefusal, RefusalKind};
use crate::session_messages::{AgentAnswer, Outgoing, Peer, ReceivedMessage};
use crate::shutdown::Shutdown;
use crate::waker::Waker;

pub(crate) struct Receiver {
    pub(crate) socket: Socket,
    pub(crate) waker: Waker,
    /// One queue per writer; empty after the socket is drained at shutdown.
    pub(crate) queues: Vec<WriterQueueSender>,
    pub(crate) outgoing: mpsc::Receiver<Outgoing>,
    pub(crate) control: tokio::sync::mpsc::Sender<AgentAnswer>,
    pub(crate) clock: Clock,
    pub(crate) shutdown: Shutdown,
    /// Agents that may send; none if all may.
    pub(crate) authorised: Option<Arc<AuthorisedKeys>>,
    pub(crate) metrics: Arc<Metrics>,
}

enum Next {
    /// Waits for the socket or a writer, without limit if there is no timeout.
    Wait(Option<Duration>),
    Return,
}

impl Receiver {
    /// Works until the shutdown is requested, the socket is drained, and the last writer has ended. Returns
    /// the number of refused messages.
    pub(crate) fn run(mut self) -> u64 {
        let mut refusals = Refusals::default();
        let mut held = None;
        loop {
            let next = self.send_outgoing(&mut refusals);
            let received = self.receive(&mut held, &mut refusals);
            let next = self.close_when_drained(next, received, held.is_some());
            match next {
                Next::Return => return refusals.count(),
                Next::Wait(_) if received == limits::RECEIVE_BURST => {}
                Next::Wait(timeout) => {
                    let reads = held.is_none() && !self.queues.is_empty();
                    if let Err(zmq::Error::ETERM | zmq::Error::ENOTSOCK) =
                        poll(&self.socket, reads, self.waker.raw_fd(), timeout)
                    {
                        // The context was destroyed: no message can be received or sent.
                        return refusals.count();
                    }
                    collect_more();
                }
            }
        }
    }

    /// Closes the writers' queues after the shutdown is requested and no more messages arrive.
    fn close_when_drained(&mut self, next: Next, received: usize, holds: bool) -> Next {
        let Some(since) = self.shutdown.requested_at() else { return next };
        if self.queues.is_empty() {
            return next;
        }
        let (silence, at_most) = limits::SHUTDOWN_DRAIN;
        let is_over = self.clock.now().since_start.saturating_sub(since) >= at_most;
        let is_silent = received == 0 && !holds && matches!(self.socket.poll(POLLIN, millis(silence)), Ok(0));
        if is_over || is_silent {
            self.queues.clear();
        }
        // It checks again soon: a message may have arrived, or the writers may have ended.
        match next {
            Next::Wait(_) => Next::Wait(Some(silence)),
            Next::Return => Next::Return,
        }
    }

    fn send_outgoing(&self, refusals: &mut Refusals) -> Next {
        self.waker.clear();
        loop {
            match self.outgoing.try_recv() {
                Ok(Outgoing::Message(peer, message)) => self.send(&peer, &message),
                Ok(Outgoing::MessageRefusal(peer, refusal, frame)) => {
                    self.refuse(&peer, &refusal, frame, refusals)
                }
                Err(TryRecvError::Empty) => return Next::Wait(None),
                Err(TryRecvError::Disconnected) => return Next::Return,
            }
        }
    }

    fn send(&self, peer: &Peer, message: &ToAgent) {
        // An agent that is disconnected, or does not read, gets the message when it sends again.
        if self.socket.send_multipart([peer.as_bytes(), &message.encode()], DONTWAIT).is_ok() {
            self.metrics.sent_messages.inc();
        }
    }

    fn refuse(
        &self,
        peer: &Peer,
        refusal: &MessageRefusal,
        frame: Option<(SessionId, u64)>,
        refusals: &mut Refusals,
    ) {
        self.metrics.refused_messages.add(refusal.kind.as_str(), 1);
        if refusals.note(peer, refusal, self.clock.now().since_start) {
            let reason = refusal.reason.chars().take(polymeter_proto::limits::TEXT_BYTES / 4).collect();
            self.send(peer, &ToAgent::Refused { reason, frame });
        }
    }

    /// Distributes the messages in the socket, and returns their number. A message without room in its queue
    /// is held, and no other is read until it has room.
    fn receive(&self, held: &mut Option<(usize, ReceivedMessage)>, refusals: &mut Refusals) -> usize {
        if let Some((writer, message)) = held.take() {
            *held = self.distribute(writer, message, refusals);
        }
        let mut received = 0;
        while held.is_none() && received < limits::RECEIVE_BURST && !self.queues.is_empty() {
            let Some((peer, payload)) = self.next() else { break };
            received += 1;
            match payload.and_then(|bytes| Ok((peek(&bytes)?, bytes))) {
                Ok((Recipient::Writer(session), bytes)) => {
                    let message = ReceivedMessage { peer, bytes: Box::from(&*bytes) };
                    *held = self.distribute(self.writer_for(session), message, refusals);
                }
                Ok((Recipient::Control(session, request, line), _)) => {
                    let answer = AgentAnswer { peer, session, request, line };
                    // Without room the answer is dropped, and counts as missing.
                    self.control.try_send(answer).ok();
                }
                Err(refusal) => self.refuse(&peer, &refusal, None, refusals),
            }
        }
        received
    }

    fn distribute(
        &self,
        writer: usize,
        message: ReceivedMessage,
        refusals: &mut Refusals,
    ) -> Option<(usize, ReceivedMessage)> {
        let peer = message.peer.clone();
        match self.queues.get(writer)?.offer(message, self.clock.now().since_start) {
            Offered::Queued => None,
            Offered::QueueFull(message) => Some((writer, message)),
            // The agent sends it again: while the store is unreachable it may send its window twice.
            Offered::PeerQueueFull => {
                self.metrics.dropped_messages.inc();
                None
            }
            Offered::Muted => {
                self.metrics.dropped_messages.inc();
                let reason = "too many messages of the peer contain nothing to store".to_owned();
                self.refuse(&peer, &MessageRefusal { kind: RefusalKind::Useless, reason }, None, refusals);
                None
            }
        }
    }

    fn next(&self) -> Option<(Peer, Result<zmq::Message, MessageRefusal>)> {
        let refusal = |kind, reason: &str| Err(MessageRefusal { kind, reason: reason.to_owned() });
        let routing_id = self.socket.recv_msg(DONTWAIT).ok()?;
        let peer = Peer::from(&*routing_id);
        if !routing_id.get_more() {
            return Some((peer, refusal(RefusalKind::Undecodable, "the message is empty")));
        }
        let mut payload = self.socket.recv_msg(DONTWAIT).ok()?;
        self.metrics.received_messages.inc();
        self.metrics.received_bytes.inc_by(payload.len() as u64);
        let mut more = payload.get_more();
        let single = !more;
        while more {
            more = self.socket.recv_msg(DONTWAIT).is_ok_and(|part| part.get_more());
        }
        let peer = match &self.authorised {
            None => peer,
            Some(keys) => match keys.authenticate(payload.gets("User-Id")) {
                Some(agent) => peer.bound_to(agent.node),
                None => {
                    return Some((
                        peer,
                        refusal(RefusalKind::Key, "the key of this connection is not authorised"),
                    ));
                }
            },
        };
        if single {
            Some((peer, Ok(payload)))
        } else {
            Some((peer, refusal(RefusalKind::Undecodable, "the message has several parts")))
        }
    }

    /// The same for all messages of the session.
    fn writer_for(&self, session: SessionId) -> usize {
        let writers = self.queues.len().max(1) as u64;
        usize::try_from(session.0 % writers).unwrap_or_default()
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Recipient {
    Writer(SessionId),
    /// Session and number of the request that is answered.
    Control(SessionId, u64, ControlLine),
}

/// Reads the recipient of a frame or message without decoding the rest.
fn peek(bytes: &[u8]) -> Result<Recipient, DecodeError> {
    let (magic, rest) = bytes.split_first_chunk::<3>().ok_or(DecodeError::Truncated)?;
    let (version, rest) = rest.split_first().ok_or(DecodeError::Truncated)?;
    match (*magic, *version) {
        (frame::MAGIC, VERSION) => {
            let session = rest.first_chunk::<8>().ok_or(DecodeError::Truncated)?;
            Ok(Recipient::Writer(SessionId(u64::from_le_bytes(*session))))
        }
        (message::MAGIC, VERSION) => {
            // The writer decodes its messages: only those for control are decoded here.
            if let Some(session) = ToCollector::peek(bytes)? {
                return Ok(Recipient::Writer(session));
            }
            Ok(match ToCollector::decode(bytes)? {
                ToCollector::Answer { session, request, line } => Recipient::Control(session, request, line),
                message @ (ToCollector::Dictionary { .. } | ToCollector::Skipped { .. }) => {
                    Recipient::Writer(session_of(&message))
                }
            })
        }
        (frame::MAGIC | message::MAGIC, found) => Err(DecodeError::Version { found }),
        _ => Err(DecodeError::Magic),
    }
}

/// Waits for a message on the socket, if `reads`, or for the waker.
fn poll(socket: &Socket, reads: bool, waker: RawFd, timeout: Option<Duration>) -> zmq::Result<()> {
    let events = if reads { POLLIN } else { zmq::PollEvents::empty() };
    let mut items = [socket.as_poll_item(events), PollItem::from_fd(waker, POLLIN)];
    zmq::poll(&mut items, timeout.map_or(-1, millis)).map(drop)
}

/// Waits, so that several messages are distributed together.
fn collect_more() {
    // If a signal ends the wait early, the loop runs once more.
    rustix::event::poll(&mut [], Timespec::try_from(limits::COLLECT_DURATION).ok().as_ref()).ok();
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_another_version_with_a_reason() {
        let refused = peek(b"PLM\x02\x07\0\0\0\0\0\0\0").unwrap_err();
        let reason = "protocol version 2 is not supported: this program supports version 1";
        assert_eq!(refused.to_string(), reason);
        assert_eq!(peek(b"PLC\x02\0\0"), Err(DecodeError::Version { found: 2 }));
    }

    #[test]
    fn only_messages_of_this_protocol_have_a_recipient() {
        assert_eq!(peek(b"PLM\x01\x07\0\0\0\0\0\0\0"), Ok(Recipient::Writer(SessionId(7))));
        assert_eq!(peek(b"PLM\x01\x07\0\0\0"), Err(DecodeError::Truncated));
        assert_eq!(peek(b"PLM\x02\x07\0\0\0\0\0\0\0"), Err(DecodeError::Version { found: 2 }));
        assert_eq!(peek(b"GET / HTTP/1.1"), Err(DecodeError::Magic));
        assert_eq!(peek(b""), Err(DecodeError::Truncated));
        let message = ToCollector::Dictionary { session: SessionId(9), entries: Vec::new() };
        assert_eq!(peek(&message.encode()), Ok(Recipient::Writer(SessionId(9))));
        let line: ControlLine = "{}".try_into().unwrap();
        let answer = ToCollector::Answer { session: SessionId(9), request: 3, line: line.clone() };
        assert_eq!(peek(&answer.encode()), Ok(Recipient::Control(SessionId(9), 3, line)));
    }
}
