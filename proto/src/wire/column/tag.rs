//! Tags of columns: the coding mode and its argument.

pub(super) const MODE_ZERO: u8 = 0;
pub(super) const MODE_CONSTANT: u8 = 1;
pub(super) const MODE_COPY: u8 = 2;
pub(super) const MODE_RUNS: u8 = 3;
pub(super) const MODE_PACKED: u8 = 4;
pub(super) const MODE_XOR: u8 = 5;
/// Like `RUNS` and `PACKED`, but with differences to the first value instead of the previous one: for values
/// that vary about a level.
pub(super) const MODE_LEVEL_RUNS: u8 = 6;
pub(super) const MODE_LEVEL_PACKED: u8 = 7;

/// A tag has three bits of mode and five of argument.
pub(super) const ARGUMENT_MAX: u8 = 31;

/// Differences that are packed with one width: few enough to limit the cost of an outlier, so many that the
/// two bytes of the header do not matter.
pub(super) const PACK: usize = 128;

/// Kind of a column's values, which selects the coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Integers that change gradually, such as counters and gauges of memory. Differences to the previous
    /// value.
    Difference,
    /// Integers about a level: the lateness of ticks. Differences to the first value.
    Level,
    /// Bits of doubles. Exclusive or with the previous value.
    Xor,
}

pub(super) const fn tag(mode: u8, argument: u8) -> u8 {
    mode | (argument << 3)
}
