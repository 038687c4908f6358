//! Threads with names.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread called `name`.
///
/// # Errors
/// When the machine gives no more threads.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(work)
}
