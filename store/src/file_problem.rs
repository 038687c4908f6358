//! Problems with the file of a store.

use std::fmt;

/// A problem with the file of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileProblem {
    /// There is no such file.
    Missing,
    /// It is a directory, or something else that holds no data.
    NoFile,
    /// This user may not read it.
    NotReadable {
        /// The user id of its owner.
        owner: u32,
        /// Its mode.
        mode: u32,
    },
    /// This user may not enter its directory.
    NotReachable,
    /// It is empty.
    Empty,
    /// It is no SQLite database.
    NoDatabase,
    /// It is a database of another program.
    Foreign,
    /// Its end is missing.
    Truncated {
        /// Bytes that it has.
        bytes: u64,
        /// Bytes that it had.
        expected: u64,
    },
    /// It is a damaged SQLite database.
    Corrupt {
        /// SQLite's message.
        said: String,
    },
    /// Its write-ahead log holds the newest samples, and this user cannot use it without the right to write beside it.
    LogNotUsable,
    /// It could not be opened for a reason that SQLite names.
    NotOpened {
        /// SQLite's message.
        said: String,
    },
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("there is no such file; check the path: a collector creates the file when it first starts"),
            Self::NoFile => f.write_str("it is no file; name the file of the store"),
            Self::NotReadable { owner, mode } => write!(
                f,
                "this user may not read it: it belongs to uid {owner} and has mode {mode:o}; ask for the right to read it, or be that user"
            ),
            Self::NotReachable => {
                f.write_str("this user may not enter its directory; ask for the right to, or be its owner")
            }
            Self::Empty => f.write_str(
                "the file is empty; restore it from a copy, or have a collector start on it, which makes a new store of it",
            ),
            Self::NoDatabase => f.write_str("the file is no SQLite database; name the file of the store"),
            Self::Foreign => f.write_str(
                "the file is a database of another program, and no store of Polymeter; name the file of the store",
            ),
            Self::Truncated { bytes, expected } => write!(
                f,
                "the file is truncated: it has {bytes} of {expected} bytes; restore it from a copy, or save what is left with `sqlite3 FILE .recover`"
            ),
            Self::Corrupt { said } => write!(
                f,
                "the file is damaged ({said}); restore it from a copy, or save what is left with `sqlite3 FILE .recover`"
            ),
            Self::LogNotUsable => f.write_str(
                "its newest samples are in its write-ahead log (-wal), and this user may not write beside it, which takes reading that; copy the file and its -wal to a directory of your own, or be its owner",
            ),
            Self::NotOpened { said } => {
                write!(f, "SQLite cannot open it ({said}); check the rights of the file, its -wal and its directory")
            }
        }
    }
}

/// A change of the files of an open store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Displaced {
    /// The database was deleted or moved.
    Deleted,
    /// Another file is in the database's place.
    Replaced,
    /// The database is shorter than it was.
    Truncated,
    /// The write-ahead log was deleted or replaced.
    LogDeleted,
    /// The write-ahead log was overwritten or cut off.
    LogTruncated,
}

impl fmt::Display for Displaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deleted => "the file was deleted or moved while it was in use; move it back now, or a new store is made there",
            Self::Replaced => {
                "another file took its place while it was in use; stop the collector before you restore a copy"
            }
            Self::Truncated => {
                "the file was truncated while it was in use; restore it from a copy, or move it away"
            }
            Self::LogDeleted => {
                "its write-ahead log (-wal) was deleted or replaced while it was in use; leave that file alone, it belongs to the store"
            }
            Self::LogTruncated => {
                "its write-ahead log (-wal) was truncated while it was in use; leave that file alone, it belongs to the store"
            }
        })
    }
}
