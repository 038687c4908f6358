//! Counters that a program adds to and the agent reads from the same memory.

use super::mapping::Mapping;

/// The counters of one job, with a line of words for each CPU, so that no CPU waits for another.
#[derive(Debug)]
pub(super) struct Counters {
    memory: Mapping,
    words_per_cpu: usize,
}

impl Counters {
    /// Returns the counters in a memory that has a line of `words_per_cpu` words for each CPU.
    pub(super) const fn new(memory: Mapping, words_per_cpu: usize) -> Self {
        Self { memory, words_per_cpu }
    }

    /// Returns the sum of one counter over the CPUs.
    pub(super) fn sum(&self, counter: usize) -> u64 {
        self.memory.words().skip(counter).step_by(self.words_per_cpu).fold(0, u64::wrapping_add)
    }
}
