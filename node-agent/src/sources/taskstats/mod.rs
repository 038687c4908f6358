//! Ended threads of jobs: the kernel delivers their accounts and delays by netlink when they end, so that
//! processes that live shorter than a period are counted. Source: `Documentation/accounting/taskstats.rst` of
//! Linux.
//!
//! One socket and one thread serve all jobs; they exist while a job samples such metrics. Each end costs some
//! 20 microseconds. The kernel drops records if the thread does not keep up: it tells so, but not how many.

mod exited_jobs;
mod listener;
mod netlink;
mod record;

use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

use super::lock::lock;
pub(super) use exited_jobs::check;
pub(super) use exited_jobs::{Job, Sums};
use listener::ListenError;
pub(super) use listener::Listener;
pub(super) use record::{QUANTITIES, is_delay};

/// Listener for the ends of threads, which exists while a job needs it.
#[derive(Debug, Default)]
pub struct ExitedTasks(Mutex<Weak<Listener>>);

impl ExitedTasks {
    pub(super) fn listener(&self, sys: &Path, proc: &Path) -> Result<Arc<Listener>, ListenError> {
        let mut known = lock(&self.0);
        if let Some(listener) = known.upgrade() {
            return Ok(listener);
        }
        let listener = Listener::start(sys, proc)?;
        *known = Arc::downgrade(&listener);
        Ok(listener)
    }
}

#[cfg(test)]
mod tests;
