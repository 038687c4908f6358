//! The receiver: the one thread that owns the socket. It hands on what comes, sends what is answered, and waits for
//! neither the store nor an agent.
//!
//! When a writer's inbox is full it stops reading: ZeroMQ's queues fill, then the connections, and the data wait with the
//! agents. Acknowledgements still go out, since they are what makes room there.

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
use crate::clock::Clock;
use crate::fair_queue::Offered;
use crate::gate::Admission;
use crate::inbox::{Answer, Heard, InboxSender, Peer, Received, Waker};
use crate::ingest::session_of;
use crate::limits;
use crate::metrics::Metrics;
use crate::refusal::{Refusal, RefusalKind};
use crate::stop::Stop;

/// The receiver's thread.
pub(crate) struct Receiver {
    pub(crate) socket: Socket,
    pub(crate) waker: Waker,
    /// One per writer; none any more once the socket is drained at the stop.
    pub(crate) inboxes: Vec<InboxSender>,
    pub(crate) answers: mpsc::Receiver<Answer>,
    /// Where what agents answer to users goes; none where nobody can ask.
    pub(crate) control: Option<tokio::sync::mpsc::Sender<Heard>>,
    pub(crate) clock: Clock,
    pub(crate) stop: Stop,
    /// Who may send; none where everybody may.
    pub(crate) admission: Option<Arc<Admission>>,
    pub(crate) metrics: Arc<Metrics>,
}

/// What the loop waits for next.
enum Wait {
    /// The socket or a writer, for ever or for a time.
    For(Option<Duration>),
    /// Nothing: all writers have gone.
    Nothing,
}

impl Receiver {
    /// Works until the stop is wished, the socket is drained, and the last writer has gone. Says how many messages were
    /// not understood.
    pub(crate) fn run(mut self) -> u64 {
        let mut refusals = Refusals::default();
        let mut held = None;
        loop {
            let wait = self.send_answers(&mut refusals);
            let came = self.receive(&mut held, &mut refusals);
            let wait = self.when_stopping(wait, came, held.is_some());
            match wait {
                Wait::Nothing => return refusals.count(),
                Wait::For(_) if came == limits::RECEIVE_BURST => {}
                Wait::For(patience) => {
                    let reads = held.is_none() && !self.inboxes.is_empty();
                    if let Err(zmq::Error::ETERM | zmq::Error::ENOTSOCK) =
                        poll(&self.socket, reads, self.waker.raw_fd(), patience)
                    {
                        // Whoever gave the context took it back: nothing can come or go any more.
                        return refusals.count();
                    }
                    gather();
                }
            }
        }
    }

    /// Closes the inboxes once the stop is wished and nothing more comes.
    fn when_stopping(&mut self, wait: Wait, came: usize, holds: bool) -> Wait {
        let Some(since) = self.stop.since() else { return wait };
        if self.inboxes.is_empty() {
            return wait;
        }
        let (quiet, at_most) = limits::STOP_DRAIN;
        let is_over = self.clock.now().since_start.saturating_sub(since) >= at_most;
        let is_quiet = came == 0 && !holds && matches!(self.socket.poll(POLLIN, millis(quiet)), Ok(0));
        if is_over || is_quiet {
            self.inboxes.clear();
        }
        // Look again at once: something may have come, or the writers may have gone.
        match wait {
            Wait::For(_) => Wait::For(Some(quiet)),
            Wait::Nothing => Wait::Nothing,
        }
    }

    fn send_answers(&self, refusals: &mut Refusals) -> Wait {
        self.waker.rest();
        loop {
            match self.answers.try_recv() {
                Ok(Answer::Message(peer, message)) => self.send(&peer, &message),
                Ok(Answer::Refusal(peer, why, frame)) => self.refuse(&peer, &why, frame, refusals),
                Err(TryRecvError::Empty) => return Wait::For(None),
                Err(TryRecvError::Disconnected) => return Wait::Nothing,
            }
        }
    }

    fn send(&self, peer: &Peer, message: &ToAgent) {
        // An agent that has gone, or does not read, gets the answer when it sends again.
        if self.socket.send_multipart([peer.as_bytes(), &message.encode()], DONTWAIT).is_ok() {
            self.metrics.sent.add(1);
        }
    }

    fn refuse(
        &self,
        peer: &Peer,
        refusal: &Refusal,
        frame: Option<(SessionId, u64)>,
        refusals: &mut Refusals,
    ) {
        self.metrics.refused(refusal.kind);
        if refusals.note(peer, refusal, self.clock.now().since_start) {
            let reason = refusal.why.chars().take(polymeter_proto::limits::TEXT_BYTES / 4).collect();
            self.send(peer, &ToAgent::Refused { reason, versions: (VERSION, VERSION), frame });
        }
    }

    /// Hands on what lies in the socket, and says how many messages that were. What finds no room is held, and nothing is
    /// read until it has found some.
    fn receive(&self, held: &mut Option<(usize, Received)>, refusals: &mut Refusals) -> usize {
        if let Some((writer, message)) = held.take() {
            *held = self.hand_on(writer, message, refusals);
        }
        let mut came = 0;
        while held.is_none() && came < limits::RECEIVE_BURST && !self.inboxes.is_empty() {
            let Some((peer, payload)) = self.next() else { break };
            came += 1;
            match payload.and_then(|bytes| Ok((peek(&bytes)?, bytes))) {
                Ok((For::Writer(session), bytes)) => {
                    *held = self.hand_on(self.writer_for(session), Received { peer, bytes }, refusals);
                }
                Ok((For::Control(session, ask, line), _)) => {
                    let heard = Heard { peer, session, ask, line };
                    if let Some(control) = &self.control {
                        // Without room it is not heard, and the user reads that there was no answer.
                        control.try_send(heard).ok();
                    }
                }
                Err(why) => self.refuse(&peer, &why, None, refusals),
            }
        }
        came
    }

