//! A spool: a directory of segments, which are files of records and outlive the process.
//!
//! - One process uses a directory at a time.
//! - A segment begins on the disk as a whole or not at all. Of a failed write nothing is kept, and records
//!   that were flushed survive the machine.
//! - Damage is detected, and costs the record that it hits; behind a damaged head, the rest of the segment.
//!
//! What the records contain, when a segment is full, when it is flushed, and what is done when the spool is
//! full is up to the user.

mod reader;
pub mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;

pub use self::reader::SegmentReader;
use crate::file_size::FILE_SIZE_REMEDY;
use crate::place;

/// Samples reveal the activities of users.
const DIRECTORY_MODE: u32 = 0o700;

/// Extension of segments. Damaged ones have the next.
const SEGMENT: &str = "spool";
const DAMAGED: &str = "damaged";

/// File in which a segment is made.
const NEW: &str = "new";

/// Damaged segments that are kept for examination, at most.
const DAMAGED_MAX: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("another {user} uses the spool {}; give each {user} its own directory", directory.display())]
    InUse {
        /// Noun for the user of the spool.
        user: &'static str,
        directory: PathBuf,
    },
    #[error("cannot {doing} {}: {source}{}", path.display(), remedy(path, source))]
    Disk { doing: &'static str, path: PathBuf, source: io::Error },
}

impl SpoolError {
    /// Tells whether the same operation may succeed later: the disk has a fault, but the file is not missing.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Disk { source, .. } if source.kind() != io::ErrorKind::NotFound)
    }
}

impl From<SpoolError> for io::Error {
    fn from(error: SpoolError) -> Self {
        Self::other(error)
    }
}

/// Remedy to append to the text of an error.
fn remedy(path: &Path, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::FileTooLarge {
        return format!("; {FILE_SIZE_REMEDY}");
    }
    if error.kind() != io::ErrorKind::PermissionDenied {
        return String::new();
    }
    let directory = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    let (user, directory) = (geteuid().as_raw(), directory.display());
    format!("; give it to the user of this program: `chown -R {user} {directory}`")
}

