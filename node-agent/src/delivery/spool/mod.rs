//! The spool: segments of frames on the disk, for frames without room in memory, and for the next process of
//! the agent.
//!
//! A batch that [`Spool::append`] has taken survives the agent and the machine: every write is flushed to the
//! disk (`fdatasync`, and the directory's `fsync` for a new file) before the call returns. Only the sender's
//! thread uses the spool; the sampler never waits for a disk.

pub mod segment;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use polymeter_proto::series::SessionId;
use rustix::fs::{FlockOperation, flock};

use self::segment::Segment;

/// The size after which a new segment is begun, in bytes. Segments are read back one at a time, and a file is
/// removed as a whole.
pub const SEGMENT_BYTES: usize = 4 * 1024 * 1024;

/// The most bytes of a segment that are read: a segment just below its limit plus one batch. A larger file is
/// not of this program.
const READ_BYTES: u64 = 4 * SEGMENT_BYTES as u64;

/// The most segments of earlier processes. A directory with more is no spool of an agent.
const SEGMENTS: usize = 64 * 1024;

/// An error of the spool.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// Another agent uses it.
    #[error("another agent uses the spool {}; give each agent its own directory", .0.display())]
    InUse(PathBuf),
    /// It has no room left within its limit.
    #[error("the spool is full; raise `spool_bytes`, or check why the collector is not reachable")]
    Full,
    /// The disk has a fault or is full.
    #[error("cannot {doing} {}: {source}", path.display())]
    Disk {
        /// The operation that failed.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl SpoolError {
    /// Returns true if the same operation may succeed later: the disk has a fault, but the file is not
    /// missing.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(self, Self::Disk { source, .. } if source.kind() != io::ErrorKind::NotFound)
    }
}

/// A batch to be kept.
#[derive(Debug)]
pub struct SpoolBatch {
    /// The session.
    pub session: SessionId,
    /// The number of the first frame or note.
    pub first: u64,
    /// The number of entries of the outbox.
    pub entries: usize,
    /// The segment to be continued, as [`Spool::open_segment`] returned it; none for a new one.
    pub continues: Option<u64>,
    /// The encoded records.
    pub bytes: Vec<u8>,
}

/// The key of a segment: its session and its first number.
type Key = (SessionId, u64);

/// A directory with segments.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    /// The lock, held as long as the spool is used.
    _lock: File,
    limit_bytes: u64,
    /// The size of each segment, in bytes.
    segments: BTreeMap<Key, u64>,
    /// The segment that is being written.
    open: Option<(Key, File)>,
}

impl Spool {
    /// Opens the spool in `directory`, for at most `limit_bytes`. Creates the directory if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be used, or if another agent uses it.
    pub fn open(directory: &Path, limit_bytes: u64) -> Result<Self, SpoolError> {
        let disk = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| SpoolError::Disk { doing, path, source }
        };
        fs::create_dir_all(directory).map_err(disk("make the spool", directory))?;
        let path = directory.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let lock = lock.map_err(disk("open", &path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_held| SpoolError::InUse(directory.to_owned()))?;
        let mut segments = BTreeMap::new();
        let entries = fs::read_dir(directory).map_err(disk("read the spool", directory))?;
        for entry in entries.flatten().take(SEGMENTS) {
            if let Some(key) = key_of(&entry.file_name().to_string_lossy())
                && let Ok(metadata) = entry.metadata()
            {
                segments.insert(key, metadata.len());
            }
        }
        Ok(Self { directory: directory.to_owned(), _lock: lock, limit_bytes, segments, open: None })
    }

