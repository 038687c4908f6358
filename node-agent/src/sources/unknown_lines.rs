//! Lines that no rule takes: their values have no series. They are counted and reported.

use std::sync::{Arc, Mutex};

use super::lock::lock;

/// Longest beginning of a line that is kept.
const BEGINNING_CHARS: usize = 80;

/// Lines of a text that no rule takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnknownLines {
    pub lines: usize,
    pub first: String,
}

impl UnknownLines {
    pub(super) fn new(lines: u64, first: Option<&[u8]>) -> Self {
        let lines = usize::try_from(lines).unwrap_or(usize::MAX);
        Self { lines, first: first.map(beginning).unwrap_or_default() }
    }

    pub(crate) fn add(&mut self, line: &[u8]) {
        if self.lines == 0 {
            self.first = beginning(line);
        }
        self.lines += 1;
    }

    pub(super) fn join(&mut self, other: Self) {
        if self.lines == 0 {
            self.first = other.first;
        }
        self.lines += other.lines;
    }
}

pub(super) fn beginning(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim_end().chars().take(BEGINNING_CHARS).collect()
}

/// Unknown lines of an open source. With a thread of its own, its readings change them.
#[derive(Debug, Clone, Default)]
pub struct UnknownLinesFound(Arc<Mutex<UnknownLines>>);

impl UnknownLinesFound {
    pub(super) fn new(unknown: UnknownLines) -> Self {
        Self(Arc::new(Mutex::new(unknown)))
    }

    pub(super) fn set(&self, unknown: UnknownLines) {
        *lock(&self.0) = unknown;
    }

    pub(crate) fn get(&self) -> UnknownLines {
        lock(&self.0).clone()
    }
}
