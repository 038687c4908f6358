//! What the sampler sleeps on: until a deadline, or until somebody has something for it.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::thread::futex::{self, Flags};

/// Every wake-up concerns every waiter: FUTEX_BITSET_MATCH_ANY of futex(2).
const ANY: NonZeroU32 = NonZeroU32::MAX;

/// A futex that one thread waits on. With `FUTEX_WAIT_BITSET` the timeout is a time of CLOCK_MONOTONIC, so that one system call
/// serves the sleep and the waking, and no clock is read to reckon how long is left; a descriptor to be polled costs the kernel
/// more at each wait.
#[derive(Debug, Default)]
pub(super) struct FutexTimer {
    /// 1 from a ring until the waiter has heard it.
    rung: AtomicU32,
}

impl FutexTimer {
    /// Wakes the waiter, or lets its next wait end at once.
    pub(super) fn notify(&self) {
        if self.rung.swap(1, Ordering::Release) == 0 {
            // It cannot fail on a word of this process.
            futex::wake(&self.rung, Flags::PRIVATE, 1).ok();
        }
    }

    /// Sleeps until the monotonic clock shows `deadline_ns`, or for ever where there is none, unless it has rung since the last
    /// wait or rings now. It may also end sooner for no reason.
    pub(super) fn wait(&self, deadline_ns: Option<u64>) {
        let deadline = deadline_ns.map(Duration::from_nanos).and_then(|at| Timespec::try_from(at).ok());
        if self.rung.swap(0, Ordering::Acquire) == 0 {
            // A time-out, an interruption and a ring in between all mean the same: somebody looks what there is to do.
            futex::wait_bitset(&self.rung, Flags::PRIVATE, 0, deadline.as_ref(), ANY).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::clock::monotonic_ns;

    #[test]
    fn a_ring_is_heard_once_whether_it_comes_before_the_wait_or_during_it() {
        let alarm = FutexTimer::default();
        let (asleep, rings) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while rings.load(Ordering::Relaxed) < 2 {
                    asleep.store(true, Ordering::Relaxed);
                    alarm.wait(None);
                    rings.fetch_add(1, Ordering::Relaxed);
                }
            });
            // The first comes before the wait, or during it; the second when the first has been heard.
            alarm.notify();
            while rings.load(Ordering::Relaxed) == 0 || !asleep.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            alarm.notify();
        });
        assert_eq!(rings.into_inner(), 2);
    }

    #[test]
    fn a_wait_sleeps_until_its_deadline_and_ends_there() {
        let alarm = FutexTimer::default();
        alarm.notify();
        alarm.wait(None);
        let deadline_ns = monotonic_ns() + 20_000_000;
        let mut waits = 0;
        while monotonic_ns() < deadline_ns {
            alarm.wait(Some(deadline_ns));
            waits += 1;
        }
        // It may end for no reason now and then; one that does not sleep ends many thousand times until then.
        assert!(waits < 1000, "{waits} waits until one deadline");
        // What has passed is not waited for.
        alarm.wait(Some(0));
    }
}
