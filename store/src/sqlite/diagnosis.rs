//! Diagnosis of an SQLite file that cannot be used. SQLite's own messages lack the cause.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::files::{is_gone, suffixed};
use crate::StoreError;
use crate::file_problem::FileProblem;

/// Length of a database's head, and its first bytes.
const HEAD_BYTES: usize = 100;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Returns the error `source` of the store at `path`, with its cause if the file shows one. The file is
/// opened for that; therefore no other connection of this process may write to it.
pub(super) fn explain(path: &Path, action: &'static str, source: rusqlite::Error) -> StoreError {
    match diagnose(path, &source) {
        Some(problem) => StoreError::File { path: path.to_owned(), problem },
        None => StoreError::Database { action, source: source.into() },
    }
}

fn diagnose(path: &Path, source: &rusqlite::Error) -> Option<FileProblem> {
    // A new file is still empty then.
    if source.sqlite_error_code() == Some(ErrorCode::DiskFull) {
        return None;
    }
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if is_gone(&error) => return Some(FileProblem::Missing),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Some(FileProblem::NotReachable),
        Err(error) => return Some(FileProblem::NotOpened { said: error.to_string() }),
    };
    if !metadata.is_file() {
        return Some(FileProblem::NoFile);
    }
    if metadata.len() == 0 {
        return Some(FileProblem::Empty);
    }
    let log_bytes = fs::metadata(suffixed(path, "-wal")).map_or(0, |log| log.len());
    match head(path) {
        Ok(head) if !head.starts_with(MAGIC) => return Some(FileProblem::NoDatabase),
        Ok(head) => {
            let expected = bytes_of(&head).unwrap_or_default();
            if log_bytes == 0 && expected > metadata.len() {
                return Some(FileProblem::Truncated { bytes: metadata.len(), expected });
            }
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let (owner, mode) = (metadata.uid(), metadata.permissions().mode() & 0o7777);
            return Some(FileProblem::NotReadable { owner, mode });
        }
        Err(error) => return Some(FileProblem::NotOpened { said: error.to_string() }),
    }
    let (said, code) = (source.to_string(), source.sqlite_error_code()?);
    if matches!(code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) {
        return Some(FileProblem::Corrupt { said });
    }
    if !matches!(code, ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) {
        return None;
    }
    Some(if log_bytes > 0 { FileProblem::LogNotUsable } else { FileProblem::NotOpened { said } })
}

/// Returns the error for a database at `path` without tables of Polymeter.
pub(super) fn without_tables(path: &Path) -> StoreError {
    let is_empty = fs::metadata(path).is_ok_and(|metadata| metadata.len() == 0) || has_nothing(path);
    let problem = if is_empty { FileProblem::Empty } else { FileProblem::Foreign };
    StoreError::File { path: path.to_owned(), problem }
}

/// Returns true for a database whose creation was interrupted: it has no tables at all.
fn has_nothing(path: &Path) -> bool {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let select = "SELECT count(*) FROM sqlite_master";
    Connection::open_with_flags(path, flags)
        .and_then(|connection| connection.query_row(select, (), |row| row.get::<_, i64>(0)))
        .is_ok_and(|objects| objects == 0)
}

/// Reads the head of the file at `path`, or the whole file if it is shorter.
fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// Returns the length of a database with this head, if the head states it.
fn bytes_of(head: &[u8]) -> Option<u64> {
    let word = |at: usize| Some(u32::from_be_bytes(*head.get(at..)?.first_chunk()?));
    let page_bytes = u16::from_be_bytes(*head.get(16..)?.first_chunk()?);
    let page_bytes = if page_bytes == 1 { 65_536 } else { u64::from(page_bytes) };
    // The count is valid only if it was written together with the rest of the head.
    let is_true = word(24)? == word(92)?;
    is_true.then_some(u64::from(word(28)?) * page_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(path: &Path) -> String {
        let error = Connection::open(path)
            .and_then(|connection| connection.query_row("SELECT * FROM t", (), |_| Ok(())))
            .unwrap_err();
        let explained = explain(path, "read the store", error);
        let StoreError::File { problem, .. } = explained else {
            return format!("unexplained: {explained:?}");
        };
        problem.to_string()
    }

    #[test]
    fn a_store_whose_creation_was_interrupted_is_empty() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        for (statements, expected) in [
            ("PRAGMA journal_mode = WAL", FileProblem::Empty),
            ("CREATE TABLE t (a); DROP TABLE t", FileProblem::Empty),
            ("CREATE TABLE t (a)", FileProblem::Foreign),
        ] {
            Connection::open(&path).unwrap().execute_batch(statements).unwrap();
            assert!(fs::metadata(&path).unwrap().len() > 0);
            let StoreError::File { problem, .. } = without_tables(&path) else { panic!("another error") };
            assert_eq!(problem, expected, "{statements}");
        }
    }

    #[test]
    fn each_fault_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p.db");
        let rows = (0..1000).map(|row| format!("({row}, zeroblob(100))")).collect::<Vec<_>>().join(",");
        let sql = format!("CREATE TABLE t (a INTEGER, b BLOB); INSERT INTO t VALUES {rows};");
        Connection::open(&path).unwrap().execute_batch(&sql).unwrap();
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let truncated = said(&path);
        assert!(
            truncated.contains(&format!("it has {} of {} bytes", whole.len() / 2, whole.len())),
            "{truncated}"
        );
        fs::write(&path, &whole[..50]).unwrap();
        assert!(said(&path).contains("damaged"), "{}", said(&path));
        let mut corrupt = whole.clone();
        corrupt[100..whole.len()].fill(0x55);
        fs::write(&path, corrupt).unwrap();
        assert!(said(&path).contains("damaged"), "{}", said(&path));
        fs::write(&path, "Dear diary,").unwrap();
        assert!(said(&path).contains("not an SQLite database"), "{}", said(&path));
        assert!(said(&directory.path().join("no/where.db")).contains("no such file"));
        assert!(said(directory.path()).contains("not a regular file"));
        fs::write(&path, "").unwrap();
        assert!(said(&path).contains("the file is empty") || said(&path).contains("unexplained"));
    }
}
