//! An eventfd: one thread wakes another that waits on several descriptors.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd. Notifications that were not cleared yet count as one.
#[derive(Debug)]
pub struct EventFd {
    event: OwnedFd,
}

impl EventFd {
    pub fn new() -> io::Result<Self> {
        Ok(Self { event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    pub fn notify(&self) {
        // The only failure is a counter at its limit, which means that it is readable already.
        rustix::io::write(&self.event, &1_u64.to_ne_bytes()).ok();
    }

    pub fn clear(&self) {
        // The only failure is that there was none.
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
