//! Events that wait for one stream: bounded, and never a reason to wait.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::limits;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Event(Bytes),
    /// Events were not kept, since the client read too slowly. From now on they are kept again: what was
    /// missed must be sent anew.
    Missed(u64),
    /// The job may have ended, or a node was lost.
    Changed,
    Stop,
}

/// Events that wait for one stream.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Bytes>,
    bytes: usize,
    missed: u64,
    has_changed: bool,
    is_stopping: bool,
}

impl Waiting {
    fn take_event(&mut self) -> Option<Bytes> {
        let event = self.events.pop_front()?;
        self.bytes -= event.len();
        Some(event)
    }
}

impl Mailbox {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // It is consistent at every point where a panic could occur.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        change(&mut self.waiting());
        self.arrived.notify_one();
    }

    /// Adds an event, or counts it as missed. Events are missed until the stream has noticed.
    pub(super) fn offer(&self, event: &Bytes) {
        self.change(|waiting| {
            let is_full = waiting.bytes.saturating_add(event.len()) > limits::STREAM_BYTES
                || waiting.events.len() >= limits::STREAM_EVENTS;
            if waiting.missed > 0 || is_full {
                waiting.missed += 1;
            } else {
                waiting.bytes += event.len();
                waiting.events.push_back(event.clone());
            }
        });
    }

    /// Counts an event that was lost before it was encoded.
    pub(super) fn miss(&self) {
        self.change(|waiting| waiting.missed += 1);
    }

    pub(super) fn report_change(&self) {
        self.change(|waiting| waiting.has_changed = true);
    }

    pub(super) fn stop(&self) {
        self.change(|waiting| waiting.is_stopping = true);
    }

    pub(super) fn take_event(&self) -> Option<Bytes> {
        self.waiting().take_event()
    }

    fn take(&self) -> Option<Step> {
        let mut waiting = self.waiting();
        if let Some(event) = waiting.take_event() {
            return Some(Step::Event(event));
        }
        if waiting.is_stopping {
            return Some(Step::Stop);
        }
        if waiting.missed > 0 {
            return Some(Step::Missed(std::mem::take(&mut waiting.missed)));
        }
        std::mem::take(&mut waiting.has_changed).then_some(Step::Changed)
    }

    /// Waits for the next step. Events come first. Only one task may wait.
    pub(super) async fn next(&self) -> Step {
        loop {
            if let Some(step) = self.take() {
                return step;
            }
            self.arrived.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_mailbox_counts_what_it_misses_until_that_is_noticed() {
        let mailbox = Mailbox::default();
        let large = Bytes::from(vec![0; limits::STREAM_BYTES / 2]);
        (0..3).for_each(|_| mailbox.offer(&large));
        mailbox.report_change();
        assert_eq!(mailbox.take(), Some(Step::Event(large.clone())));
        let small = Bytes::from_static(b"x");
        mailbox.offer(&small);
        assert_eq!(mailbox.take(), Some(Step::Event(large)));
        assert_eq!(
            mailbox.take(),
            Some(Step::Missed(2)),
            "the small one would have come without its predecessor"
        );
        assert_eq!(mailbox.take(), Some(Step::Changed));
        assert_eq!(mailbox.take(), None);
        for _ in 0..=limits::STREAM_EVENTS {
            mailbox.offer(&small);
        }
        for _ in 0..limits::STREAM_EVENTS {
            assert_eq!(mailbox.take_event(), Some(small.clone()));
        }
        assert_eq!(mailbox.take_event(), None, "what was missed is no event");
        assert_eq!(mailbox.take(), Some(Step::Missed(1)));
        mailbox.stop();
        assert_eq!(mailbox.take(), Some(Step::Stop));
        assert_eq!(mailbox.take(), Some(Step::Stop));
    }

    #[tokio::test]
    async fn a_waiting_stream_is_woken() {
        let mailbox = std::sync::Arc::new(Mailbox::default());
        let of_task = std::sync::Arc::clone(&mailbox);
        let task = tokio::spawn(async move { of_task.next().await });
        tokio::task::yield_now().await;
        mailbox.miss();
        assert_eq!(task.await.unwrap(), Step::Missed(1));
    }
}
