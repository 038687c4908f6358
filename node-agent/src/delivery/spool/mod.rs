//! The spool: segments of frames on the disk, for what memory has no room for, and for the next life of the agent.
//!
//! It promises that what [`Spool::append`] has taken outlives the agent and the machine: every write is flushed to the
//! disk (`fdatasync`, and the directory's `fsync` for a new file) before it returns. Only the sender's thread calls it;
//! the sampler never waits for a disk.

pub mod segment;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use polymeter_proto::series::SessionId;
use rustix::fs::{FlockOperation, flock};

use self::segment::Segment;

/// The most bytes after which a new segment is begun. One is read back at a time, and its file goes as a whole.
pub const SEGMENT_BYTES: usize = 4 * 1024 * 1024;

/// Bytes that a segment may have when it is read: one that was just not full, and what went into it then. What is beyond
/// is not of this program.
const READ_BYTES: u64 = 4 * SEGMENT_BYTES as u64;

/// Segments of an earlier life that are looked at. More than this are no spool of an agent.
const SEGMENTS: usize = 64 * 1024;

/// Why the spool cannot be used.
#[derive(Debug)]
pub enum SpoolError {
    /// Another agent uses it.
    InUse(PathBuf),
    /// It has no room left within its bound.
    Full,
    /// The disk has a fault, or no room.
    Disk {
        /// What could not be done.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl fmt::Display for SpoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(path) => {
                write!(
                    f,
                    "another agent uses the spool {}; give each agent its own directory",
                    path.display()
                )
            }
            Self::Full => f.write_str(
                "the spool is full; raise `spool_bytes`, or check why the collector is not reachable",
            ),
            Self::Disk { doing, path, source } => write!(f, "cannot {doing} {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for SpoolError {}

/// What is to be kept.
#[derive(Debug)]
pub struct Batch {
    /// The session.
    pub session: SessionId,
    /// The number of the first frame or note.
    pub first: u64,
    /// How many entries of the outbox it is.
    pub entries: usize,
    /// The segment that it continues, one that [`Spool::open_segment`] named; none for a new one.
    pub continues: Option<u64>,
    /// Records.
    pub bytes: Vec<u8>,
}

/// Which segment: its session and its first number.
type Key = (SessionId, u64);

/// A directory with segments.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    /// Held as long as the spool is used.
    _lock: File,
    limit_bytes: u64,
    /// Bytes of each segment.
    segments: BTreeMap<Key, u64>,
    /// The segment that is written.
    open: Option<(Key, File)>,
}

impl Spool {
    /// Takes the directory into use, for at most `limit_bytes`; makes it where it is not there.
    ///
    /// # Errors
    /// When it cannot be used, or another agent uses it.
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

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.segments.values().sum()
    }

    /// The sessions of which there are segments, with the first numbers of these.
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

    /// The segment that a batch may continue: one below `segment_bytes`.
    pub fn open_segment(&self, segment_bytes: usize) -> Option<u64> {
        let (key, _) = self.open.as_ref()?;
        let bytes = self.segments.get(key).copied().unwrap_or_default();
        (bytes < segment_bytes as u64).then_some(key.1)
    }

    /// Keeps a batch; returns its segment. When it returns, the batch is on the disk.
    ///
    /// # Errors
    /// When there is no room, or the disk has a fault; nothing of the batch is kept then.
    pub fn append(&mut self, batch: &Batch) -> Result<u64, SpoolError> {
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
            // What was written of it must not be taken for more than it is; where not even this works, the checksums
            // and the numbers tell.
            file.set_len(before).ok();
            // Nobody would ever remove a segment in which there is nothing.
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
        // One of this name has the same beginning, and could not be acknowledged: it is written anew.
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

    /// Reads a segment back, as far as it is whole.
    ///
    /// # Errors
    /// When the file cannot be read at all.
    pub fn read(&self, session: SessionId, first: u64) -> Result<Segment, SpoolError> {
        let path = self.path((session, first));
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(READ_BYTES).read_to_end(&mut bytes));
        match read {
            Ok(_) => Ok(segment::read(&bytes)),
            Err(source) => Err(SpoolError::Disk { doing: "read", path, source }),
        }
    }

    /// Forgets a segment of which everything is acknowledged.
    ///
    /// # Errors
    /// When its file cannot be removed: the next life of the agent will send it again, which does no harm.
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

/// The segment that a file's name says.
fn key_of(name: &str) -> Option<Key> {
    let (session, first) = name.strip_suffix(".spool")?.split_once('-')?;
    let number = |text: &str| (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten();
    Some((SessionId(number(session)?), number(first)?))
}
