//! Problems with the file of a store.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileProblem {
    Missing,
    /// A directory, or another file that holds no data.
    NoFile,
    NotReadable {
        owner: u32,
        mode: u32,
    },
    NotReachable,
    Empty,
    NoDatabase,
    Foreign,
    Truncated {
        bytes: u64,
        expected: u64,
    },
    Corrupt {
        said: String,
    },
    /// The write-ahead log contains the newest samples, but this user has no permission to create files in
    /// its directory, which reading the log requires.
    LogNotUsable,
    /// SQLite could not open the file, and states the reason.
    NotOpened {
        said: String,
    },
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("no such file; check the path: a collector creates the file when it first starts"),
            Self::NoFile => f.write_str("not a regular file; name the store's file"),
            Self::NotReadable { owner, mode } => write!(
                f,
                "permission denied: the file belongs to uid {owner} and has mode {mode:o}; ask its owner for read access"
            ),
            Self::NotReachable => {
                f.write_str("permission denied: its directory is not accessible; ask the directory's owner for access")
            }
            Self::Empty => f.write_str(
                "the file is empty; restore it from a copy, or start a collector with it to create a new store",
            ),
            Self::NoDatabase => f.write_str("the file is not an SQLite database; name the store's file"),
            Self::Foreign => f.write_str(
                "the file is another program's SQLite database; name the store's file",
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
                "its write-ahead log (-wal) cannot be read without write access to its directory; copy the file and its -wal file to a directory of your own and read the copy",
            ),
            Self::NotOpened { said } => {
                write!(f, "SQLite cannot open it ({said}); check the permissions of the file, its -wal file and its directory")
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Displaced {
    Deleted,
    Replaced,
    Truncated,
    LogDeleted,
    LogTruncated,
}

impl fmt::Display for Displaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deleted => "the file was deleted or moved while it was in use; move it back now, or a new store is created",
            Self::Replaced => {
                "the file was replaced while it was in use; stop the collector before restoring a copy"
            }
            Self::Truncated => {
                "the file was truncated while it was in use; restore it from a copy, or move it away"
            }
            Self::LogDeleted => {
                "its write-ahead log (-wal) was deleted or replaced while it was in use; never change that file, it is part of the store"
            }
            Self::LogTruncated => {
                "its write-ahead log (-wal) was truncated while it was in use; never change that file, it is part of the store"
            }
        })
    }
}
