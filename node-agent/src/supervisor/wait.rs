//! Waiting on descriptors and deadlines.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use polymeter_service::clock;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::kernel;

pub(crate) fn waitable(descriptor: BorrowedFd<'_>) -> io::Result<AsyncFd<OwnedFd>> {
    kernel::async_descriptor(descriptor.try_clone_to_owned()?)
}

/// Waits forever without a time.
pub(super) async fn until(at_ns: Option<u64>) {
    match at_ns {
        None => std::future::pending().await,
        Some(at_ns) => {
            let left_ns = at_ns.saturating_sub(clock::monotonic_ns());
            tokio::time::sleep(Duration::from_nanos(left_ns)).await;
        }
    }
}

/// Waits forever without a descriptor.
pub(super) async fn readable(descriptor: Option<&AsyncFd<OwnedFd>>) {
    match descriptor {
        None => std::future::pending().await,
        Some(descriptor) => match descriptor.readable().await {
            Ok(mut guard) => guard.clear_ready(),
            Err(_) => std::future::pending().await,
        },
    }
}

/// Timer that skips missed ticks. Those with periods that divide one another tick together, which spares
/// wake-ups. Tokio's wakes the thread at the ends of its slots, too: about once more for each tick.
#[derive(Debug)]
pub(super) struct Ticker(AsyncFd<OwnedFd>);

impl Ticker {
    pub(super) fn every(period: Duration) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let ticker = Self(kernel::async_descriptor(timerfd_create(TimerfdClockId::Monotonic, flags)?)?);
        ticker.set(period)?;
        Ok(ticker)
    }

    /// Makes it tick at the multiples of `period`.
    pub(super) fn set(&self, period: Duration) -> io::Result<()> {
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1);
        let first_ns = (clock::monotonic_ns() / period_ns + 1).saturating_mul(period_ns);
        let timer =
            Itimerspec { it_interval: timespec(period), it_value: timespec(Duration::from_nanos(first_ns)) };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &timer)?;
        Ok(())
    }

    pub(super) async fn tick(&self) {
        loop {
            let Ok(mut guard) = self.0.readable().await else { return std::future::pending().await };
            let ticks = guard.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut [0; 8])?));
            if matches!(ticks, Ok(Ok(_))) {
                return;
            }
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    let seconds = duration.as_secs().try_into().unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: duration.subsec_nanos().into() }
}

/// Timer of tokio for what is rare.
pub(super) fn every(period: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    interval
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ticks_are_at_the_multiples_of_their_period() {
        let ticker = Ticker::every(Duration::from_millis(20)).unwrap();
        for _ in 0..3 {
            ticker.tick().await;
        }
        let hour = Duration::from_secs(3600);
        ticker.set(hour).unwrap();
        let at = Duration::from_nanos(clock::monotonic_ns());
        let left = rustix::time::timerfd_gettime(ticker.0.get_ref()).unwrap().it_value;
        let next = at + Duration::new(left.tv_sec.try_into().unwrap(), left.tv_nsec.try_into().unwrap());
        let off_s = next.as_secs() % hour.as_secs();
        assert!(off_s == 0 || off_s == hour.as_secs() - 1, "{next:?}");
        let waits = tokio::time::timeout(Duration::from_millis(50), ticker.tick()).await;
        assert!(waits.is_err(), "no tick of the former period");
    }
}
