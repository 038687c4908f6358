//! The tags of columns: the mode in which the values are coded, and its argument.

pub(super) const MODE_ZERO: u8 = 0;
pub(super) const MODE_CONSTANT: u8 = 1;
pub(super) const MODE_COPY: u8 = 2;
pub(super) const MODE_RUNS: u8 = 3;
pub(super) const MODE_PACKED: u8 = 4;
pub(super) const MODE_XOR: u8 = 5;
/// As `RUNS` and `PACKED`, but against the first value and not the one before: for values that jump about a level.
pub(super) const MODE_LEVEL_RUNS: u8 = 6;
pub(super) const MODE_LEVEL_PACKED: u8 = 7;

/// A tag is three bits of mode and five of argument.
pub(super) const ARGUMENT_MAX: u8 = 31;

/// Differences that are packed with one width. Small enough that an outlier spoils little, large enough that the two
/// bytes of its header do not count.
pub(super) const PACK: usize = 128;

/// The nature of a column's values, which decides how they are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Integers that continue: a counter, a gauge of memory. Differences to the value before.
    Difference,
    /// Integers about a level: the lateness of ticks. Differences to the first value.
    Level,
    /// Bits of doubles. Exclusive or with the value before.
    Xor,
}

pub(super) const fn tag(mode: u8, argument: u8) -> u8 {
    mode | (argument << 3)
}
