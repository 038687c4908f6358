//! Log of problems with the command, with a limited rate.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use polymeter_service::clock::Clock;
use polymeter_service::log_throttle::LogThrottle;
use polymeter_service::printable::printable;
use tracing::warn;

use crate::limits;

/// Limit for one message.
const ERROR_CHARS: usize = 300;

#[derive(Clone)]
pub(super) struct ProblemLog {
    throttle: Arc<Mutex<LogThrottle>>,
    clock: Clock,
}

impl fmt::Debug for ProblemLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProblemLog").finish_non_exhaustive()
    }
}

impl ProblemLog {
    pub(super) fn new(clock: Clock) -> Self {
        let (interval, messages_max) = limits::JOB_END_LOG;
        Self { throttle: Arc::new(Mutex::new(LogThrottle::new(interval, messages_max))), clock }
    }

    fn allows(&self, problem: &str) -> bool {
        let now = self.clock.now().since_start;
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner).allows(problem, now)
    }

    pub(super) fn command_failed(&self, job: &str, problem: &str, errors: &[u8]) {
        if !self.allows(problem) {
            return;
        }
        let errors = printable(&String::from_utf8_lossy(errors), ERROR_CHARS);
        if errors.is_empty() {
            warn!(job, error = problem, "cannot complete the command of [job_end]");
        } else {
            warn!(job, error = problem, stderr = %errors, "cannot complete the command of [job_end]");
        }
    }

    pub(super) fn dropped(&self, count: u64, problem: &str) {
        if self.allows(problem) {
            warn!(error = problem, count, "cannot run the command of [job_end] for all jobs");
        }
    }

    pub(super) fn problem(&self, problem: &str, remedy: &str) {
        if self.allows(problem) {
            warn!(error = problem, remedy, "cannot run the command of [job_end]");
        }
    }
}
