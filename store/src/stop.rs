//! Request to end the maintenance of a store.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Cancels the statement that a connection runs; has no effect if it runs none. Returns within a second or
/// so, even if the database does not answer.
pub(crate) type Cancel = Box<dyn Fn() + Send + Sync>;

/// Interval at which a running statement is cancelled until the maintenance ends: a statement may begin just
/// after a cancellation.
const CANCEL_AGAIN: Duration = Duration::from_millis(100);

/// Cancellations after which the maintenance is left behind: its database does not answer.
const CANCELLATIONS: u32 = 50;

/// Request to end the maintenance. Tasks check it between their steps.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_requested: bool,
    has_ended: bool,
    cancel: Option<Cancel>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("is_requested", &self.is_requested)
            .field("has_ended", &self.has_ended)
            .finish_non_exhaustive()
    }
}

impl Stop {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the maintenance has to end.
    pub(crate) fn is_requested(&self) -> bool {
        self.state().is_requested
    }

    /// Waits for `interval`. Returns true as soon as the maintenance has to end.
    pub(crate) fn is_requested_within(&self, interval: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), interval, |state| !state.is_requested);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_requested
    }

    /// Sets the cancellation of the connection in use; none while there is no connection.
    pub(super) fn set_cancel(&self, cancel: Option<Cancel>) {
        self.state().cancel = cancel;
    }

    pub(super) fn set_ended(&self) {
        self.state().has_ended = true;
        self.changed.notify_all();
    }

    /// Requests the end, and cancels running statements until the maintenance has ended. Returns false if it
    /// does not end, since the database does not answer.
    pub(super) fn request(&self) -> bool {
        let mut state = self.state();
        state.is_requested = true;
        self.changed.notify_all();
        for _ in 0..CANCELLATIONS {
            if state.has_ended {
                break;
            }
            if let Some(cancel) = &state.cancel {
                cancel();
            }
            state = self.changed.wait_timeout(state, CANCEL_AGAIN).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.has_ended
    }
}
