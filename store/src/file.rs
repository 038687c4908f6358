//! The files of an SQLite store as the file system has them, held against those that are open.
//!
//! SQLite writes to the files that it opened, also when they were deleted or replaced since: a commit into those outlives
//! nothing. So after each commit, and before anything is acknowledged, a few calls of stat(2) compare. The database is never
//! opened here: to close one of its descriptors would drop SQLite's locks (POSIX locks belong to the process).

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The mode of a new store: samples say what users do. SQLite gives its log and its index the same.
const MODE: u32 = 0o600;

/// Bytes of the head of a write-ahead log, which begins with one of two numbers.
const LOG_HEAD_BYTES: u64 = 32;
const LOG_MAGIC: [[u8; 4]; 2] = [[0x37, 0x7f, 0x06, 0x82], [0x37, 0x7f, 0x06, 0x83]];

/// Which file it is, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// What became of an open store's files.
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

/// What a look at an open store's files finds wrong.
#[derive(Debug)]
pub(crate) enum FileFault {
    /// They are not those that are open, or not as they were.
    Displaced(Displaced),
    /// The file system does not say.
    Io(io::Error),
}

impl From<Displaced> for FileFault {
    fn from(how: Displaced) -> Self {
        Self::Displaced(how)
    }
}

/// The files of an open store.
#[derive(Debug)]
pub(crate) struct StoreFiles {
    /// As it was configured.
    path: PathBuf,
    /// The write-ahead log and its index, beside the file that the path leads to. None where SQLite has none, because the file
    /// system has no shared memory.
    log: Option<(PathBuf, PathBuf)>,
    database: FileId,
    log_id: Option<FileId>,
    database_bytes: u64,
    log_bytes: u64,
}

impl StoreFiles {
    /// Those of the store that was just opened at `path`. `resolved` is the path that SQLite made of it.
    pub(crate) fn of_open(path: &Path, resolved: &Path, has_log: bool) -> io::Result<Self> {
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

    pub(crate) const fn database(&self) -> FileId {
        self.database
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the files are still what is open, and as long as they were. A database may become shorter when another
    /// program vacuums it: then `is_sound` says whether it is whole.
    pub(crate) fn check(&mut self, is_sound: impl FnOnce() -> bool) -> Result<(), FileFault> {
        let metadata = match fs::metadata(&self.path) {
            Ok(metadata) => metadata,
            Err(error) if is_gone(&error) => return Err(Displaced::Deleted.into()),
            Err(error) => return Err(FileFault::Io(error)),
        };
        if FileId::of(&metadata) != self.database {
            return Err(Displaced::Replaced.into());
        }
        self.check_log()?;
        if metadata.len() < self.database_bytes && !is_sound() {
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
        // Another program's checkpoint may leave it empty, and nothing between.
        if metadata.len() < self.log_bytes && metadata.len() > 0 {
            return Err(Displaced::LogTruncated);
        }
        self.log_bytes = metadata.len();
        Ok(())
    }

    /// Checks after a commit that what it wrote begins with a log's head. It does not where the log was cut off behind
    /// SQLite's back: SQLite goes on behind a hole, and would not find its way there after a crash.
    pub(crate) fn check_log_head(&self) -> Result<(), FileFault> {
        let Some((log, _)) = &self.log else { return Ok(()) };
        if self.log_bytes < LOG_HEAD_BYTES {
            return Ok(());
        }
        let mut magic = [0; 4];
        // Only the database's own descriptors carry locks.
        let read = File::open(log).and_then(|mut log| log.read_exact(&mut magic));
        if read.is_ok() && LOG_MAGIC.contains(&magic) { Ok(()) } else { Err(Displaced::LogTruncated.into()) }
    }

    /// Takes the log and its index out of the way of the database that is in this one's place now, to which SQLite would
    /// apply them. `is_empty` says that the log's content is in its own database.
    pub(crate) fn put_log_aside(&self, is_empty: bool) -> io::Result<()> {
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

/// Makes an empty file for a new store, which nobody else can read. Says whether there was none.
pub(crate) fn create(path: &Path) -> io::Result<bool> {
    // Through a link that leads nowhere yet, too. A file that is there is not opened: see above.
    if fs::metadata(path).is_ok() {
        return Ok(false);
    }
    OpenOptions::new().write(true).create(true).truncate(false).mode(MODE).open(path)?;
    Ok(true)
}

/// Whether there is no such file.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// `path` with `suffix` behind its last component.
pub(crate) fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}
