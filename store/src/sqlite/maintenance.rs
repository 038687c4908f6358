//! Maintenance of an SQLite store: the connection and the tasks.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::connection::SqliteConnection;
use super::{retention, rollups, statement};
use crate::backend::{MaintenanceSession, Task};
use crate::removal::{metadata, requests};
use crate::{SCHEMA_VERSION, StoreError, limits};

const TASKS: [Task; 5] =
    [rollups::ADD, retention::REMOVE, metadata::REMOVE, requests::REMOVE, retention::SHRINK];

/// Connects to maintain the store at `path`. Returns none if it is not there, or not of this version: the
/// writer reports that.
pub(super) fn open(path: &Path) -> Result<Option<MaintenanceSession>, StoreError> {
    let Ok(connection) = connect(path) else { return Ok(None) };
    let version: rusqlite::Result<i32> =
        connection.query_row("SELECT max(version) FROM store_version", (), |row| row.get(0));
    if version != Ok(SCHEMA_VERSION) {
        return Ok(None);
    }
    let interrupt = connection.get_interrupt_handle();
    Ok(Some(MaintenanceSession {
        connection: Box::new(SqliteConnection::of(connection, path.to_owned())),
        cancel: Some(Box::new(move || interrupt.interrupt())),
        tasks: &TASKS,
        removal: &retention::REMOVAL,
        obstacle: None,
    }))
}

/// Connects to the store at `path`, which must exist.
pub(super) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(limits::SQLITE_BUSY)?;
    statement::add_functions(&connection)?;
    // A lost transaction of the maintenance is repeated: only the writer waits for the disk, which makes the
    // transactions before its own durable, too.
    connection.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY")?;
    Ok(connection)
}
