//! Request to shut down, and interruptible waiting.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

#[derive(Debug, Clone, Default)]
pub(crate) struct Shutdown(Arc<(Mutex<Option<Duration>>, Condvar)>);

impl Shutdown {
    /// `now` is measured from the clock's start.
    pub(crate) fn request(&self, now: Duration) {
        let (requested_at, changed) = &*self.0;
        requested_at.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(now);
        changed.notify_all();
    }

    pub(crate) fn requested_at(&self) -> Option<Duration> {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the request, at most for `timeout`. After the request it waits only for a short time, so
    /// that the caller can retry a few times.
    pub(crate) fn wait(&self, timeout: Duration) {
        let (requested_at, changed) = &*self.0;
        let guard = requested_at.lock().unwrap_or_else(PoisonError::into_inner);
        let timeout = if guard.is_some() { timeout.min(crate::limits::RECONNECT.0) } else { timeout };
        let was = *guard;
        drop(changed.wait_timeout_while(guard, timeout, |requested_at| *requested_at == was));
    }
}
