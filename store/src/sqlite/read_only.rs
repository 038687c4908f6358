//! Opens the file of an SQLite store to read it, even if this user may not write.

use std::fs;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::diagnosis::explain;
use super::files::suffixed;
use crate::{StoreError, limits};

const OPENING: &str = "open the store";

/// Opens the store at `path`.
///
/// The connection is not read-only, because a reader of a write-ahead log may have to recover it. If this
/// user may not write to the directory, SQLite cannot create the log's index there. If there is no log with
/// content then, the file cannot change, and is opened as immutable.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    let source = match open_writable(path) {
        Ok(connection) => return Ok(connection),
        Err(source) => source,
    };
    let log_bytes = fs::metadata(suffixed(path, "-wal")).map_or(0, |log| log.len());
    if log_bytes == 0
        && fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0)
        && let Ok(connection) = open_immutable(path)
    {
        return Ok(connection);
    }
    Err(explain(path, OPENING, source))
}

fn open_writable(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(limits::SQLITE_BUSY)?;
    connection.pragma_update(None, "query_only", true)?;
    read_something(&connection)?;
    Ok(connection)
}

fn open_immutable(path: &Path) -> rusqlite::Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri(path), flags)?;
    read_something(&connection)?;
    Ok(connection)
}

/// Runs a first statement, which makes SQLite read the file.
fn read_something(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT count(*) FROM sqlite_master", (), |_| Ok(()))
}

/// Returns the path as a URI, with special characters escaped.
fn uri(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(*byte))
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri + "?immutable=1"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_special_characters_of_a_path() {
        assert_eq!(uri(Path::new("/a b/ü?%#.db")), "file:/a%20b/%C3%BC%3F%25%23.db?immutable=1");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a ?&%#ü.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
        assert!(open_immutable(&path).is_ok());
    }
}
