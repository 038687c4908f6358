//! An eventfd: how one thread wakes another that may wait on other things as well.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};

/// Rings without blocking; rings that nobody has heard yet are one.
#[derive(Debug)]
pub struct EventFd {
    event: OwnedFd,
}

impl EventFd {
    /// A silent one.
    ///
    /// # Errors
    /// When no descriptor can be had.
    pub fn new() -> io::Result<Self> {
        Ok(Self { event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Wakes the listener.
    pub fn notify(&self) {
        // The only failure is a counter at its end, which means that it rings already.
        rustix::io::write(&self.event, &1_u64.to_ne_bytes()).ok();
    }

    /// Forgets the rings so far.
    pub fn clear(&self) {
        // The only failure is that it did not ring.
        rustix::io::read(&self.event, &mut [0; 8]).ok();
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}
