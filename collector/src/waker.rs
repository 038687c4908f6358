//! A waker for a thread that polls sockets.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// An eventfd that a thread polls besides its sockets.
#[derive(Debug, Clone)]
pub(crate) struct Waker(Arc<OwnedFd>);

impl Waker {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    pub(crate) fn wake(&self) {
        // It fails only if the counter is full; then the descriptor is readable anyway.
        rustix::io::write(self.as_fd(), &1_u64.to_ne_bytes()).ok();
    }

    /// Makes the descriptor unreadable until the next [`Waker::wake`]. Returns whether it was readable.
    pub(crate) fn clear(&self) -> bool {
        rustix::io::read(self.as_fd(), &mut [0_u8; 8]).is_ok()
    }

    /// The thread has not cleared it since the last [`Waker::wake`].
    pub(crate) fn is_pending(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_pending_until_the_thread_clears_it() {
        let waker = Waker::new().unwrap();
        assert!(!waker.is_pending());
        waker.wake();
        assert!(waker.is_pending() && waker.is_pending());
        assert!(waker.clear());
        assert!(!waker.is_pending());
    }
}
