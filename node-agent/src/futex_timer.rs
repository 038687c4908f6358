//! A futex on which one thread sleeps until a deadline or until it is notified.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::thread::futex::{self, Flags};

/// Every wake-up concerns every waiter: FUTEX_BITSET_MATCH_ANY of futex(2).
const ANY: NonZeroU32 = NonZeroU32::MAX;

/// A futex that one thread waits on. With `FUTEX_WAIT_BITSET` the timeout is a time of CLOCK_MONOTONIC, so
/// that one system call serves the sleep and the notification, and no clock is read to compute the time left;
/// polling a descriptor costs the kernel more at each wait.
#[derive(Debug, Default)]
pub(crate) struct FutexTimer {
    /// 1 from a notification until the next wait.
    notified: AtomicU32,
}

impl FutexTimer {
    /// Wakes the waiter, or lets its next wait end at once.
    pub(crate) fn notify(&self) {
        if self.notified.swap(1, Ordering::Release) == 0 {
            // It cannot fail on a word of this process.
            futex::wake(&self.notified, Flags::PRIVATE, 1).ok();
        }
    }

    /// Sleeps until the monotonic clock shows `deadline_ns`, or without a limit if it is none. Returns at
    /// once if it was notified since the last wait; spurious wake-ups are possible.
    pub(crate) fn wait(&self, deadline_ns: Option<u64>) {
        let deadline = deadline_ns.map(Duration::from_nanos).and_then(|at| Timespec::try_from(at).ok());
        if self.notified.swap(0, Ordering::Acquire) == 0 {
            // A time-out, an interruption and a notification mean the same: the caller looks for work.
            futex::wait_bitset(&self.notified, Flags::PRIVATE, 0, deadline.as_ref(), ANY).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::clock::monotonic_ns;

    #[test]
    fn a_notification_ends_one_wait() {
        let timer = FutexTimer::default();
        let (asleep, wakes) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while wakes.load(Ordering::Relaxed) < 2 {
                    asleep.store(true, Ordering::Relaxed);
                    timer.wait(None);
                    wakes.fetch_add(1, Ordering::Relaxed);
                }
            });
            // The first notification arrives before the wait, or during it; the second after the first has
            // ended a wait.
            timer.notify();
            while wakes.load(Ordering::Relaxed) == 0 || !asleep.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            timer.notify();
        });
        assert_eq!(wakes.into_inner(), 2);
    }

    #[test]
    fn a_wait_lasts_until_its_deadline() {
        let timer = FutexTimer::default();
        timer.notify();
        timer.wait(None);
        let deadline_ns = monotonic_ns() + 20_000_000;
        let mut waits = 0;
        while monotonic_ns() < deadline_ns {
            timer.wait(Some(deadline_ns));
            waits += 1;
        }
        // Spurious wake-ups are rare; a timer that does not sleep would return many thousand times.
        assert!(waits < 1000, "{waits} waits until one deadline");
        // A deadline in the past is not waited for.
        timer.wait(Some(0));
    }
}
