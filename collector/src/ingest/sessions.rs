//! Sessions of one writer.

use std::collections::HashMap;

use polymeter_proto::series::SessionId;
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::Frame;
use polymeter_proto::wire::message::{SkipReason, ToAgent, ToCollector};
use polymeter_service::clock::Now;
use polymeter_store::accepted::LossReason;

use super::session::{RequestTimes, SessionState, SkippedSamples};
use super::shared_rules::Shared;
use super::times::TimeRange;
use super::verdict::Verdict;
use crate::agents::AgentInfo;
use crate::limits;
use crate::refusal::{MessageRefusal, RefusalKind};
use crate::session_messages::Peer;

#[derive(Debug, Default)]
pub struct Ingest {
    range: TimeRange,
    /// Boxed, since a hash table has up to twice as many places as elements.
    pub(super) sessions: HashMap<SessionId, Box<SessionState>>,
    /// Announced alike by several sessions.
    shared: Shared,
    pub(super) dictionary_bytes: usize,
    /// Number of sessions that never had an accepted frame, and the bytes of their dictionaries.
    pub(super) unproven: usize,
    pub(super) unproven_bytes: usize,
    /// Memory of removed dictionaries since the last [`Self::take_freed`].
    pub(super) freed_bytes: usize,
    /// Last agent whose node or jobs have changed, until it is taken.
    pub(super) changed_agent: Option<AgentInfo>,
}

impl Ingest {
    pub fn new(range: TimeRange) -> Self {
        Self { range, ..Self::default() }
    }

    pub const fn set_range(&mut self, range: TimeRange) {
        self.range = range;
    }

    /// Unknown sessions must be looked up in the store and [opened](Self::open).
    pub fn knows(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Begins a session after its stored frames, of which `committed` is the newest, or 0.
    ///
    /// Makes room by removing the session that was silent for longest, of the same peer if that has many.
    /// Returns false if there is no room, since all other sessions wait for a commit.
    pub fn open(&mut self, session: SessionId, peer: &Peer, committed: u64, now: Now) -> bool {
        let of_peer = self.sessions.values().filter(|state| state.peer == *peer).count();
        if of_peer >= limits::SESSIONS_PER_PEER && !self.forget_most_silent(|state| state.peer == *peer) {
            return false;
        }
        if self.sessions.len() >= limits::SESSIONS && !self.forget_most_silent(|_| true) {
            return false;
        }
        let state = Box::new(SessionState::new(peer, committed, now));
        self.unproven += usize::from(state.is_unproven());
        self.sessions.insert(session, state);
        true
    }

    /// Agent of the last message, if its node or jobs have changed.
    pub fn take_changes(&mut self) -> Option<AgentInfo> {
        self.changed_agent.take()
    }

    pub fn frame(&mut self, peer: &Peer, frame: Frame, now: Now) -> Verdict {
        let id = frame.session;
        if let Some(refusal) = self.refuse_node(id, peer, &frame.dictionary) {
            return Verdict::Refused(refusal);
        }
        let range = self.range;
        let verdict = self.with(id, peer, now, |state, shared| state.frame(frame, range, now, shared));
        self.bound_memory(id);
        verdict
    }

    pub fn message(&mut self, peer: &Peer, message: ToCollector, now: Now) -> Verdict {
        let id = session_of(&message);
        let entries = match &message {
            ToCollector::Dictionary { entries, .. } => entries.as_slice(),
            ToCollector::Skipped { .. } | ToCollector::Answer { .. } => &[],
        };
        if let Some(refusal) = self.refuse_node(id, peer, entries) {
            return Verdict::Refused(refusal);
        }
        let verdict = self.with(id, peer, now, |state, shared| match message {
            ToCollector::Dictionary { session, entries } => state.learn(session, entries, now, shared),
            ToCollector::Skipped { first, last, reason, span_us, lost, .. } => {
                let reason = match reason {
                    SkipReason::OutboxFull => LossReason::OutboxFull,
                    SkipReason::Refused => LossReason::Refused,
                    SkipReason::Damaged => LossReason::SpoolDamaged,
                    // A store that has these frames ignores the skip, and records no loss.
                    SkipReason::AlreadyAcknowledged => LossReason::StoreReplaced,
                };
                state.skip(id, (first, last), SkippedSamples { reason, span_us, lost }, now)
            }
            // The receiver passes it to control.
            ToCollector::Answer { .. } => Verdict::Nothing,
        });
        self.bound_memory(id);
        verdict
    }

    /// Refuses messages for a node that the peer's key does not permit: in a session of another node, or with
    /// `entries` that would assign the session to another node. They do not change the session.
    fn refuse_node(&self, id: SessionId, peer: &Peer, entries: &[Entry]) -> Option<MessageRefusal> {
        let own = peer.node()?;
        let session = self.sessions.get(&id).and_then(|state| state.dictionary.session().ok());
        let announced = entries.iter().filter_map(|entry| match entry {
            Entry::Session(descriptor) => Some(&descriptor.node),
            Entry::Metric(..)
            | Entry::Job(..)
            | Entry::Series(..)
            | Entry::Shape(..)
            | Entry::Function(..)
            | Entry::Stack(..) => None,
        });
        let nodes = session.map(|session| &session.descriptor.node).into_iter().chain(announced);
        let other = nodes.into_iter().find(|node| *node != own)?;
        let reason = format!("an agent with the key of {own} sends data of {other}");
        Some(MessageRefusal { kind: RefusalKind::Node, reason })
    }

    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    fn with(
        &mut self,
        id: SessionId,
        peer: &Peer,
        now: Now,
        apply: impl FnOnce(&mut SessionState, &mut Shared) -> Verdict,
    ) -> Verdict {
        let Some(state) = self.sessions.get_mut(&id) else { return Verdict::Nothing };
        state.last_message = now.since_start;
        let moved = state.peer != *peer;
        if moved {
            // The agent has reconnected, and requests over the old connection are lost.
            state.peer = peer.clone();
            state.requested = RequestTimes::default();
        }
        let (before, was_unproven) = (state.dictionary.bytes(), state.is_unproven());
        let verdict = apply(state, &mut self.shared);
        let bytes = state.dictionary.bytes();
        self.dictionary_bytes = self.dictionary_bytes - before + bytes;
        if was_unproven {
            self.unproven_bytes -= before;
            self.unproven -= 1;
        }
        if state.is_unproven() {
            self.unproven_bytes += bytes;
            self.unproven += 1;
        } else if state.dictionary.take_changes() || moved || was_unproven {
            // Sessions without stored data are not announced to control.
            self.changed_agent = state.agent_info(id);
        }
        verdict
    }

    /// The store has `session` up to `through`. Returns the acknowledgement with its peer.
    pub fn committed(&mut self, session: SessionId, through: u64) -> Option<(Peer, ToAgent)> {
        let state = self.sessions.get_mut(&session)?;
        state.committed = state.committed.max(through);
        // Another collector may have stored frames that this one has not received.
        state.received = state.received.max(state.committed);
        Some((state.peer.clone(), ToAgent::Ack { session, through: state.committed }))
    }
}

pub const fn session_of(message: &ToCollector) -> SessionId {
    match message {
        ToCollector::Dictionary { session, .. }
        | ToCollector::Skipped { session, .. }
        | ToCollector::Answer { session, .. } => *session,
    }
}
