//! What is forgotten, and when: all that sessions are remembered by is bounded.

use polymeter_proto::series::SessionId;

use super::{Ingest, State};
use crate::limits;
use polymeter_service::clock::Now;

impl Ingest {
    /// Forgets a session of which something cannot be stored. It begins again from what the store has.
    pub fn forget(&mut self, session: SessionId) {
        if let Some(state) = self.sessions.remove(&session) {
            self.dictionary_bytes -= state.dictionary.bytes();
            self.freed_bytes += state.dictionary.bytes();
            if state.is_stranger() {
                self.strangers -= 1;
                self.strangers_bytes -= state.dictionary.bytes();
            }
        }
    }

    /// Whether there are sessions of which nothing was ever accepted.
    pub const fn has_strangers(&self) -> bool {
        self.strangers > 0
    }

    /// Forgets the sessions of which nothing was ever accepted and nothing was heard for a while.
    pub fn forget_silent_strangers(&mut self, now: Now) {
        let is_silent = |state: &State| {
            state.is_stranger() && now.since_start.saturating_sub(state.heard) >= limits::STRANGER_SILENCE
        };
        let silent: Vec<_> =
            self.sessions.iter().filter(|(_, state)| is_silent(state)).map(|(session, _)| *session).collect();
        silent.into_iter().for_each(|session| self.forget(session));
        if self.sessions.len() < self.sessions.capacity() / 4 {
            self.sessions.shrink_to_fit();
        }
    }

    /// How many bytes of dictionaries were freed since the last call.
    pub const fn take_freed(&mut self) -> usize {
        std::mem::replace(&mut self.freed_bytes, 0)
    }

    /// Forgets all sessions, because the store does not have what it had. Each begins again from what it has.
    pub fn forget_all(&mut self) {
        self.sessions.clear();
        (self.dictionary_bytes, self.strangers, self.strangers_bytes) = (0, 0, 0);
        self.news = None;
    }

    pub(super) fn forget_quietest(&mut self, which: impl Fn(&State) -> bool) -> bool {
        let forgettable =
            self.sessions.iter().filter(|(_, state)| state.received == state.committed && which(state));
        let Some(quietest) = forgettable.min_by_key(|(_, state)| state.heard).map(|(session, _)| *session)
        else {
            return false;
        };
        self.forget(quietest);
        true
    }

    pub(super) fn bound_memory(&mut self, speaking: SessionId) {
        let Some(state) = self.sessions.get(&speaking) else { return };
        let (heard, bytes, peer) = (state.heard, state.dictionary.bytes(), state.peer.clone());
        while self.dictionary_bytes > limits::DICTIONARY_BYTES
            && self.forget_quietest(|state| state.heard != heard)
        {}
        // The one that speaks may go, too: whoever it is has sent nothing to be stored.
        while self.strangers_bytes > limits::STRANGERS_DICTIONARY_BYTES
            && self.forget_quietest(State::is_stranger)
        {}
        if bytes <= limits::SESSION_DICTIONARY_BYTES / limits::SESSIONS_PER_PEER {
            return;
        }
        let of_peer = |ingest: &Self| {
            let own = ingest.sessions.values().filter(|state| state.peer == peer);
            own.map(|state| state.dictionary.bytes()).sum::<usize>()
        };
        while of_peer(self) > limits::SESSION_DICTIONARY_BYTES
            && self.forget_quietest(|state| state.peer == peer && state.heard != heard)
        {}
    }
}
