//! Errors of a store.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use crate::accepted::MissingFrames;
use crate::file_problem::{Displaced, FileProblem};
use crate::schema::SCHEMA_VERSION;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database, or the connection to it, reported an error.
    #[error("cannot {action}")]
    Database {
        /// Verb and object of what failed.
        action: &'static str,
        source: DatabaseError,
    },
    #[error(
        "cannot use the store: its schema version {found} is newer than this program's version {SCHEMA_VERSION}; use a newer polymeter-collector, or another store"
    )]
    NewerSchema { found: i32 },
    #[error(
        "cannot read the store: its schema version {found} is older than this program's version {SCHEMA_VERSION}; migrate it by starting polymeter-collector of this version with it once"
    )]
    OlderSchema { found: i32 },
    /// A development revision made the tables; this program knows none of them.
    #[error(
        "cannot use the store: a development revision of Polymeter made its tables; export its jobs with that revision (polymeter export --format parquet), and import the files into a new store (polymeter store import)"
    )]
    DevelopmentSchema,
    /// The file does not exist, and must not be created.
    #[error("cannot open the store {path}: no such file; check the path", path = path.display())]
    Missing { path: PathBuf },
    #[error("{path}: {problem}", path = path.display())]
    File { path: PathBuf, problem: FileProblem },
    /// The files of an open store were deleted, replaced or truncated: the last transactions are not in the
    /// files at the path.
    #[error("cannot acknowledge the samples written to {path}: {how}", path = path.display())]
    Displaced { path: PathBuf, how: Displaced },
    #[error(
        "cannot store the frames after frame {expected} of session {session}: the store lost committed frames and now ends at frame {stored}; if you restored an older copy, no action is needed",
        expected = .0.expected, session = .0.session, stored = .0.stored
    )]
    FramesMissing(MissingFrames),
    #[error(
        "cannot continue in the same store: {}; samples that only the old store contains are sent again, or recorded as lost (store_replaced)",
        if *is_new { "it disappeared, and a new one was created" } else { "it was replaced by another store, or a standby took over" }
    )]
    Replaced {
        /// True if the new store was created just now, because there was none.
        is_new: bool,
    },
    #[error(
        "cannot read the database: it has no tables of Polymeter; start a polymeter-collector with it once, which creates them"
    )]
    WithoutTables,
    /// Complete message about the current state of a database that cannot be used.
    #[error("{0}")]
    Unusable(String),
    /// The operating system refused a thread or an event loop.
    #[error("cannot start a thread of the store")]
    Thread(#[source] std::io::Error),
}

impl StoreError {
    /// Returns true if the store lacks data that it had: all cached state of it, such as ids, is invalid.
    pub const fn is_loss(&self) -> bool {
        matches!(self, Self::Displaced { .. } | Self::FramesMissing(_) | Self::Replaced { .. })
    }

    /// Returns true if the server of the database cannot be reached, rather than refuses.
    pub const fn is_unreachable(&self) -> bool {
        matches!(self, Self::Database { source: DatabaseError { kind: ErrorKind::Unreachable, .. }, .. })
    }

    /// Returns true if a row is the cause, so that a retry fails again.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Database { source: DatabaseError { kind: ErrorKind::BadRow, .. }, .. })
    }

    pub const fn is_disk_full(&self) -> bool {
        matches!(self, Self::Database { source: DatabaseError { kind: ErrorKind::DiskFull, .. }, .. })
    }

    pub(crate) const fn is_missing_table(&self) -> bool {
        matches!(self, Self::Database { source: DatabaseError { kind: ErrorKind::MissingTable, .. }, .. })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The value of a row is the only possible cause. An exhausted sequence, a missing partition and an
    /// administrator's trigger are of kind `Other`: they must not cost a row.
    BadRow,
    MissingTable,
    DiskFull,
    Unreachable,
    /// A retry may succeed.
    Other,
}

/// Error that a database reports. It is displayed like the error of the database's library.
#[derive(Debug)]
pub struct DatabaseError {
    kind: ErrorKind,
    error: Box<dyn Error + Send + Sync>,
}

impl DatabaseError {
    pub(crate) fn new(kind: ErrorKind, error: impl Error + Send + Sync + 'static) -> Self {
        Self { kind, error: Box::new(error) }
    }
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for DatabaseError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

pub(crate) trait Context<T> {
    /// Names the failed action by a verb and an object, such as "store samples".
    fn context(self, action: &'static str) -> Result<T, StoreError>;
}

impl<T, E: Into<DatabaseError>> Context<T> for Result<T, E> {
    fn context(self, action: &'static str) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Database { action, source: source.into() })
    }
}

/// Formats an error with all its causes, on one line.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
