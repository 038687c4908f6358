//! Comparison of the files at the path of an SQLite store with those that are open.
//!
//! SQLite writes to the files that it opened, even after they were deleted or replaced: such a commit is lost
//! when the process ends. Therefore a few calls of stat(2) compare the files after each commit, before an
//! acknowledgement. The database is never opened here: closing one of its descriptors would release SQLite's
//! locks, since POSIX locks belong to the process.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::file_problem::Displaced;

/// Mode of a new store. It is private, since samples reveal the activities of users. SQLite gives its log and
/// its index the same mode.
const MODE: u32 = 0o600;

/// Length of the head of a write-ahead log, which begins with one of two magic numbers.
const LOG_HEAD_BYTES: u64 = 32;
const LOG_MAGIC: [[u8; 4]; 2] = [[0x37, 0x7f, 0x06, 0x82], [0x37, 0x7f, 0x06, 0x83]];

/// Identity of a file, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl From<FileId> for (u64, u64) {
    fn from(id: FileId) -> Self {
        (id.device, id.inode)
    }
}

impl FileId {
    fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

#[derive(Debug)]
pub(super) enum FileFault {
    /// They are not the files that are open, or are shorter than before.
    Displaced(Displaced),
    /// They cannot be examined.
    Io(io::Error),
}

impl From<Displaced> for FileFault {
    fn from(how: Displaced) -> Self {
        Self::Displaced(how)
    }
}

#[derive(Debug)]
pub(super) struct StoreFiles {
    /// Path as it was configured.
    path: PathBuf,
    /// Write-ahead log and its index, next to the file that the path leads to; none if the file system has no
    /// shared memory, so that SQLite uses no log.
    log: Option<(PathBuf, PathBuf)>,
    database: FileId,
    log_id: Option<FileId>,
    database_bytes: u64,
    log_bytes: u64,
}

impl StoreFiles {
    /// Returns the files of the store that was just opened at `path`, which SQLite resolved to `resolved`.
    pub(super) fn of_open(path: &Path, resolved: &Path, has_log: bool) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        let log = has_log.then(|| (suffixed(resolved, "-wal"), suffixed(resolved, "-shm")));
        let of_log = log.as_ref().and_then(|(log, _)| fs::metadata(log).ok());
        Ok(Self {
            path: path.to_owned(),
            database: FileId::of(&metadata),
            database_bytes: metadata.len(),
            log_id: of_log.as_ref().map(FileId::of),
            log_bytes: of_log.map_or(0, |log| log.len()),
            log,
        })
    }

