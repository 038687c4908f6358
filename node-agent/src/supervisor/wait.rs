//! Waiting on descriptors and deadlines.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use polymeter_service::clock;
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

/// Timer that skips missed ticks. Timers that start together keep ticking together, which spares wake-ups.
pub(super) fn every(period: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    interval
}
