//! The state of one process: its names and counts, and the requests to send them now.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::destination::Destination;
use crate::limits::FLUSH_WAIT;
use crate::registry::Registry;

/// State of one process, which is never freed.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) clock: Clock,
    pub(crate) destination: Destination,
    registry: Mutex<Registry>,
    flushes: Mutex<Flushes>,
    asked: Condvar,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Flushes {
    last: Flush,
    answered: u64,
    /// True if the agent has accepted the answered one.
    is_accepted: bool,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Flush {
    number: u64,
    /// True if the process ends.
    pub(crate) is_last: bool,
}

impl Process {
    pub(crate) fn new(destination: Destination) -> Self {
        Self {
            clock: Clock::new(),
            destination,
            registry: Mutex::new(Registry::new()),
            flushes: Mutex::default(),
            asked: Condvar::new(),
            answered: Condvar::new(),
        }
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flushes(&self) -> MutexGuard<'_, Flushes> {
        self.flushes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the program asks to send now, or the time has passed.
    pub(crate) fn wait_for_flush(&self, wait: Duration) -> Option<Flush> {
        let waited = self
            .asked
            .wait_timeout_while(self.flushes(), wait, |flushes| flushes.answered == flushes.last.number);
        let (flushes, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (flushes.answered != flushes.last.number).then_some(flushes.last)
    }

    pub(crate) fn answer_flush(&self, flush: Flush, is_accepted: bool) {
        let mut flushes = self.flushes();
        (flushes.answered, flushes.is_accepted) = (flush.number, is_accepted);
        drop(flushes);
        self.answered.notify_all();
    }

    /// Asks to send now, and waits for it, but not for long. Returns true if the agent has accepted all.
    pub(crate) fn flush(&self, is_last: bool) -> bool {
        let mut flushes = self.flushes();
        flushes.last = Flush { number: flushes.last.number + 1, is_last };
        let wanted = flushes.last.number;
        self.asked.notify_all();
        let waited =
            self.answered.wait_timeout_while(flushes, FLUSH_WAIT, |flushes| flushes.answered < wanted);
        let (flushes, _) = waited.unwrap_or_else(PoisonError::into_inner);
        flushes.answered >= wanted && flushes.is_accepted
    }
}
