//! SQLite: one file, one writer.

mod candidates;
mod connection;
mod diagnosis;
mod displacement;
mod files;
mod maintenance;
mod measure;
mod migrations;
mod read_only;
#[cfg(test)]
mod removal_tests;
mod retention;
mod rollups;
mod silent_jobs;
mod statement;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::ErrorCode;
use rustix::process::{Resource, getrlimit};

use self::connection::SqliteConnection;
use crate::backend::{
    AdministrationSession, Backend, Connection, InvalidStoreUrl, MaintenanceSession, Opened, OpenedToRead,
};
use crate::error::{DatabaseError, ErrorKind};
use crate::{OpenOptions, StoreError, WriteMode};

const SCHEME: &str = "sqlite:";

#[derive(Debug)]
pub(crate) struct Sqlite {
    path: PathBuf,
}

/// Parses `sqlite:PATH` or `sqlite://PATH`.
pub(crate) fn parse_url(text: &str) -> Option<Result<Arc<dyn Backend>, InvalidStoreUrl>> {
    let path = text.strip_prefix(SCHEME)?;
    let path = path.strip_prefix("//").unwrap_or(path);
    Some(match path {
        "" => Err(InvalidStoreUrl::because("missing path after `sqlite:`")),
        ":memory:" => {
            Err(InvalidStoreUrl::because("`:memory:` is not supported: other programs cannot read it"))
        }
        path => Ok(Arc::new(Sqlite::new(path.into()))),
    })
}

impl Sqlite {
    pub(crate) fn new(path: PathBuf) -> Self {
        // SQLite gives these names a meaning of their own.
        let name = path.as_os_str().as_encoded_bytes();
        let is_special = name.starts_with(b":") || name.starts_with(b"file:");
        Self { path: if is_special { Path::new(".").join(path) } else { path } }
    }
}

impl fmt::Display for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.path.display())
    }
}

impl Backend for Sqlite {
    fn file(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn has_parallel_writers(&self) -> bool {
        false
    }

    fn open(&self, options: &OpenOptions) -> Result<Opened, StoreError> {
        let (connection, origin) = SqliteConnection::open(&self.path, options)?;
        let write_mode = WriteMode { name: "SQLite", reason: "one file, one writer".to_owned() };
        Ok(Opened { connection: Box::new(connection), origin, write_mode })
    }

    fn open_to_read(&self) -> Result<OpenedToRead, StoreError> {
        let connection = read_only::open(&self.path)?;
        let interrupt = connection.get_interrupt_handle();
        Ok(OpenedToRead {
            connection: Box::new(SqliteConnection::of(connection, self.path.clone())),
            cancel: Box::new(move || interrupt.interrupt()),
        })
    }

    fn without_tables(&self) -> StoreError {
        diagnosis::without_tables(&self.path)
    }

    fn probe(&self) -> Result<(), StoreError> {
        read_only::open(&self.path).map(drop)
    }

    fn open_to_administer(&self) -> Result<AdministrationSession, StoreError> {
        // The reader's errors tell what is wrong with a file.
        drop(read_only::open(&self.path)?);
        let connection = maintenance::connect(&self.path)
            .map_err(|source| diagnosis::explain(&self.path, "open the store", source))?;
        let connection = Box::new(SqliteConnection::of(connection, self.path.clone()));
        let path = self.path.clone();
        let measure = Box::new(move |connection: &mut dyn Connection, now_us| {
            measure::measure(connection, &path, now_us)
        });
        Ok(AdministrationSession { connection, removal: &retention::REMOVAL, measure })
    }

    fn open_for_maintenance(&self) -> Result<Option<MaintenanceSession>, StoreError> {
        maintenance::open(&self.path)
    }
}

/// A write failed in a process that may write files of a limited size only. SQLite does not state the cause.
#[derive(Debug, thiserror::Error)]
#[error(
    "a file would have more than {limit_bytes} bytes; raise the limit of file sizes (`LimitFSIZE` of the service, `ulimit -f`)"
)]
struct FileTooLarge {
    limit_bytes: u64,
    source: rusqlite::Error,
}

impl From<rusqlite::Error> for DatabaseError {
    fn from(error: rusqlite::Error) -> Self {
        let is_bad_row = error.sqlite_error().is_some_and(|error| {
            matches!(error.code, ErrorCode::TooBig)
                || error.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_NOTNULL
        });
        let is_write = error
            .sqlite_error()
            .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_WRITE);
        if is_write && let Some(limit_bytes) = getrlimit(Resource::Fsize).current {
            return Self::new(ErrorKind::Other, FileTooLarge { limit_bytes, source: error });
        }
        let kind = if is_bad_row {
            ErrorKind::BadRow
        } else if error.sqlite_error_code() == Some(ErrorCode::DiskFull) {
            ErrorKind::DiskFull
        } else if error.to_string().starts_with("no such table") {
            ErrorKind::MissingTable
        } else {
            ErrorKind::Other
        };
        Self::new(kind, error)
    }
}

/// Creates a store for tests, which lasts as long as its directory.
#[cfg(test)]
pub(crate) fn new_store() -> (tempfile::TempDir, Box<dyn Connection>) {
    let directory = tempfile::tempdir().unwrap();
    let store = Sqlite::new(directory.path().join("store.db"));
    drop(store.open(&OpenOptions { may_create: true, ..OpenOptions::default() }).unwrap());
    let connection = store.open_for_maintenance().unwrap().unwrap().connection;
    (directory, connection)
}
