//! The bounds of a spool, its extent, and its losses.

use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub(crate) struct SpoolBounds {
    /// The size of all files; the oldest file beyond it is dropped.
    pub(crate) bytes: u64,
    /// The size of a file, after which another one is begun.
    pub(crate) file_bytes: u64,
    /// The size of the requests in memory, while the disk refuses them.
    pub(crate) memory_bytes: usize,
    /// The time for which accepted requests are kept, to be sent again; zero for none.
    pub(crate) resend_window: Duration,
}

/// Losses and faults since the last call of [`super::Log::take_tally`].
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Samples in files that were dropped, since the spool was full.
    pub(crate) dropped_full: u64,
    /// Samples that neither the disk nor memory had room for.
    pub(crate) dropped_unwritable: u64,
    /// Samples in damaged files.
    pub(crate) dropped_damaged: u64,
    pub(crate) damaged_files: u64,
    /// The last error of the disk.
    pub(crate) error: Option<String>,
}

/// The extent of a spool.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stats {
    /// The size of its files.
    pub(crate) bytes: u64,
    /// The samples that were not sent, in files and in memory.
    pub(crate) samples: u64,
    /// The size of the requests in memory.
    pub(crate) memory_bytes: usize,
    /// The time by which the newest sample that was sent is older than the newest one in the spool, in
    /// milliseconds.
    pub(crate) lag_ms: i64,
}
