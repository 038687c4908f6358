//! All bounds of the store, each with its reason.

use std::time::Duration;

pub(crate) const CONNECT: Duration = Duration::from_secs(10);

/// Longest wait of SQLite for another writer of the same file.
pub(crate) const SQLITE_BUSY: Duration = Duration::from_secs(10);

pub(crate) const COPY_BYTES: usize = 256 * 1024;

/// Prepared statements that a connection to SQLite caches: all statements of the writer.
pub(crate) const SQLITE_STATEMENTS: usize = 64;

/// Time within which a job whose agent was lost is continued by an agent that reports it under the same name.
pub(crate) const RESUME_LOST_JOB: Duration = Duration::from_secs(7 * 86_400);

/// Longest wait for another collector that migrates the schema.
pub(crate) const SCHEMA_LOCK: Duration = Duration::from_secs(60);
