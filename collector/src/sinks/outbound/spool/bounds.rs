//! Bounds of a spool, its extent, and its losses.

use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub(crate) struct SpoolBounds {
    /// Limit of all files; the oldest file beyond it is dropped.
    pub(crate) bytes: u64,
    /// Limit of a file, after which another one is begun.
    pub(crate) file_bytes: u64,
    /// Limit of the requests in memory while the disk refuses them.
    pub(crate) memory_bytes: usize,
    /// How long accepted requests are kept, to be sent again; zero for none.
    pub(crate) resend_window: Duration,
}

/// Losses and faults since the last call of [`super::Log::take_tally`].
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Samples in files that were dropped, since the spool was full.
    pub(crate) dropped_full: u64,
    /// Samples for which neither the disk nor memory had room.
    pub(crate) dropped_unwritable: u64,
    pub(crate) dropped_damaged: u64,
    pub(crate) damaged_files: u64,
    pub(crate) error: Option<String>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stats {
    pub(crate) bytes: u64,
    /// Samples in files and in memory that were not sent.
    pub(crate) samples: u64,
    pub(crate) memory_bytes: usize,
    /// How much older the newest sample that was sent is than the newest one in the spool.
    pub(crate) lag_ms: i64,
}
