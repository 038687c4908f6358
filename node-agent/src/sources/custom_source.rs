//! Sources of kinds that have no variant of their own.

use std::fmt;
use std::sync::Arc;

use polymeter_proto::period::Period;

use super::outcome::Outcome;
use super::reading::Reading;
use super::slot::Slot;
use super::unknown_lines::UnknownLines;

/// A source whose kind has no variant in [`super::source::Source`].
pub trait CustomSource: Send + fmt::Debug {
    /// Empty for a source that only reports changes.
    fn slots(&self) -> &[Slot] {
        &[]
    }

    fn shared_slots(&self) -> Arc<[Slot]> {
        self.slots().into()
    }

    /// Reads it once. Values that are missing are absent in `reading`, which has a place for each slot.
    ///
    /// In the fast lane it must neither block nor allocate.
    fn read(&mut self, reading: &mut Reading) -> Outcome;

    /// True if a read costs as much as the values that it reads, so that it reads only those that are
    /// [wanted](Reading::is_wanted): in the slow lane, those of metrics whose deadlines have passed.
    fn reads_wanted_only(&self) -> bool {
        false
    }

    /// Takes the shortest period of its metrics, before a read. Needed by sources that sample by themselves
    /// between reads.
    fn set_period(&mut self, _period: Period) {}

    /// Reads it between two deadlines, because of [`Self::longest_gap_ns`]. Nothing is recorded.
    fn read_between(&mut self) {
        self.read(&mut Reading::absent(self.slots().len()));
    }

    /// Stack of its thread in the slow lane. Device libraries need more than system calls.
    fn stack_bytes(&self) -> usize {
        256 * 1024
    }

    /// True if it holds samples since the last read, so that it is read once more before it is closed.
    fn has_last_read(&self) -> bool {
        false
    }

    /// True if its state cannot be read again: it then stays open when the target's other sources are
    /// reopened.
    fn is_lasting(&self) -> bool {
        false
    }

    /// Longest time between two reads that loses no counts, as of a counter that wraps around. If deadlines
    /// are further apart, its thread in the slow lane reads in between.
    fn longest_gap_ns(&self) -> Option<u64> {
        None
    }

    /// Time between two updates by the hardware; `None` if each read may differ. Shorter periods are granted
    /// at this interval, for all its values.
    ///
    /// It is asked when the source is opened and, in the slow lane, after [`Self::prepare`] and after each
    /// read, which may find out a device's interval. Until then it should return the shortest that is
    /// possible.
    fn refresh_interval(&self) -> Option<Period> {
        None
    }

    /// True if [`Self::prepare`] finds the refresh interval: the opening waits for it for a moment.
    fn needs_preparation(&self) -> bool {
        false
    }

    /// Lines of the last text that no rule takes. In the slow lane it is asked as often as for the refresh
    /// interval.
    fn unknown_lines(&self) -> UnknownLines {
        UnknownLines::default()
    }

    /// Prepares the reads, on the source's thread in the slow lane, where it may block.
    fn prepare(&mut self) {}
}