    fn hand_on(
        &self,
        writer: usize,
        message: Received,
        refusals: &mut Refusals,
    ) -> Option<(usize, Received)> {
        let peer = message.peer.clone();
        match self.inboxes.get(writer)?.offer(message, self.clock.now().since_start) {
            Offered::Taken => None,
            Offered::NoRoom(message) => Some((writer, message)),
            // An agent sends it again: it may send its window twice while the store is away.
            Offered::TooMany => {
                self.metrics.dropped.add(1);
                None
            }
            Offered::Muted => {
                self.metrics.dropped.add(1);
                let why = "it sends more than it should that is of no use".to_owned();
                self.refuse(&peer, &Refusal { kind: RefusalKind::Useless, why }, None, refusals);
                None
            }
        }
    }

    /// The next message and who sent it, if there is one.
    fn next(&self) -> Option<(Peer, Result<zmq::Message, Refusal>)> {
        let refusal = |kind, why: &str| Err(Refusal { kind, why: why.to_owned() });
        let routing_id = self.socket.recv_msg(DONTWAIT).ok()?;
        let peer = Peer::from(&*routing_id);
        if !routing_id.get_more() {
            return Some((peer, refusal(RefusalKind::Undecodable, "a message without a part")));
        }
        let mut payload = self.socket.recv_msg(DONTWAIT).ok()?;
        self.metrics.received.add(1);
        self.metrics.received_bytes.add(payload.len() as u64);
        let mut more = payload.get_more();
        let single = !more;
        while more {
            more = self.socket.recv_msg(DONTWAIT).is_ok_and(|part| part.get_more());
        }
        let peer = match &self.admission {
            None => peer,
            Some(admission) => match admission.who(payload.gets("User-Id")) {
                Some(admitted) => peer.bound_to(admitted.node),
                None => {
                    return Some((
                        peer,
                        refusal(RefusalKind::Key, "the key of this connection is not authorised"),
                    ));
                }
            },
        };
        let several = || refusal(RefusalKind::Undecodable, "a message of several parts");
        Some((peer, if single { Ok(payload) } else { several() }))
    }

    /// The writer of a session, the same one for all its life.
    fn writer_for(&self, session: SessionId) -> usize {
        let writers = self.inboxes.len().max(1) as u64;
        usize::try_from(session.0 % writers).unwrap_or_default()
    }
}

/// Whom something is for that an agent sent.
#[derive(Debug, PartialEq, Eq)]
enum For {
    /// The writer of this session.
    Writer(SessionId),
    /// Control: an answer of this session to the request with this number.
    Control(SessionId, u64, ControlLine),
}

/// Whom a frame or message is for, before anything else of it is believed.
fn peek(bytes: &[u8]) -> Result<For, DecodeError> {
    let (magic, rest) = bytes.split_first_chunk::<3>().ok_or(DecodeError::Truncated)?;
    let (version, rest) = rest.split_first().ok_or(DecodeError::Truncated)?;
    match (*magic, *version) {
        (frame::MAGIC, VERSION) => {
            let session = rest.first_chunk::<8>().ok_or(DecodeError::Truncated)?;
            Ok(For::Writer(SessionId(u64::from_le_bytes(*session))))
        }
        (message::MAGIC, VERSION) => {
            // The writer decodes what is for it: no message is decoded twice, and none here that is not for control.
            if let Some(session) = ToCollector::peek(bytes)? {
                return Ok(For::Writer(session));
            }
            Ok(match ToCollector::decode(bytes)? {
                ToCollector::Answered { session, ask, line } => For::Control(session, ask, line),
                message @ (ToCollector::Dictionary { .. } | ToCollector::Skipped { .. }) => {
                    For::Writer(session_of(&message))
                }
            })
        }
        (frame::MAGIC | message::MAGIC, found) => Err(DecodeError::Version { found }),
        _ => Err(DecodeError::Magic),
    }
}

/// Waits for a message on the socket, where `reads`, or a call of the waker.
fn poll(socket: &Socket, reads: bool, waker: RawFd, patience: Option<Duration>) -> zmq::Result<()> {
    let events = if reads { POLLIN } else { zmq::PollEvents::empty() };
    let mut items = [socket.as_poll_item(events), PollItem::from_fd(waker, POLLIN)];
    zmq::poll(&mut items, patience.map_or(-1, millis)).map(drop)
}

/// Lets more come, so that it is handed on together.
fn gather() {
    // Cut short by a signal, it is one round more.
    rustix::event::poll(&mut [], Timespec::try_from(limits::GATHER).ok().as_ref()).ok();
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_protocol_is_handed_on() {
        assert_eq!(peek(b"PLM\x01\x07\0\0\0\0\0\0\0"), Ok(For::Writer(SessionId(7))));
        assert_eq!(peek(b"PLM\x01\x07\0\0\0"), Err(DecodeError::Truncated));
        assert_eq!(peek(b"PLM\x02\x07\0\0\0\0\0\0\0"), Err(DecodeError::Version { found: 2 }));
        assert_eq!(peek(b"GET / HTTP/1.1"), Err(DecodeError::Magic));
        assert_eq!(peek(b""), Err(DecodeError::Truncated));
        let message = ToCollector::Dictionary { session: SessionId(9), entries: Vec::new() };
        assert_eq!(peek(&message.encode()), Ok(For::Writer(SessionId(9))));
        let line: ControlLine = "{}".try_into().unwrap();
        let answer = ToCollector::Answered { session: SessionId(9), ask: 3, line: line.clone() };
        assert_eq!(peek(&answer.encode()), Ok(For::Control(SessionId(9), 3, line)));
    }
}
