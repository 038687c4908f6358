//! Messages of agents: decoding and execution.

use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame::{self, Frame};
use polymeter_proto::wire::message::ToCollector;
use polymeter_service::log::chain;
use tracing::warn;

use super::state::Writer;
use super::store_access::NotStored;
use crate::ingest::{Rejection, Verdict, session_of};
use crate::refusal::MessageRefusal;
use crate::session_messages::{Outgoing, Peer, ReceivedMessage};

impl Writer {
    /// Returns true if the message is useful: if a part of it is to be stored.
    pub(super) fn handle_message(&mut self, ReceivedMessage { peer, bytes }: ReceivedMessage) -> bool {
        if self.given_up {
            self.totals.given_up += 1;
            return true;
        }
        let verdict = if bytes.starts_with(&frame::MAGIC) {
            Frame::decode(&bytes).map(|frame| self.handle_frame(&peer, frame))
        } else {
            ToCollector::decode(&bytes).map(|message| self.handle_request(&peer, message))
        };
        if let Some(info) = self.ingest.take_changes() {
            self.links.directory.update(info);
        }
        match verdict {
            Ok(verdict) => {
                let is_useful = matches!(verdict, Verdict::Accepted(_) | Verdict::Rejected(..));
                self.apply(peer, verdict);
                is_useful
            }
            Err(error) => {
                self.links.outgoing.send(Outgoing::MessageRefusal(
                    peer,
                    MessageRefusal::from(error),
                    Frame::peek(&bytes),
                ));
                false
            }
        }
    }

    fn handle_frame(&mut self, peer: &Peer, frame: Frame) -> Verdict {
        if !self.open_session(frame.session, peer) {
            return Verdict::Nothing;
        }
        self.ingest.frame(peer, frame, self.clock.now())
    }

    fn handle_request(&mut self, peer: &Peer, message: ToCollector) -> Verdict {
        if !self.open_session(session_of(&message), peer) {
            return Verdict::Nothing;
        }
        self.ingest.message(peer, message, self.clock.now())
    }

    /// Opens the session after its last stored frame, unless it is known. Returns false if that is currently
    /// impossible.
    fn open_session(&mut self, session: SessionId, peer: &Peer) -> bool {
        if self.ingest.knows(session) {
            return true;
        }
        match self.persist(|store| store.last_sequence(session)) {
            Ok(last) => self.ingest.open(session, peer, last, self.clock.now()),
            Err(NotStored::GivenUp) => false,
            Err(NotStored::StoreLost) => {
                self.reset();
                false
            }
            Err(NotStored::Refused(error)) => {
                warn!(error = %chain(&error), %session, "cannot look up a session");
                false
            }
        }
    }

    fn apply(&mut self, peer: Peer, verdict: Verdict) {
        match verdict {
            Verdict::Accepted(accepted) => self.gather(accepted),
            Verdict::Rejected(accepted, Rejection { reason, events }) => {
                self.totals.lost_events += events as u64;
                warn!(
                    error = reason,
                    remedy = "the rest is counted as lost",
                    events,
                    session = %accepted.session.id,
                    node = %accepted.session.descriptor.node,
                    frame = accepted.sequence,
                    "cannot store all of a frame"
                );
                self.gather(accepted);
            }
            Verdict::Repeated(ack) => {
                self.totals.repeated += 1;
                if let Some(ack) = ack.filter(|_| self.is_store_there()) {
                    self.links.outgoing.send(Outgoing::Message(peer, ack));
                }
            }
            Verdict::Ask(request) => self.links.outgoing.send(Outgoing::Message(peer, request)),
            Verdict::Refused(why) => self.links.outgoing.send(Outgoing::MessageRefusal(peer, why, None)),
            Verdict::Nothing => {}
        }
    }
}
