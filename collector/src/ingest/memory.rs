//! Memory bounds of sessions, and the eviction that enforces them.

use polymeter_proto::series::SessionId;
use polymeter_service::clock::Now;

use super::session::SessionState;
use super::sessions::Ingest;
use crate::limits;
use crate::session_messages::Peer;

impl Ingest {
    /// Removes a session with a frame that cannot be stored. It restarts after its last stored frame.
    pub fn forget(&mut self, session: SessionId) {
        if let Some(state) = self.sessions.remove(&session) {
            self.dictionary_bytes -= state.dictionary.bytes();
            self.freed_bytes += state.dictionary.bytes();
            if state.is_unproven() {
                self.unproven -= 1;
                self.unproven_bytes -= state.dictionary.bytes();
            }
        }
    }

    pub const fn has_unproven(&self) -> bool {
        self.unproven > 0
    }

    pub fn forget_silent_unproven(&mut self, now: Now) {
        let silent = self.sessions.iter().filter(|(_, state)| {
            state.is_unproven()
                && now.since_start.saturating_sub(state.last_message) >= limits::UNPROVEN_SILENCE
        });
        let silent: Vec<_> = silent.map(|(session, _)| *session).collect();
        silent.into_iter().for_each(|session| self.forget(session));
        if self.sessions.len() < self.sessions.capacity() / 4 {
            self.sessions.shrink_to_fit();
        }
    }

    /// Counts since the last call.
    pub const fn take_freed(&mut self) -> usize {
        std::mem::replace(&mut self.freed_bytes, 0)
    }

    /// Removes all sessions, since the store lacks data that it had. Each restarts after its last stored
    /// frame.
    pub fn forget_all(&mut self) {
        self.sessions.clear();
        (self.dictionary_bytes, self.unproven, self.unproven_bytes) = (0, 0, 0);
        self.changed_agent = None;
    }

    /// Removes the session among `which` that was silent for longest and has no frames to commit. Returns
    /// false if there is none.
    pub(super) fn forget_most_silent(&mut self, which: impl Fn(&SessionState) -> bool) -> bool {
        let forgettable =
            self.sessions.iter().filter(|(_, state)| state.received == state.committed && which(state));
        let Some(most_silent) =
            forgettable.min_by_key(|(_, state)| state.last_message).map(|(session, _)| *session)
        else {
            return false;
        };
        self.forget(most_silent);
        true
    }

    /// Removes sessions until the dictionaries are within their bounds. `sender` is the session of the last
    /// message.
    pub(super) fn bound_memory(&mut self, sender: SessionId) {
        let Some(state) = self.sessions.get(&sender) else { return };
        let (last_message, bytes, peer) = (state.last_message, state.dictionary.bytes(), state.peer.clone());
        while self.dictionary_bytes > limits::DICTIONARY_BYTES
            && self.forget_most_silent(|state| state.last_message != last_message)
        {}
        // The session that sent the last message may be removed, too: nothing of it is stored.
        while self.unproven_bytes > limits::UNPROVEN_DICTIONARY_BYTES
            && self.forget_most_silent(SessionState::is_unproven)
        {}
        if bytes <= limits::SESSION_DICTIONARY_BYTES / limits::SESSIONS_PER_PEER {
            return;
        }
        while self.dictionary_bytes_of(&peer) > limits::SESSION_DICTIONARY_BYTES
            && self.forget_most_silent(|state| state.peer == peer && state.last_message != last_message)
        {
        }
    }

    fn dictionary_bytes_of(&self, peer: &Peer) -> usize {
        let own = self.sessions.values().filter(|state| state.peer == *peer);
        own.map(|state| state.dictionary.bytes()).sum()
    }
}
