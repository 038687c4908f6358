//! Agent's spool: frames without room in memory, and for the next process of the agent. A stream is a
//! session, and a segment has the number of its first frame.
//!
//! A batch that [`Spool::append`] has taken survives the agent and the machine: it is flushed before the call
//! returns. Only the sender's thread uses the spool; the sampler never waits for a disk.

pub mod segment;

use std::path::Path;

use polymeter_proto::series::SessionId;
use polymeter_service::spool::{self, Key, SpoolError};

use self::segment::Segment;

/// Size after which a new segment is begun. Segments are read back one at a time, and a file is removed as a
/// whole.
pub const SEGMENT_BYTES: usize = 4 * 1024 * 1024;

/// Most bytes of a segment that are read: a segment just below its limit plus one batch. A larger file is not
/// of this program.
const READ_BYTES: u64 = 4 * SEGMENT_BYTES as u64;

#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error("the spool is full; raise `spool_bytes`, or check why the collector is not reachable")]
    Full,
    #[error(transparent)]
    Spool(#[from] SpoolError),
}

#[derive(Debug)]
pub struct SpoolBatch {
    pub session: SessionId,
    pub first: u64,
    pub entries: usize,
    /// Result of [`Spool::open_segment`]; none for a new segment.
    pub continues: Option<u64>,
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
pub struct Spool(spool::Spool);

impl Spool {
    /// Opens the spool in `directory`, for at most `limit_bytes`. Creates the directory if it does not exist.
    /// Fails if another agent uses it.
    pub fn open(directory: &Path, limit_bytes: u64) -> Result<Self, SpoolError> {
        spool::Spool::open(directory, "agent", limit_bytes).map(Self)
    }

    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Sessions, each with the first number of its segments.
    pub fn sessions(&self) -> Vec<(SessionId, Vec<u64>)> {
        let mut sessions: Vec<(SessionId, Vec<u64>)> = Vec::new();
        for key in self.0.segments().keys() {
            match sessions.last_mut() {
                Some((last, segments)) if last.0 == key.stream => segments.push(key.number),
                _ => sessions.push((SessionId(key.stream), vec![key.number])),
            }
        }
        sessions
    }

    /// Segment that a batch may continue, if it is below `segment_bytes`.
    pub fn open_segment(&self, segment_bytes: usize) -> Option<u64> {
        let (key, bytes) = self.0.open_segment()?;
        (bytes < segment_bytes as u64).then_some(key.number)
    }

    /// Writes a batch and flushes it to the disk. Returns its segment. After an error nothing of the batch is
    /// kept.
    pub fn append(&mut self, batch: &SpoolBatch) -> Result<u64, AppendError> {
        if !self.0.has_room(batch.bytes.len() as u64) {
            return Err(AppendError::Full);
        }
        let continued = batch.continues.map(|first| key_of(batch.session, first));
        if let Some((key, before)) = self.0.open_segment()
            && Some(key) == continued
        {
            if let Err(error) = self.0.append(&batch.bytes).and_then(|()| self.0.flush()) {
                self.0.close_at(before);
                return Err(error.into());
            }
            return Ok(key.number);
        }
        // An existing segment of this name has the same beginning and could not be acknowledged: it is
        // replaced.
        self.0.begin(key_of(batch.session, batch.first), &batch.bytes)?;
        Ok(batch.first)
    }

    /// Reads up to the first bytes that are no record.
    pub fn read(&self, session: SessionId, first: u64) -> Result<Segment, SpoolError> {
        self.0.read(key_of(session, first), READ_BYTES).map(|bytes| segment::read(session, &bytes))
    }

    /// After an error the next process sends the segment again, which does no harm.
    pub fn remove(&mut self, session: SessionId, first: u64) -> Result<(), SpoolError> {
        self.0.remove(key_of(session, first))
    }
}

const fn key_of(session: SessionId, first: u64) -> Key {
    Key { stream: session.0, number: first }
}
