//! All sessions: their limits, and their end.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polymeter_proto::control::Refusal;
use polymeter_service::clock::Clock;
use polymeter_store::StoreUrl;
use polymeter_store::reader::ReadCancel;
use tracing::warn;

use super::stream::ClientStream;
use crate::limits::{self, ReadTimeouts};
use crate::roles::Roles;
use crate::thread::spawn;

#[derive(Debug, Clone)]
pub(crate) struct ReadSessions(Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) store: StoreUrl,
    pub(super) roles: Roles,
    pub(super) timeouts: ReadTimeouts,
    pub(super) clock: Clock,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<u64, Entry>,
    next: u64,
    is_stopping: bool,
}

#[derive(Debug)]
struct Entry {
    uid: u32,
    /// None until the session has a connection.
    stream: Option<Arc<ClientStream>>,
    /// None until the session has a connection to the store.
    cancel: Option<ReadCancel>,
    /// Time since the clock's start; none between queries.
    query_began: Option<Duration>,
}

/// Permit for one session, returned on drop.
#[derive(Debug)]
pub(crate) struct ReadPermit {
    shared: Arc<Shared>,
    number: u64,
    pub(super) uid: u32,
}

impl ReadSessions {
    pub(crate) fn start(
        store: StoreUrl,
        roles: Roles,
        timeouts: ReadTimeouts,
        clock: Clock,
    ) -> io::Result<Self> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { store, roles, timeouts, clock, state, changed });
        let checked = Arc::clone(&shared);
        // It is not joined: the cancellation of a statement may wait for the database.
        drop(spawn("read-check", move || checked.check_until_stop())?);
        Ok(Self(shared))
    }

    /// Fails if there are too many sessions.
    pub(crate) fn acquire(&self, uid: u32) -> Result<ReadPermit, Refusal> {
        let mut state = self.0.state();
        let of_user = state.sessions.values().filter(|session| session.uid == uid).count();
        let reason = if state.is_stopping {
            "the collector is stopping"
        } else if of_user >= limits::READ_SESSIONS_PER_USER {
            "this user already reads through as many connections as are permitted"
        } else if state.sessions.len() >= limits::READ_SESSIONS {
            "too many users are reading"
        } else {
            let number = state.next;
            state.next += 1;
            state.sessions.insert(number, Entry { uid, stream: None, cancel: None, query_began: None });
            drop(state);
            return Ok(ReadPermit { shared: Arc::clone(&self.0), number, uid });
        };
        Err(Refusal::new("busy", None, &format!("{reason}; try again in a moment")))
    }

    /// Does not wait for the sessions.
    pub(crate) fn stop(&self) {
        let mut state = self.0.state();
        state.is_stopping = true;
        for stream in state.sessions.values().filter_map(|session| session.stream.as_ref()) {
            stream.close();
        }
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_until_stop(&self) {
        let mut state = self.state();
        while !state.is_stopping {
            let timeout = limits::READ_CHECK_INTERVAL;
            state = self.changed.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0;
            let now = self.clock.now().since_start;
            let ended = state.sessions.values().filter_map(|session| session.ended(now, self.timeouts.query));
            let ended: Vec<(Arc<ClientStream>, Option<ReadCancel>)> = ended.collect();
            drop(state);
            for (stream, cancel) in ended {
                stream.close();
                if let Some(cancel) = cancel {
                    cancel.cancel();
                }
            }
            state = self.state();
        }
        let cancels: Vec<ReadCancel> =
            state.sessions.values().filter_map(|session| session.cancel.clone()).collect();
        drop(state);
        cancels.iter().for_each(ReadCancel::cancel);
    }
}

impl Entry {
    /// Returns the means to end a session whose client is gone, or whose query takes too long.
    fn ended(
        &self,
        now: Duration,
        query_timeout: Duration,
    ) -> Option<(Arc<ClientStream>, Option<ReadCancel>)> {
        let stream = self.stream.as_ref()?;
        let is_late = self.query_began.is_some_and(|began| now.saturating_sub(began) > query_timeout);
        if is_late {
            warn!(uid = self.uid, "query cancelled: it took longer than {} s", query_timeout.as_secs());
        }
        // A client that waits for rows sends nothing. Between queries the session's own read notices the end.
        let is_gone = self.query_began.is_some() && stream.is_closed();
        (is_late || is_gone).then(|| (Arc::clone(stream), self.cancel.clone()))
    }
}

impl ReadPermit {
    /// Records a handle of the session's connection. Returns false if the session must not begin, since the
    /// collector stops.
    pub(super) fn connect(&self, stream: ClientStream) -> bool {
        self.update(|session| session.stream = Some(Arc::new(stream)));
        !self.shared.state().is_stopping
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(super) fn set_cancel(&self, cancel: ReadCancel) {
        self.update(|session| session.cancel = Some(cancel));
    }

    pub(super) fn begin_query(&self) {
        let now = self.shared.clock.now().since_start;
        self.update(|session| session.query_began = Some(now));
    }

    pub(super) fn end_query(&self) {
        self.update(|session| session.query_began = None);
    }

    fn update(&self, change: impl FnOnce(&mut Entry)) {
        if let Some(session) = self.shared.state().sessions.get_mut(&self.number) {
            change(session);
        }
    }
}

impl Drop for ReadPermit {
    fn drop(&mut self) {
        self.shared.state().sessions.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions() -> ReadSessions {
        let store = "sqlite:/nowhere/store.db".parse().unwrap();
        ReadSessions::start(store, Roles::default(), ReadTimeouts::default(), Clock::start()).unwrap()
    }

    #[test]
    fn one_user_cannot_use_up_the_sessions_of_others() {
        let sessions = sessions();
        let permits: Vec<_> = (0..100).filter_map(|_| sessions.acquire(1000).ok()).collect();
        assert_eq!(permits.len(), limits::READ_SESSIONS_PER_USER);
        let refusal = sessions.acquire(1000).unwrap_err();
        assert_eq!(refusal.code, "busy");
        assert!(sessions.acquire(1001).is_ok());
        drop(permits);
        let many: Vec<_> = (0..1000).filter_map(|uid| sessions.acquire(uid).ok()).collect();
        assert_eq!(many.len(), limits::READ_SESSIONS);
        drop(many);
        assert!(sessions.acquire(7).is_ok());
        sessions.stop();
        assert_eq!(sessions.acquire(7).unwrap_err().code, "busy");
    }
}
