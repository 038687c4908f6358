//! Means to stop one read, and its pauses.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polymeter_store::reader::ReadCancel;

#[derive(Debug, Default)]
pub(crate) struct ReadStop {
    progress: Mutex<Progress>,
    /// Signals that the read is cancelled.
    cancelled: Condvar,
}

#[derive(Debug, Default)]
struct Progress {
    /// Cancels the statement; none before the connection exists and after the end.
    cancel: Option<ReadCancel>,
    is_cancelled: bool,
    is_late: bool,
    /// How long the read has paused since this was last taken.
    paused: Duration,
}

impl ReadStop {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the connection. Returns false if the read was cancelled before.
    pub(crate) fn begin(&self, cancel: ReadCancel) -> bool {
        let mut progress = self.progress();
        progress.cancel = Some(cancel);
        !progress.is_cancelled
    }

    /// Records the end. Returns true if the read was not cancelled, so that its connection can be used again.
    pub(crate) fn end(&self) -> bool {
        let mut progress = self.progress();
        progress.cancel = None;
        !progress.is_cancelled
    }

    /// Returns whether the read was cancelled, and whether it was for taking too long.
    pub(crate) fn is_cancelled(&self) -> (bool, bool) {
        let progress = self.progress();
        (progress.is_cancelled, progress.is_late)
    }

    /// Returns false if the read is cancelled.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        let progress = self.progress();
        let waited = self.cancelled.wait_timeout_while(progress, time, |progress| !progress.is_cancelled);
        let (mut progress, _) = waited.unwrap_or_else(PoisonError::into_inner);
        progress.paused += time;
        !progress.is_cancelled
    }

    /// Returns how long the read has paused since the last call.
    pub(crate) fn take_paused(&self) -> Duration {
        std::mem::take(&mut self.progress().paused)
    }

    /// May wait for the database.
    pub(crate) fn cancel(&self, is_late: bool) {
        let mut progress = self.progress();
        progress.is_cancelled = true;
        progress.is_late |= is_late;
        self.cancelled.notify_all();
        if let Some(cancel) = progress.cancel.take() {
            cancel.cancel();
        }
    }

    /// Cancels on a thread of its own.
    pub(crate) fn cancel_later(self: &Arc<Self>, is_late: bool) {
        let stop = Arc::clone(self);
        let thread = std::thread::Builder::new().name("api-cancel".to_owned());
        // Without a thread the read ends by itself: its client is gone.
        drop(thread.spawn(move || stop.cancel(is_late)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_when_the_read_is_cancelled() {
        let stop = Arc::new(ReadStop::default());
        assert!(stop.pause(Duration::from_millis(1)));
        assert_eq!((stop.take_paused(), stop.take_paused()), (Duration::from_millis(1), Duration::ZERO));
        let of_thread = Arc::clone(&stop);
        let pausing = std::thread::spawn(move || of_thread.pause(Duration::from_secs(3600)));
        stop.cancel(true);
        assert!(!pausing.join().unwrap(), "an hour has not passed");
        assert_eq!(stop.is_cancelled(), (true, true));
    }
}
