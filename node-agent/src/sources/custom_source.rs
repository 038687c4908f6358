//! Sources of kinds that have no variant of their own.

use std::fmt;

use super::outcome::Outcome;
use super::reading::Reading;
use super::slot::Slot;

/// A source of a kind that has no variant of its own in [`super::source::Source`].
pub trait CustomSource: Send + fmt::Debug {
    /// Returns the meaning of each value of a reading.
    fn slots(&self) -> &[Slot];

    /// Reads it once. Missing values are absent in `reading`, which has a place for each slot.
    ///
    /// In the fast lane it must not block, nor allocate.
    fn read(&mut self, reading: &mut Reading) -> Outcome;

    /// Returns true if it holds state that cannot be read again, so that it stays open when other sources of its target
    /// are opened anew.
    fn is_lasting(&self) -> bool {
        false
    }
}
