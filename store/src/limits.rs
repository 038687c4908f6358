//! The bounds of the store, each with its reason.

use std::time::Duration;

/// The longest wait for a server to accept a connection.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);

/// The longest wait of SQLite for another writer of the same file.
pub(crate) const SQLITE_BUSY: Duration = Duration::from_secs(10);

/// The number of bytes that are handed to COPY at once.
pub(crate) const COPY_BYTES: usize = 256 * 1024;

/// The number of prepared statements that a connection to SQLite keeps: all that the writer has.
pub(crate) const SQLITE_STATEMENTS: usize = 64;

/// The time for which a job whose agent was lost is resumed by an agent that finds it under the same name.
pub(crate) const RESUME_LOST_JOB: Duration = Duration::from_secs(7 * 86_400);
