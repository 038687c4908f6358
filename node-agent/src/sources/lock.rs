//! Locks of state that is shared by threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a state, which a thread that panicked leaves valid.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
