//! The thread for the maintenance of a database, besides the writers.

use std::thread::{Builder, JoinHandle};

use tokio::sync::oneshot;

use crate::StoreError;

/// A running maintenance thread.
#[derive(Debug)]
pub struct Maintenance {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Maintenance {
    /// Starts a thread that runs `work` until the receiver resolves.
    pub(crate) fn spawn(
        work: impl FnOnce(oneshot::Receiver<()>) + Send + 'static,
    ) -> Result<Self, StoreError> {
        let (stop, stopped) = oneshot::channel();
        let thread = Builder::new().name("maintenance".to_owned()).spawn(move || work(stopped));
        Ok(Self { stop, thread: thread.map_err(StoreError::Thread)? })
    }

    /// Ends the thread, and cancels the statement that it runs.
    ///
    /// # Errors
    /// Returns an error if the thread panicked.
    pub fn stop(self) -> std::thread::Result<()> {
        // The receiver resolves when the sender is dropped.
        drop(self.stop);
        self.thread.join()
    }
}
