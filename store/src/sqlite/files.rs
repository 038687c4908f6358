//! Whether a store's files are still those that are open, and how they are left when they are not.

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tracing::warn;

use super::SqliteStore;
use crate::StoreError;
use crate::file::{Displaced, FileFault};

impl SqliteStore {
    /// Checks that what is open is what others will find at the path.
    pub(crate) fn check_files(&mut self) -> Result<(), StoreError> {
        let connection = &self.connection;
        let is_sound = || {
            let said: rusqlite::Result<String> =
                connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0));
            // What it lacks may be in the log alone, which a crash would not leave there.
            said.is_ok_and(|said| said == "ok") && checkpoint(connection)
        };
        match self.files.check(is_sound) {
            Ok(()) => Ok(()),
            Err(fault) => Err(self.leave(fault)),
        }
    }

    /// Leaves the files so that the next connection finds what can be saved, and says what is wrong.
    fn leave(&self, fault: FileFault) -> StoreError {
        let path = self.files.path();
        let how = match fault {
            FileFault::Displaced(how) => how,
            FileFault::Io(error) => {
                return StoreError::Unusable(format!("cannot look at the store {}: {error}", path.display()));
            }
        };
        match how {
            Displaced::Deleted | Displaced::Replaced | Displaced::LogDeleted => {
                // A file that was only moved gets what the log has of it.
                let is_whole = checkpoint(&self.connection);
                if how != Displaced::LogDeleted
                    && let Err(error) = self.files.put_log_aside(is_whole)
                {
                    warn!("cannot put the write-ahead log of {} aside: {error}", path.display());
                }
            }
            Displaced::Truncated | Displaced::LogTruncated => {
                // To copy half of a log would destroy the other half.
                let kept = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
                if let Err(error) = kept {
                    warn!("cannot leave the log of {} as it is: {error}", path.display());
                }
            }
        }
        StoreError::Displaced { path: path.to_owned(), how }
    }

    /// Checks that what was just committed can be found again after a crash.
    pub(super) fn check_log_head(&self) -> Result<(), StoreError> {
        self.files.check_log_head().map_err(|fault| self.leave(fault))
    }
}

/// Moves all of the log into the database, and says whether that was done.
fn checkpoint(connection: &Connection) -> bool {
    let busy: rusqlite::Result<i64> =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0));
    busy.is_ok_and(|busy| busy == 0)
}
