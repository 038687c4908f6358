//! Places of which this process has a bounded number.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// One of the places that `taken` counts. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    taken: &'static AtomicUsize,
}

impl Place {
    pub(super) fn take(taken: &'static AtomicUsize, places: usize) -> Option<Self> {
        taken.fetch_update(Relaxed, Relaxed, |taken| (taken < places).then_some(taken + 1)).ok()?;
        Some(Self { taken })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Relaxed);
    }
}