/// Adds the operation and the path to an error of the disk.
fn disk(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SpoolError {
    move |source| SpoolError::Disk { doing, path: path.to_owned(), source }
}

/// Locks a directory for this process, until the returned file is closed. Creates it if it does not exist.
/// `user` is the program, as a noun.
pub fn lock_directory(directory: &Path, user: &'static str) -> Result<File, SpoolError> {
    place::make_directory(directory, DIRECTORY_MODE).map_err(disk("make the spool", directory))?;
    let path = directory.join("lock");
    let file = place::open_or_create(&path).map_err(disk("open", &path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(SpoolError::InUse { user, directory: directory.to_owned() }),
        Err(error) => Err(disk("lock", &path)(error.into())),
    }
}

/// Name of a segment. Segments are ordered by stream, then by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub stream: u64,
    /// Place of the segment in its stream.
    pub number: u64,
}

impl Key {
    /// None for another file.
    pub fn of_file(name: &str) -> Option<Self> {
        let (stream, number) = name.strip_suffix(SEGMENT)?.strip_suffix('.')?.split_once('-')?;
        let parse = |text: &str| (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten();
        Some(Self { stream: parse(stream)?, number: parse(number)? })
    }

    fn path(self, directory: &Path) -> PathBuf {
        directory.join(format!("{:016x}-{:016x}.{SEGMENT}", self.stream, self.number))
    }
}

#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    _lock: File,
    limit_bytes: u64,
    /// Size of each segment, in bytes.
    segments: BTreeMap<Key, u64>,
    open: Option<(Key, File)>,
}

impl Spool {
    /// Locks the directory as [`lock_directory`] does, for segments of about `limit_bytes` together.
    pub fn open(directory: &Path, user: &'static str, limit_bytes: u64) -> Result<Self, SpoolError> {
        let lock = lock_directory(directory, user)?;
        let mut segments = BTreeMap::new();
        let entries = fs::read_dir(directory).map_err(disk("read the spool", directory))?;
        for entry in entries {
            let entry = entry.map_err(disk("read the spool", directory))?;
            if let Some(key) = Key::of_file(&entry.file_name().to_string_lossy()) {
                let metadata = entry.metadata().map_err(disk("read", &entry.path()))?;
                segments.insert(key, metadata.len());
            }
        }
        Ok(Self { directory: directory.to_owned(), _lock: lock, limit_bytes, segments, open: None })
    }

    pub fn bytes(&self) -> u64 {
        self.segments.values().sum()
    }

    /// Tells whether `more_bytes` are within the limit.
    pub fn has_room(&self, more_bytes: u64) -> bool {
        self.bytes().saturating_add(more_bytes) <= self.limit_bytes
    }

    /// Sizes in bytes.
    pub const fn segments(&self) -> &BTreeMap<Key, u64> {
        &self.segments
    }

    /// Segment that [`Self::append`] continues, with its size in bytes.
    pub fn open_segment(&self) -> Option<(Key, u64)> {
        let (key, _) = self.open.as_ref()?;
        Some((*key, self.segments.get(key).copied().unwrap_or_default()))
    }

    /// Begins a segment with records, which are flushed. Replaces one of this name. The open segment is
    /// flushed and closed.
    ///
    /// After an error there is no new segment, and the open one stays open.
    pub fn begin(&mut self, key: Key, records: &[u8]) -> Result<(), SpoolError> {
        self.flush()?;
        let path = key.path(&self.directory);
        let file = self.make(&path, records).map_err(disk("make", &path))?;
        self.segments.insert(key, records.len() as u64);
        self.open = Some((key, file));
        Ok(())
    }

    fn make(&self, path: &Path, records: &[u8]) -> io::Result<File> {
        let new = self.directory.join(NEW);
        let mut file = place::create_anew(&new)?;
        let written = file.write_all(records).and_then(|()| file.sync_data());
        let renamed = written.and_then(|()| fs::rename(&new, path));
        if renamed.is_err() {
            fs::remove_file(&new).ok();
        }
        renamed?;
        let flushed = File::open(&self.directory)?.sync_all();
        if flushed.is_err() {
            fs::remove_file(path).ok();
        }
        flushed.map(|()| file)
    }

    /// Opens a segment of an earlier process to continue it behind its first `bytes` bytes. Cuts off the
    /// rest.
    pub fn resume(&mut self, key: Key, bytes: u64) -> Result<(), SpoolError> {
        let path = key.path(&self.directory);
        let opened = OpenOptions::new().write(true).custom_flags(place::FLAGS).open(&path);
        let file = opened.and_then(|file| file.set_len(bytes).map(|()| file)).map_err(disk("open", &path))?;
        self.segments.insert(key, bytes);
        self.open = Some((key, file));
        Ok(())
    }

    /// Appends records to the open segment. They outlive the process; the machine only after [`Self::flush`].
    ///
    /// Fails if no segment is open, or if the disk has a fault. Then none of the records is kept.
    pub fn append(&mut self, records: &[u8]) -> Result<(), SpoolError> {
        let Some((key, file)) = &self.open else {
            return Err(disk("write", &self.directory)(io::ErrorKind::NotFound.into()));
        };
        let bytes = self.segments.entry(*key).or_default();
        if let Err(error) = file.write_all_at(records, *bytes) {
            // If this fails, too, the checksums reveal the partial write, and the next one overwrites it.
            file.set_len(*bytes).ok();
            return Err(disk("write", &key.path(&self.directory))(error));
        }
        *bytes += records.len() as u64;
        Ok(())
    }

    pub fn flush(&self) -> Result<(), SpoolError> {
        let Some((key, file)) = &self.open else { return Ok(()) };
        file.sync_data().map_err(disk("flush", &key.path(&self.directory)))
    }

    /// Cuts the open segment behind its first `bytes` bytes, and closes it: a failed flush leaves unknown
    /// what was written since the last one.
    pub fn close_at(&mut self, bytes: u64) {
        let Some((key, file)) = self.open.take() else { return };
        // If this fails, the checksums and the order of the records reveal what should not be there.
        file.set_len(bytes).ok();
        self.segments.insert(key, bytes);
    }

    /// Returns the contents of a segment, at most `limit_bytes`.
    pub fn read(&self, key: Key, limit_bytes: u64) -> Result<Vec<u8>, SpoolError> {
        let path = key.path(&self.directory);
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(limit_bytes).read_to_end(&mut bytes));
        read.map(|_| bytes).map_err(disk("read", &path))
    }

    pub fn reader(&self, key: Key) -> Result<SegmentReader, SpoolError> {
        let path = key.path(&self.directory);
        File::open(&path).map(SegmentReader).map_err(disk("read", &path))
    }

    /// Fails if the file cannot be removed; the next process finds it again.
    pub fn remove(&mut self, key: Key) -> Result<(), SpoolError> {
        let path = self.forget(key);
        fs::remove_file(&path).map_err(disk("remove", &path))
    }

    /// Moves a damaged segment aside for examination, and removes the oldest such ones beyond a few.
    pub fn set_aside(&mut self, key: Key) -> Result<(), SpoolError> {
        let path = self.forget(key);
        self.move_aside(&path).map_err(disk("set aside", &path))
    }

    fn move_aside(&self, path: &Path) -> io::Result<()> {
        fs::rename(path, path.with_extension(DAMAGED))?;
        let mut damaged = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == DAMAGED) {
                damaged.push(path);
            }
        }
        damaged.sort();
        let excess = damaged.len().saturating_sub(DAMAGED_MAX);
        damaged.iter().take(excess).try_for_each(fs::remove_file)
    }

    /// Returns the path of a segment that is no longer part of the spool.
    fn forget(&mut self, key: Key) -> PathBuf {
        self.open.take_if(|(open, _)| *open == key);
        self.segments.remove(&key);
        key.path(&self.directory)
    }

    /// Lets a test simulate a full disk.
    #[doc(hidden)]
    pub fn replace_file(&mut self, file: File) {
        self.open = self.open.take().map(|(key, _)| (key, file));
    }
}
