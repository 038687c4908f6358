//! A thread with a connection to some tables, for asynchronous callers.

use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::error::chain;
use crate::{StoreError, StoreUrl};

type Task<T> = Box<dyn FnOnce(&mut T) -> Result<(), StoreError> + Send>;

const TASKS: usize = 64;

/// Time for a task, from the caller's point of view.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time after which an unused connection is closed, so that a moved or restarted store is noticed.
const IDLE: Duration = Duration::from_secs(10);

type Open<T> = fn(&StoreUrl) -> Result<T, StoreError>;

/// Connection to tables, on a thread of its own. Copies share the thread, which ends with the last of them.
pub struct TableThread<T> {
    tasks: SyncSender<Task<T>>,
}

impl<T> Clone for TableThread<T> {
    fn clone(&self) -> Self {
        Self { tasks: self.tasks.clone() }
    }
}

impl<T> fmt::Debug for TableThread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableThread").finish_non_exhaustive()
    }
}

impl<T: 'static> TableThread<T> {
    /// Starts the thread. `open` connects when there is work; `tables` are named in the log.
    pub fn start(tables: &'static str, store: StoreUrl, open: Open<T>) -> io::Result<Self> {
        let (tasks, queue) = sync_channel(TASKS);
        let thread = std::thread::Builder::new().name(tables.to_owned());
        // It is not joined: the database may let a statement wait.
        drop(thread.spawn(move || work(tables, &store, open, &queue))?);
        Ok(Self { tasks })
    }

    /// Hands a task to the thread. Returns false if it has too much to do.
    pub fn submit(&self, task: impl FnOnce(&mut T) -> Result<(), StoreError> + Send + 'static) -> bool {
        self.tasks.try_send(Box::new(task)).is_ok()
    }

    /// Runs `work` on the thread. Returns none if the store fails, if it takes too long, or if the thread has
    /// too much to do. Only the first of successive failures is logged. Work that takes too long may still be
    /// done later.
    pub async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut T) -> Result<R, StoreError> + Send + 'static,
    ) -> Option<R> {
        let (reply, result) = oneshot::channel();
        let is_submitted = self.submit(move |table| {
            // The caller may be gone.
            reply.send(work(table)?).ok();
            Ok(())
        });
        if !is_submitted {
            return None;
        }
        timeout(TIMEOUT, result).await.ok()?.ok()
    }
}

/// Executes tasks until the last sender is gone. Closes the connection when it is idle, and after an error.
fn work<T>(tables: &str, store: &StoreUrl, open: Open<T>, queue: &Receiver<Task<T>>) {
    let mut table: Option<T> = None;
    let mut is_failing = false;
    loop {
        let task = match queue.recv_timeout(IDLE) {
            Ok(task) => task,
            Err(RecvTimeoutError::Timeout) => {
                table = None;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let connected = match table.take() {
            Some(table) => Ok(table),
            None => open(store),
        };
        let done = connected.and_then(|mut connected| {
            task(&mut connected)?;
            Ok(connected)
        });
        match done {
            Ok(connected) => {
                table = Some(connected);
                is_failing = false;
            }
            // The writers report that the server is away, and its return.
            Err(error) if is_failing || error.is_unreachable() => {
                debug!(error = %chain(&error), "cannot use the {tables} of the store");
            }
            Err(error) => {
                warn!(error = %chain(&error), "cannot use the {tables} of the store");
                is_failing = true;
            }
        }
    }
}
