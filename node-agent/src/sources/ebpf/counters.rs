//! Counters that a program adds to and the agent reads from the same memory.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::system_call::{Mapping, create_array};

/// The counters of one CPU: one line of the cache, so that no CPU waits for another.
pub(super) const COUNTERS_BYTES: usize = 64;

/// The number of counters of one CPU.
pub(super) const COUNTERS: usize = COUNTERS_BYTES / size_of::<u64>();

/// A map of the kernel with counters for each CPU, whose memory is shared with this process.
#[derive(Debug)]
pub(super) struct Counters {
    map: OwnedFd,
    memory: Mapping,
}

impl Counters {
    /// Creates counters of 0 for `cpus` CPUs.
    pub(super) fn create(cpus: u32) -> io::Result<Self> {
        let line = u32::try_from(COUNTERS_BYTES).map_err(io::Error::other)?;
        let map = create_array(c"polymeter", line, cpus)?;
        let words = usize::try_from(cpus).map_err(io::Error::other)?.saturating_mul(COUNTERS);
        let memory = Mapping::of_array(map.as_fd(), words)?;
        Ok(Self { map, memory })
    }

    /// Returns the map, for a program.
    pub(super) fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Gives up the descriptor of the map, which the program and the memory keep.
    pub(super) fn into_memory(self) -> Mapping {
        self.memory
    }
}

/// Returns the sum of one counter over the CPUs.
pub(super) fn sum(memory: &Mapping, counter: usize) -> u64 {
    memory.words().skip(counter).step_by(COUNTERS).fold(0, u64::wrapping_add)
}
