//! A waker for a thread that polls sockets.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd that a thread polls besides its sockets.
#[derive(Debug, Clone)]
pub(crate) struct Waker(Arc<OwnedFd>);

impl Waker {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Makes the descriptor readable.
    pub(crate) fn wake(&self) {
        // It fails only if the counter is full; then the descriptor is readable anyway.
        rustix::io::write(self.as_fd(), &1_u64.to_ne_bytes()).ok();
    }

    /// Makes the descriptor unreadable until the next [`Waker::wake`]. Returns true if it was readable.
    pub(crate) fn clear(&self) -> bool {
        rustix::io::read(self.as_fd(), &mut [0_u8; 8]).is_ok()
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
