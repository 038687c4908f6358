//! Counters that a program adds to and the agent reads from the same memory.

use super::mapping::Mapping;

/// Counters of one job, in lines of words: one for each CPU, so that no CPU waits for another, or for each
/// other place where they are counted.
#[derive(Debug)]
pub(super) struct Counters {
    memory: Mapping,
    words_per_line: usize,
}

impl Counters {
    pub(super) const fn new(memory: Mapping, words_per_line: usize) -> Self {
        Self { memory, words_per_line }
    }

    pub(super) fn sum(&self, counter: usize) -> u64 {
        self.memory.words(counter, self.words_per_line).fold(0, u64::wrapping_add)
    }

    pub(super) fn sum_of(&self, first_line: usize, lines: usize, counter: usize) -> u64 {
        let from = first_line * self.words_per_line + counter;
        self.memory.words(from, self.words_per_line).take(lines).fold(0, u64::wrapping_add)
    }
}
