//! Use of the spool by a session.

use polymeter_proto::wire::dictionary::Entry;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum SpoolMode {
    Off,
    /// Frames without room are written to it.
    On {
        /// Segment that was written last, and its version of the dictionary.
        written: Option<(u64, u64)>,
    },
    /// All frames come from it: those of an earlier process, with the dictionary of the segments that were
    /// read back.
    Replay(Vec<Entry>),
}