    /// Returns the bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.segments.values().sum()
    }

    /// Returns the sessions that have segments, with the first number of each segment.
    pub fn sessions(&self) -> Vec<(SessionId, Vec<u64>)> {
        let mut sessions: Vec<(SessionId, Vec<u64>)> = Vec::new();
        for (session, first) in self.segments.keys() {
            match sessions.last_mut() {
                Some((last, segments)) if last == session => segments.push(*first),
                _ => sessions.push((*session, vec![*first])),
            }
        }
        sessions
    }

    /// Returns the segment that a batch may continue, if it is below `segment_bytes`.
    pub fn open_segment(&self, segment_bytes: usize) -> Option<u64> {
        let (key, _) = self.open.as_ref()?;
        let bytes = self.segments.get(key).copied().unwrap_or_default();
        (bytes < segment_bytes as u64).then_some(key.1)
    }

    /// Writes a batch and flushes it to the disk. Returns its segment.
    ///
    /// # Errors
    /// Returns an error if there is no room, or if the disk has a fault. Then nothing of the batch is kept.
    pub fn append(&mut self, batch: &SpoolBatch) -> Result<u64, SpoolError> {
        if self.bytes() + batch.bytes.len() as u64 > self.limit_bytes {
            return Err(SpoolError::Full);
        }
        let continued = batch.continues.map(|first| (batch.session, first));
        let (key, file) = match self.open.take() {
            Some((key, file)) if Some(key) == continued => (key, file),
            _ => self.create((batch.session, batch.first))?,
        };
        let is_new = Some(key) != continued;
        let before = self.segments.get(&key).copied().unwrap_or_default();
        let written = file.write_all_at(&batch.bytes, before).and_then(|()| file.sync_data());
        if let Err(source) = written {
            // Remove the partial write. If this fails too, the checksums and the numbers reveal it.
            file.set_len(before).ok();
            // Nothing else would ever remove an empty segment.
            if is_new && fs::remove_file(self.path(key)).is_ok() {
                self.segments.remove(&key);
            }
            return Err(SpoolError::Disk { doing: "write", path: self.path(key), source });
        }
        self.segments.insert(key, before + batch.bytes.len() as u64);
        self.open = Some((key, file));
        Ok(key.1)
    }

    fn create(&mut self, key: Key) -> Result<(Key, File), SpoolError> {
        let path = self.path(key);
        let head = segment::head(key.0, key.1);
        // An existing segment of this name has the same beginning and could not be acknowledged: it is
        // overwritten.
        let create = || {
            let mut file =
                OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&path)?;
            let whole = file.write_all(&head).and_then(|()| File::open(&self.directory)?.sync_all());
            if whole.is_err() {
                fs::remove_file(&path).ok();
            }
            whole.map(|()| file)
        };
        let file =
            create().map_err(|source| SpoolError::Disk { doing: "make", path: path.clone(), source })?;
        self.segments.insert(key, head.len() as u64);
        Ok((key, file))
    }

    /// Reads a segment back, up to the first incomplete record.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read at all.
    pub fn read(&self, session: SessionId, first: u64) -> Result<Segment, SpoolError> {
        let path = self.path((session, first));
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(READ_BYTES).read_to_end(&mut bytes));
        match read {
            Ok(_) => Ok(segment::read(&bytes)),
            Err(source) => Err(SpoolError::Disk { doing: "read", path, source }),
        }
    }

    /// Removes a segment of which everything is acknowledged.
    ///
    /// # Errors
    /// Returns an error if its file cannot be removed. Then the next process sends it again, which does no
    /// harm.
    pub fn remove(&mut self, session: SessionId, first: u64) -> Result<(), SpoolError> {
        let key = (session, first);
        if self.open.as_ref().is_some_and(|(open, _)| *open == key) {
            self.open = None;
        }
        self.segments.remove(&key);
        let path = self.path(key);
        fs::remove_file(&path).map_err(|source| SpoolError::Disk { doing: "remove", path, source })
    }

    fn path(&self, (session, first): Key) -> PathBuf {
        self.directory.join(format!("{session}-{first:016x}.spool"))
    }
}

/// Parses the name of a segment's file.
fn key_of(name: &str) -> Option<Key> {
    let (session, first) = name.strip_suffix(".spool")?.split_once('-')?;
    let number = |text: &str| (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten();
    Some((SessionId(number(session)?), number(first)?))
}
