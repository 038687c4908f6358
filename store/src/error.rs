//! What can go wrong with a store.

use std::fmt;
use std::path::PathBuf;

use crate::accepted::MissingFrames;
use crate::{Displaced, FileProblem, SCHEMA_VERSION};

/// What went wrong with a store.
#[derive(Debug)]
pub enum StoreError {
    /// SQLite reports a fault.
    Sqlite {
        /// What was being done.
        doing: &'static str,
        /// The fault.
        source: rusqlite::Error,
    },
    /// PostgreSQL, or the connection to it, reports a fault.
    Postgres {
        /// What was being done.
        doing: &'static str,
        /// The fault.
        source: tokio_postgres::Error,
    },
    /// The schema was made by a newer program.
    NewerSchema {
        /// Its version.
        found: i32,
    },
    /// The schema was made by an older program, and nobody has brought it up to date.
    OlderSchema {
        /// Its version.
        found: i32,
    },
    /// There is no such file, and none is to be made.
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be used as a store.
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: FileProblem,
    },
    /// The files of an open store are not what they were: what was written last is in none that is there.
    Displaced {
        /// The store's file.
        path: PathBuf,
        /// What became of it.
        how: Displaced,
    },
    /// The store does not have what it had.
    WentBack(MissingFrames),
    /// The connection leads to another store than the one before.
    Another {
        /// It was made just now, since there was none.
        is_new: bool,
    },
    /// The store cannot be used as it is.
    Unusable(String),
    /// The machine gave no thread or event loop.
    Runtime(std::io::Error),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite { doing, .. } | Self::Postgres { doing, .. } => {
                write!(f, "the store failed while {doing}")
            }
            Self::NewerSchema { found } => write!(
                f,
                "the store's schema has version {found}, and this program knows {SCHEMA_VERSION} and older: use a newer polymeter-collector, or another store"
            ),
            Self::OlderSchema { found } => write!(
                f,
                "the store's schema has version {found}, and this program reads {SCHEMA_VERSION}: start this version's polymeter-collector on it once"
            ),
            Self::Missing { path } => write!(f, "cannot open the store {}: there is no such file", path.display()),
            Self::File { path, problem } => write!(f, "{}: {problem}", path.display()),
            Self::Displaced { path, how } => {
                write!(f, "cannot acknowledge what was written to {}: {how}", path.display())
            }
            Self::WentBack(MissingFrames { session, stored, expected }) => write!(
                f,
                "cannot store what follows frame {expected} of session {session}: the store had that frame, and ends at {stored} now; if an older copy was restored, nothing needs to be done"
            ),
            Self::Another { is_new: true } => f.write_str(
                "cannot go on where the store ended: it is gone, and a new one was made in its place; what only the old one had is recorded as a loss (store_replaced)",
            ),
            Self::Another { is_new: false } => f.write_str(
                "cannot go on where the store ended: another store is in its place; what only the old one had is recorded as a loss (store_replaced)",
            ),
            Self::Unusable(why) => f.write_str(why),
            Self::Runtime(_) => f.write_str("the store's event loop cannot start"),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Sqlite { source, .. } => Some(source),
            Self::Postgres { source, .. } => Some(source),
            Self::Runtime(source) => Some(source),
            Self::NewerSchema { .. }
            | Self::OlderSchema { .. }
            | Self::Missing { .. }
            | Self::File { .. }
            | Self::Displaced { .. }
            | Self::WentBack(_)
            | Self::Another { .. }
            | Self::Unusable(_) => None,
        }
    }
}

impl StoreError {
    /// Whether the store does not have what it had: nothing counts that was remembered of it, such as its ids.
    pub const fn is_loss(&self) -> bool {
        matches!(self, Self::Displaced { .. } | Self::WentBack(_) | Self::Another { .. })
    }

    /// Whether a row is the cause, so that to try again is of no use.
    ///
    /// Only what cannot have another cause counts: a value that cannot be stored, or that a named check forbids. An exhausted
    /// sequence (2200H), a full disk, a missing partition or an administrator's trigger must not cost a row.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Postgres { source, .. } => source.as_db_error().is_some_and(|error| {
                let code = error.code().code();
                // A violation that names no constraint is of partitions: one was dropped, and is made again.
                ROW_ERRORS.contains(&code) || code == "23514" && error.constraint().is_some()
            }),
            Self::Sqlite { source, .. } => source.sqlite_error().is_some_and(|error| {
                matches!(error.code, rusqlite::ErrorCode::TooBig)
                    || error.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_NOTNULL
            }),
            Self::NewerSchema { .. }
            | Self::OlderSchema { .. }
            | Self::Missing { .. }
            | Self::File { .. }
            | Self::Displaced { .. }
            | Self::WentBack(_)
            | Self::Another { .. }
            | Self::Unusable(_)
            | Self::Runtime(_) => false,
        }
    }
}

/// The SQLSTATEs of which a value is the only possible cause.
const ROW_ERRORS: [&str; 9] = [
    "22001", // string_data_right_truncation
    "22003", // numeric_value_out_of_range
    "22007", // invalid_datetime_format
    "22008", // datetime_field_overflow
    "22021", // character_not_in_repertoire
    "22P02", // invalid_text_representation
    "22P03", // invalid_binary_representation
    "22P05", // untranslatable_character
    "23502", // not_null_violation
];

/// Says for either kind of fault what was being done.
pub(crate) trait Doing<T> {
    fn doing(self, what: &'static str) -> Result<T, StoreError>;
}

impl<T> Doing<T> for rusqlite::Result<T> {
    fn doing(self, doing: &'static str) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Sqlite { doing, source })
    }
}

impl<T> Doing<T> for Result<T, tokio_postgres::Error> {
    fn doing(self, doing: &'static str) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Postgres { doing, source })
    }
}

/// Returns an error with all its causes, on one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
