//! Sources of kinds that have no variant of their own.

use std::fmt;

use polymeter_proto::period::Period;

use super::outcome::Outcome;
use super::reading::Reading;
use super::slot::Slot;
use super::unknown_lines::UnknownLines;

/// A source of a kind that has no variant of its own in [`super::source::Source`].
pub trait CustomSource: Send + fmt::Debug {
    /// Returns the meaning of each value of a reading.
    fn slots(&self) -> &[Slot];

    /// Reads it once. Missing values are absent in `reading`, which has a place for each slot.
    ///
    /// In the fast lane it must not block, nor allocate.
    fn read(&mut self, reading: &mut Reading) -> Outcome;

    /// Takes the shortest period at which its metrics are sampled, before a read. It matters to a source that
    /// samples by itself between the reads.
    fn set_period(&mut self, _period: Period) {}

    /// Reads it between two deadlines, because of [`Self::longest_gap_ns`]. The values are not recorded.
    fn read_between(&mut self) {
        self.read(&mut Reading::absent(self.slots().len()));
    }

    /// Returns the stack of its thread in the slow lane, in bytes. Device libraries need more than system
    /// calls.
    fn stack_bytes(&self) -> usize {
        256 * 1024
    }

    /// Returns true if it is read once more before it is closed, since it holds samples that belong to the
    /// time since the last read.
    fn has_last_read(&self) -> bool {
        false
    }

    /// Returns true if it holds state that cannot be read again, so that it stays open when other sources of
    /// its target are opened anew.
    fn is_lasting(&self) -> bool {
        false
    }

    /// Returns the longest time between two reads that loses no counts, in nanoseconds, as of a counter that
    /// wraps around; none if any time is. In the slow lane its thread reads in between where the deadlines
    /// are further apart.
    fn longest_gap_ns(&self) -> Option<u64> {
        None
    }

    /// Returns the time between two updates of its values by the hardware; none if each read may differ.
    /// Shorter periods are granted at this interval, for all its values.
    ///
    /// It is asked when the source is opened and, in the slow lane, after [`Self::prepare`] and after each
    /// read, where the interval of a device may become known. Until then it should return the shortest that
    /// is possible.
    fn refresh_interval(&self) -> Option<Period> {
        None
    }

    /// Returns true if [`Self::prepare`] finds the refresh interval, so that the opening waits for it for a
    /// moment.
    fn needs_preparation(&self) -> bool {
        false
    }

    /// Returns the lines of its text that no rule takes, as of the last read. In the slow lane it is asked as
    /// often as for the refresh interval.
    fn unknown_lines(&self) -> UnknownLines {
        UnknownLines::default()
    }

    /// Prepares the reads, in the slow lane on the source's thread, where it may block.
    fn prepare(&mut self) {}
}
