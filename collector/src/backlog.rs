//! Detects a backlog: a writer has not found its queue empty for some time, so that whatever else
//! uses the processors and the database delays samples.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits;

/// Monotonic time since which a writer has found several messages whenever it took one; 0 while there is one
/// at most.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriterBusy(Arc<AtomicU64>);

#[derive(Debug, Clone, Default)]
pub(crate) struct Backlog(Vec<WriterBusy>);

impl WriterBusy {
    pub(crate) fn note(&self, has_further: bool, now_ns: u64) {
        let since_ns = match (has_further, self.0.load(Ordering::Relaxed)) {
            (false, _) => 0,
            (true, 0) => now_ns,
            (true, since_ns) => since_ns,
        };
        // Only the writer itself stores.
        self.0.store(since_ns, Ordering::Relaxed);
    }
}

impl Backlog {
    pub(crate) fn new(writers: usize) -> Self {
        Self((0..writers).map(|_| WriterBusy::default()).collect())
    }

    pub(crate) fn writer(&self, number: usize) -> WriterBusy {
        self.0.get(number).cloned().unwrap_or_default()
    }

    /// A writer has not emptied its queue for so long that messages wait for it, and not only for a commit.
    pub(crate) fn exists(&self, now_ns: u64) -> bool {
        self.0.iter().any(|writer| {
            let since_ns = writer.0.load(Ordering::Relaxed);
            since_ns > 0 && now_ns.saturating_sub(since_ns) >= limits::BACKLOG_NS
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_that_does_not_empty_its_queue_is_behind() {
        let backlog = Backlog::new(2);
        let (one, other) = (backlog.writer(0), backlog.writer(1));
        let late_ns = 10 + limits::BACKLOG_NS;
        assert!(!backlog.exists(late_ns), "no writer has looked yet");
        one.note(true, 10);
        assert!(!backlog.exists(late_ns - 1));
        one.note(true, late_ns - 1);
        other.note(false, late_ns - 1);
        assert!(backlog.exists(late_ns), "it found messages both times");
        one.note(false, late_ns);
        assert!(!backlog.exists(3 * late_ns), "its queue was empty");
        one.note(true, 3 * late_ns);
        assert!(!backlog.exists(3 * late_ns + 1) && backlog.exists(4 * late_ns));
    }
}
