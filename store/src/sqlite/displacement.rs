//! Check that an open store's files are still those at its path, and the preparation for the next
//! connection if not.

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tracing::warn;

use super::connection::SqliteConnection;
use super::files::FileFault;
use crate::StoreError;
use crate::file_problem::Displaced;

impl SqliteConnection {
    /// Checks that the open files are still the ones at the path.
    pub(super) fn check_files(&mut self) -> Result<(), StoreError> {
        let connection = &self.connection;
        let Some(files) = &mut self.files else { return Ok(()) };
        let checked = files.check(|length| {
            // The maintenance returned free pages to the file system, and the file contains all others.
            if size(connection).is_ok_and(|size| length >= size) {
                return true;
            }
            let verdict: rusqlite::Result<String> =
                connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0));
            // Pages that the database lacks may exist in the log only: a checkpoint writes them to the
            // database.
            verdict.is_ok_and(|verdict| verdict == "ok") && checkpoint(connection)
        });
        checked.map_err(|fault| self.leave(fault))
    }

    /// Prepares the files so that the next connection recovers as much as possible, and returns the error.
    fn leave(&self, fault: FileFault) -> StoreError {
        let Some(files) = &self.files else {
            return StoreError::Unusable("cannot check the store: it is opened read-only".to_owned());
        };
        let path = files.path();
        let how = match fault {
            FileFault::Displaced(how) => how,
            FileFault::Io(error) => {
                return StoreError::Unusable(format!("cannot check the store {}: {error}", path.display()));
            }
        };
        match how {
            Displaced::Deleted | Displaced::Replaced | Displaced::LogDeleted => {
                // A file that was only moved receives the content of the log.
                let is_whole = checkpoint(&self.connection);
                if how != Displaced::LogDeleted
                    && let Err(error) = files.put_log_aside(is_whole)
                {
                    warn!("cannot rename the write-ahead log of {}: {error}", path.display());
                }
            }
            Displaced::Truncated | Displaced::LogTruncated => {
                // A checkpoint of half a log would destroy the other half.
                let kept = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
                if let Err(error) = kept {
                    warn!("cannot preserve the write-ahead log of {}: {error}", path.display());
                }
            }
        }
        StoreError::Displaced { path: path.to_owned(), how }
    }

    /// Checks that the last transaction can be recovered after a crash.
    pub(super) fn check_log_head(&self) -> Result<(), StoreError> {
        self.files.as_ref().map_or(Ok(()), |files| files.check_log_head().map_err(|fault| self.leave(fault)))
    }
}

/// Returns the number of bytes of all pages.
fn size(connection: &Connection) -> rusqlite::Result<u64> {
    let pragma = |name| connection.query_row(name, (), |row| row.get::<_, u32>(0)).map(u64::from);
    Ok(pragma("PRAGMA page_count")? * pragma("PRAGMA page_size")?)
}

/// Writes all of the log into the database. Returns false on failure.
fn checkpoint(connection: &Connection) -> bool {
    let busy: rusqlite::Result<i64> =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0));
    busy.is_ok_and(|busy| busy == 0)
}
