//! Threads with names.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread with the name `name`.
///
/// # Errors
/// Returns an error if the thread cannot be created.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(work)
}
