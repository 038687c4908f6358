//! The wish to stop, and waiting that ends with it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Shared by all threads of one collector.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<(Mutex<Option<Duration>>, Condvar)>);

impl Stop {
    /// Wishes the stop, at `now` since the clock's start.
    pub(crate) fn wish(&self, now: Duration) {
        let (since, changed) = &*self.0;
        since.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(now);
        changed.notify_all();
    }

    /// Since when it is wished.
    pub(crate) fn since(&self) -> Option<Duration> {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the wish comes, `patience` at most. When it has come already, waits a shortest time only, so that the
    /// caller may try again a few times.
    pub(crate) fn pause(&self, patience: Duration) {
        let (since, changed) = &*self.0;
        let guard = since.lock().unwrap_or_else(PoisonError::into_inner);
        let patience = if guard.is_some() { patience.min(crate::limits::RECONNECT.0) } else { patience };
        let was = *guard;
        drop(changed.wait_timeout_while(guard, patience, |since| *since == was));
    }
}
