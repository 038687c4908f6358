//! Access to what a mutex guards.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// State left behind by a panic is used as it is.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