    pub(super) const fn database(&self) -> FileId {
        self.database
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the files are still those that are open, and not shorter. A database also becomes shorter
    /// when it is vacuumed: `is_sound` tells whether it is complete with this number of bytes.
    pub(super) fn check(&mut self, is_sound: impl FnOnce(u64) -> bool) -> Result<(), FileFault> {
        let metadata = match fs::metadata(&self.path) {
            Ok(metadata) => metadata,
            Err(error) if is_gone(&error) => return Err(Displaced::Deleted.into()),
            Err(error) => return Err(FileFault::Io(error)),
        };
        if FileId::of(&metadata) != self.database {
            return Err(Displaced::Replaced.into());
        }
        self.check_log()?;
        // Beside an empty log the database has all pages, also those that were only in the log at the last
        // check.
        let has_all_pages = self.log.is_some() && self.log_bytes == 0;
        if (has_all_pages || metadata.len() < self.database_bytes) && !is_sound(metadata.len()) {
            return Err(Displaced::Truncated.into());
        }
        self.database_bytes = metadata.len();
        Ok(())
    }

    fn check_log(&mut self) -> Result<(), Displaced> {
        let Some((log, _)) = &self.log else { return Ok(()) };
        let metadata = fs::metadata(log).map_err(|_gone| Displaced::LogDeleted)?;
        if *self.log_id.get_or_insert(FileId::of(&metadata)) != FileId::of(&metadata) {
            return Err(Displaced::LogDeleted);
        }
        // A checkpoint of another program may leave the log empty, but never shorter with content.
        if metadata.len() < self.log_bytes && metadata.len() > 0 {
            return Err(Displaced::LogTruncated);
        }
        self.log_bytes = metadata.len();
        Ok(())
    }

    /// Checks after a commit that the log begins with a valid head. The head is missing after another program
    /// has truncated the log: SQLite continues behind the hole, and could not recover the log after a crash.
    pub(super) fn check_log_head(&self) -> Result<(), FileFault> {
        let Some((log, _)) = &self.log else { return Ok(()) };
        if self.log_bytes < LOG_HEAD_BYTES {
            return Ok(());
        }
        let mut magic = [0; 4];
        // Only the database's own descriptors hold locks.
        let read = File::open(log).and_then(|mut log| log.read_exact(&mut magic));
        if read.is_ok() && LOG_MAGIC.contains(&magic) { Ok(()) } else { Err(Displaced::LogTruncated.into()) }
    }

    /// Renames the log and its index, which belong to a database that was replaced: SQLite would apply them
    /// to the new one. `is_empty` is true if the content of the log is in its own database.
    pub(super) fn put_log_aside(&self, is_empty: bool) -> io::Result<()> {
        let Some((log, index)) = &self.log else { return Ok(()) };
        let is_ours = fs::metadata(log).is_ok_and(|metadata| Some(FileId::of(&metadata)) == self.log_id);
        if !is_ours {
            return Ok(());
        }
        if is_empty {
            fs::remove_file(log)?;
        } else {
            fs::rename(log, suffixed(log, ".displaced"))?;
        }
        match fs::remove_file(index) {
            Err(error) if !is_gone(&error) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Creates an empty, private file for a new store, unless there is a file, which is not opened for the sake
/// of the locks. A new store does not begin in what another user has put there, who could read or replace it.
pub(super) fn create(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(MODE).open(path) {
        Ok(_) => {
            for companion in ["-wal", "-shm", "-journal"].map(|suffix| suffixed(path, suffix)) {
                if let Err(error) = check_owner(&companion) {
                    fs::remove_file(path)?;
                    return Err(error);
                }
            }
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => check_existing(path),
        // The directory or the file system may be read-only, and the file there.
        Err(error) => fs::metadata(path).map(drop).map_err(|_missing| error),
    }
}

fn check_existing(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.len() > 0 => Ok(()),
        Ok(_) => check_owner(path),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // A link to a missing file.
            check_owner(path)?;
            create(&path.parent().unwrap_or(Path::new("")).join(fs::read_link(path)?))
        }
        Err(error) => Err(error),
    }
}

/// Refuses a file or a link that belongs to another user than this one and root. It need not exist.
fn check_owner(path: &Path) -> io::Result<()> {
    let found = [fs::symlink_metadata(path), fs::metadata(path)].into_iter().flatten();
    match found.map(|metadata| metadata.uid()).find(|owner| ![0, geteuid().as_raw()].contains(owner)) {
        None => Ok(()),
        Some(owner) => {
            let path = path.display();
            let message =
                format!("{path} belongs to uid {owner}, who could read the store; name another file");
            Err(io::Error::new(ErrorKind::PermissionDenied, message))
        }
    }
}

pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

pub(super) fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, lchown, symlink};

    use super::*;

    const OTHER: Option<u32> = Some(64_001);

    #[test]
    fn a_new_store_begins_in_own_files_only() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        create(&at("new.db")).unwrap();
        create(&at("new.db")).unwrap();
        symlink("linked.db", at("link")).unwrap();
        create(&at("link")).unwrap();
        assert!(at("new.db").exists() && at("linked.db").exists());
        if !geteuid().is_root() {
            // Only root can make files of others.
            return;
        }
        symlink(at("absent.db"), at("dangling")).unwrap();
        lchown(at("dangling"), OTHER, OTHER).unwrap();
        for name in ["empty.db", "log.db-wal"] {
            fs::write(at(name), "").unwrap();
            chown(at(name), OTHER, OTHER).unwrap();
        }
        for name in ["dangling", "empty.db", "log.db"] {
            let error = create(&at(name)).unwrap_err().to_string();
            assert!(error.contains("belongs to uid 64001"), "{error}");
        }
        assert!(!at("absent.db").exists() && !at("log.db").exists());
        // The store of a service, which root reads and repairs.
        fs::write(at("empty.db"), "content").unwrap();
        create(&at("empty.db")).unwrap();
    }
}
