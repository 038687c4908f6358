//! The counts of one region in one thread.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

/// How often a slot is read between two changes before it is given up.
const ATTEMPTS: u32 = 1000;

/// Counts of one region in one thread, which alone writes them; others read them through the sequence, which
/// is odd during a change. It fills a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Slot {
    sequence: AtomicU64,
    entries: AtomicU64,
    /// Ticks between the outermost entry and its end.
    time: AtomicU64,
    /// Ticks in which the thread was in no region below.
    own: AtomicU64,
    /// Entries without an end.
    depth: AtomicU64,
    /// Ticks of the outermost entry.
    entered: AtomicU64,
    /// Ticks since which the thread is in no region below; 0 where it is.
    running: AtomicU64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) entries: u64,
    pub(crate) time: u64,
    pub(crate) own: u64,
}

/// Adds to a value that no other thread writes.
fn add(value: &AtomicU64, more: u64) {
    value.store(value.load(Relaxed).wrapping_add(more), Relaxed);
}

impl Slot {
    #[inline]
    fn change(&self, change: impl FnOnce(&Self)) {
        let sequence = self.sequence.load(Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Relaxed);
        fence(Release);
        change(self);
        self.sequence.store(sequence.wrapping_add(2), Release);
    }

    #[inline]
    pub(crate) fn enter(&self, now: u64) {
        self.change(|slot| {
            add(&slot.entries, 1);
            let depth = slot.depth.load(Relaxed);
            if depth == 0 {
                slot.entered.store(now, Relaxed);
            }
            slot.depth.store(depth.wrapping_add(1), Relaxed);
            slot.running.store(now, Relaxed);
        });
    }

    /// Counts the time until a region below is entered.
    #[inline]
    pub(crate) fn pause(&self, now: u64) {
        self.change(|slot| slot.stop_running(now));
    }

    /// Begins to count again behind a region below.
    #[inline]
    pub(crate) fn resume(&self, now: u64) {
        self.change(|slot| slot.running.store(now, Relaxed));
    }

    /// Counts an end. `is_running` is false if the thread is in a region below, which overlaps.
    #[inline]
    pub(crate) fn leave(&self, now: u64, is_running: bool) {
        self.change(|slot| {
            if is_running {
                slot.stop_running(now);
            }
            let depth = slot.depth.load(Relaxed).saturating_sub(1);
            slot.depth.store(depth, Relaxed);
            if depth == 0 {
                add(&slot.time, now.saturating_sub(slot.entered.load(Relaxed)));
            }
        });
    }

    #[inline]
    fn stop_running(&self, now: u64) {
        let running = self.running.load(Relaxed);
        if running != 0 {
            add(&self.own, now.saturating_sub(running));
            self.running.store(0, Relaxed);
        }
    }

    /// Counts until now, those of entries without an end included; none if they change all the time.
    pub(crate) fn read(&self, now: impl Fn() -> u64) -> Option<Counts> {
        for _ in 0..ATTEMPTS {
            let sequence = self.sequence.load(Acquire);
            let [entries, mut time, mut own, depth, entered, running] =
                [&self.entries, &self.time, &self.own, &self.depth, &self.entered, &self.running]
                    .map(|value| value.load(Relaxed));
            fence(Acquire);
            if sequence.is_multiple_of(2) && self.sequence.load(Relaxed) == sequence {
                if depth > 0 {
                    time = time.saturating_add(now().saturating_sub(entered));
                }
                if running != 0 {
                    own = own.saturating_add(now().saturating_sub(running));
                }
                return Some(Counts { entries, time, own });
            }
            std::hint::spin_loop();
        }
        None
    }
}
