//! Bandwidth of the memory: `a = b + s * c` over arrays that no cache holds.

use std::ops::Range;

use polymeter_proto::units;

/// Computed between two looks at the clock, in elements.
const PIECE: usize = 16 * 1024;

/// Bytes that an element moves, 16 of each array: two are read, one is written. The writes bypass the caches,
/// which would read the old values first.
const ELEMENT_BYTES: f64 = 48.0;

/// Stored together.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(align(16))]
struct Element([f64; 2]);

const FACTOR: f64 = 3.0;

pub(super) struct Triad {
    sums: Vec<Element>,
    first: Vec<Element>,
    second: Vec<Element>,
    next: usize,
}

impl Triad {
    /// Makes arrays of about `array_bytes` each. Their pages are near the CPU that this thread runs on.
    pub(super) fn new(array_bytes: u64) -> Self {
        let length = usize::try_from(array_bytes).unwrap_or(usize::MAX) / size_of::<Element>();
        let length = length.max(PIECE);
        let array = |value: f64| vec![Element([value; 2]); length];
        Self { sums: array(0.5), first: array(1.0), second: array(2.0), next: 0 }
    }

    pub(super) fn step(&mut self) -> f64 {
        let Range { start, end } = self.next..(self.next + PIECE).min(self.sums.len());
        self.next = if end == self.sums.len() { 0 } else { end };
        let (Some(sums), Some(first), Some(second)) =
            (self.sums.get_mut(start..end), self.first.get(start..end), self.second.get(start..end))
        else {
            return 0.0;
        };
        add(sums, first, second);
        ELEMENT_BYTES * units::to_f64(sums.len() as u64)
    }
}

fn add(sums: &mut [Element], first: &[Element], second: &[Element]) {
    for ((sum, Element([one, other])), Element([second_one, second_other])) in
        sums.iter_mut().zip(first).zip(second)
    {
        store(sum, [one + FACTOR * second_one, other + FACTOR * second_other]);
    }
}

/// Stores an element past the caches.
#[cfg(target_arch = "x86_64")]
fn store(to: &mut Element, value: [f64; 2]) {
    use std::arch::x86_64::{_mm_loadu_pd, _mm_stream_pd};
    #[expect(unsafe_code, reason = "the compiler has no safe way to this instruction")]
    // SAFETY: every processor of this architecture has SSE2. Both pointers are those of two numbers, and that
    // of the element has the alignment that the store needs. The thread alone has the element: the end of the
    // thread orders the store before what others read.
    unsafe {
        _mm_stream_pd(to.0.as_mut_ptr(), _mm_loadu_pd(value.as_ptr()));
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn store(to: &mut Element, value: [f64; 2]) {
    to.0 = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_elements_are_computed_in_turn() {
        let mut triad = Triad::new(3 * 1024 * 1024);
        let elements = 3 * 1024 * 1024 / 16;
        assert_eq!(triad.sums.len(), elements);
        let mut moved = 0.0;
        for _ in 0..elements / PIECE {
            moved += triad.step();
        }
        assert_eq!((moved, triad.next), (3.0 * 3.0 * 1024.0 * 1024.0, 0));
        assert!(triad.sums.iter().all(|sum| *sum == Element([7.0; 2])));
    }
}
