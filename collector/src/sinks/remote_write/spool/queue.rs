//! The state of a spool: requests are appended to the newest file, or wait in memory while the disk refuses
//! them, and are taken from the oldest one on.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use super::accepted::{AcceptedRequest, AcceptedRequests};
use super::bounds::{SpoolBounds, Stats, Tally};
use super::files::{self, path_of};
use super::position::{Position, PositionFile};
use super::record::{self, HEAD_BYTES, Head, Kind};

#[derive(Debug, Clone, Copy)]
pub(super) struct SpoolFile {
    pub(super) number: u64,
    /// The length of its records, in bytes.
    pub(super) bytes: u64,
    /// The samples of its requests that were not sent.
    pub(super) samples: u64,
    pub(super) is_damaged: bool,
}

/// A request, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// The body: remote_write 1.0, compressed.
    pub(crate) payload: Vec<u8>,
    /// The number of samples.
    pub(crate) samples: u32,
    /// The time of the newest sample, in milliseconds since the epoch.
    pub(crate) newest_ms: i64,
    /// The positions of its record and after it; none for a request from memory.
    place: Option<(Position, Position)>,
}

/// The state.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) directory: PathBuf,
    pub(super) bounds: SpoolBounds,
    /// The files, the oldest first; never empty.
    pub(super) files: VecDeque<SpoolFile>,
    /// The newest file.
    pub(super) active: File,
    /// The file that is read, and its number.
    reading: Option<(u64, File)>,
    /// The position of the next request.
    position: Position,
    position_file: PositionFile,
    /// The position from which a restarted process sends, if accepted requests are kept.
    kept_file: Option<PositionFile>,
    accepted: AcceptedRequests,
    memory: VecDeque<Request>,
    memory_bytes: usize,
    /// The times of the newest samples that were appended and taken off, in milliseconds since the epoch.
    appended_ms: i64,
    sent_ms: i64,
    is_dirty: bool,
    pub(super) tally: Tally,
    /// The encoded record, kept for its allocation.
    record: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct PositionFiles {
    pub(super) position: PositionFile,
    pub(super) kept: Option<PositionFile>,
}

impl Queue {
    /// Returns the state with the files of an earlier process; `active` is the newest one.
    pub(super) fn new(
        (directory, bounds): (PathBuf, SpoolBounds),
        (files, active): (VecDeque<SpoolFile>, File),
        (position, position_files): (Position, PositionFiles),
    ) -> Self {
        Self {
            directory,
            bounds,
            files,
            active,
            reading: None,
            position,
            position_file: position_files.position,
            kept_file: position_files.kept,
            accepted: AcceptedRequests::new(bounds.resend_window),
            memory: VecDeque::new(),
            memory_bytes: 0,
            appended_ms: 0,
            sent_ms: 0,
            is_dirty: false,
            tally: Tally::default(),
            record: Vec::new(),
        }
    }

    /// Appends a request. If a new file begins after it, `times` returns the last time of each series in the
    /// spool.
    pub(super) fn append(
        &mut self,
        payload: Vec<u8>,
        samples: u32,
        newest_ms: i64,
        times: impl FnOnce() -> Vec<u8>,
    ) {
        self.appended_ms = self.appended_ms.max(newest_ms);
        self.memory_bytes += payload.len();
        self.memory.push_back(Request { payload, samples, newest_ms, place: None });
        self.write_out();
        let is_full =
            self.files.back().is_some_and(|file| file.bytes >= self.bounds.file_bytes || file.is_damaged);
        // Times of requests that the disk refused must not be in a file.
        if is_full
            && self.memory.is_empty()
            && let Err(error) = self.begin_file(&times())
        {
            self.tally.error = Some(error.to_string());
        }
        self.enforce_bounds();
    }

    /// Moves requests from memory to the newest file, as far as the disk takes them.
    fn write_out(&mut self) {
        while let Some(request) = self.memory.pop_front() {
            let record = &mut self.record;
            record::encode(record, Kind::Request, &request.payload, request.samples, request.newest_ms);
            let written = match self.files.back_mut() {
                // The next record overwrites the bytes behind the last one, if writing fails.
                Some(file) => self.active.write_all_at(record, file.bytes).map(|()| {
                    file.bytes += record.len() as u64;
                    file.samples += u64::from(request.samples);
                }),
                None => Ok(()),
            };
            match written {
                Ok(()) => {
                    self.memory_bytes = self.memory_bytes.saturating_sub(request.payload.len());
                    self.is_dirty = true;
                }
                Err(error) => {
                    self.tally.error = Some(error.to_string());
                    self.memory.push_front(request);
                    break;
                }
            }
        }
        while self.memory_bytes > self.bounds.memory_bytes {
            let Some(request) = self.memory.pop_front() else { break };
            self.memory_bytes = self.memory_bytes.saturating_sub(request.payload.len());
            self.tally.dropped_unwritable += u64::from(request.samples);
        }
    }

    fn begin_file(&mut self, times: &[u8]) -> io::Result<()> {
        let number = self.files.back().map_or(1, |file| file.number + 1);
        self.active.sync_data()?;
        let (file, bytes) = files::create_with_times(&self.directory, number, times)?;
        self.active = file;
        self.files.push_back(SpoolFile { number, bytes, samples: 0, is_damaged: false });
        Ok(())
    }

    /// Removes the oldest files while the spool is too large.
    fn enforce_bounds(&mut self) {
        while self.files.len() > 1
            && self.files.iter().map(|file| file.bytes).sum::<u64>() > self.bounds.bytes
        {
            let Some(oldest) = self.files.front().copied() else { break };
            self.tally.dropped_full += oldest.samples;
            self.accepted.remove_file(oldest.number);
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        let Some(oldest) = self.files.pop_front() else { return };
        let removed = if oldest.is_damaged {
            files::move_aside(&self.directory, oldest.number)
        } else {
            fs::remove_file(path_of(&self.directory, oldest.number))
        };
        if let Err(error) = removed {
            self.tally.error = Some(error.to_string());
        }
        if self.reading.as_ref().is_some_and(|(number, _)| *number == oldest.number) {
            self.reading = None;
        }
    }

    /// Returns the position of the oldest request that may be sent.
    fn kept(&self) -> Position {
        self.accepted.first().unwrap_or(self.position).min(self.position)
    }

    /// Removes the files before the oldest request that may be sent, except for the newest one.
    fn remove_sent(&mut self) {
        let kept = self.kept().file;
        while self.files.len() > 1 && self.files.front().is_some_and(|oldest| oldest.number < kept) {
            self.remove_oldest();
        }
    }

    /// Returns the next request; none if all were sent.
    pub(super) fn next(&mut self) -> Option<Request> {
        loop {
            let oldest = self.files.front()?.number;
            if self.position.file < oldest {
                self.position = Position { file: oldest, offset: 0 };
            }
            let number = self.position.file;
            let current = self.files.iter().find(|file| file.number == number);
            if current.is_some_and(|file| self.position.offset < file.bytes) {
                match self.read_next() {
                    Ok(Some(request)) => return Some(request),
                    Ok(None) => {}
                    Err(error) => self.skip_damaged(&error),
                }
                continue;
            }
            // All of it was sent.
            let Some(next) = self.files.iter().find(|file| file.number > number) else { break };
            self.position = Position { file: next.number, offset: 0 };
            self.remove_sent();
        }
        // The memory has what the disk refused, which is newer than all files.
        let request = self.memory.pop_front()?;
        self.memory_bytes = self.memory_bytes.saturating_sub(request.payload.len());
        Some(request)
    }

    /// Reads the record at the position; none if it is no request.
    fn read_next(&mut self) -> io::Result<Option<Request>> {
        let Position { file: number, offset } = self.position;
        if self.reading.as_ref().is_none_or(|(open, _)| *open != number) {
            self.reading = Some((number, File::open(path_of(&self.directory, number))?));
        }
        let damaged =
            || io::Error::new(io::ErrorKind::InvalidData, format!("spool file {number} is damaged"));
        let Some((_, file)) = &self.reading else { return Ok(None) };
        let mut bytes = [0; HEAD_BYTES];
        file.read_exact_at(&mut bytes, offset)?;
        let head = Head::decode(&bytes).ok_or_else(damaged)?;
        let mut payload = vec![0; head.len];
        file.read_exact_at(&mut payload, offset + HEAD_BYTES as u64)?;
        if !head.is_of(&bytes, &payload) {
            return Err(damaged());
        }
        let end = Position { file: number, offset: offset + head.record_bytes() };
        if head.kind == Kind::Series {
            self.position = end;
            return Ok(None);
        }
        let place = Some((self.position, end));
        Ok(Some(Request { payload, samples: head.samples, newest_ms: head.newest_ms, place }))
    }

    /// Skips the rest of the file that is read.
    fn skip_damaged(&mut self, error: &io::Error) {
        let number = self.position.file;
        self.tally.error = Some(error.to_string());
        if let Some(file) = self.files.iter_mut().find(|file| file.number == number) {
            self.tally.damaged_files += u64::from(!std::mem::replace(&mut file.is_damaged, true));
            self.position.offset = file.bytes;
            self.tally.dropped_damaged += std::mem::take(&mut file.samples);
        }
    }

    /// Records that `request`, the result of [`Self::next`], was accepted or refused. `now` is the time since
    /// the start of the clock.
    pub(super) fn finish(&mut self, request: &Request, now: Duration) {
        self.sent_ms = self.sent_ms.max(request.newest_ms);
        let Some((start, end)) = request.place else { return };
        // The file may have been dropped in the meantime.
        if let Some(file) = self.files.iter_mut().find(|file| file.number == end.file) {
            file.samples = file.samples.saturating_sub(request.samples.into());
            self.accepted.push(AcceptedRequest { start, samples: request.samples, at: now });
        }
        self.position = self.position.max(end);
        let kept = self.kept();
        let mut written = self.position_file.write(self.position);
        if let Some(file) = &mut self.kept_file {
            written = written.and(file.write(kept));
        }
        if let Err(error) = written {
            self.tally.error = Some(error.to_string());
        }
        self.remove_sent();
    }

    /// Returns to the oldest accepted request that is kept, so that all from it on are sent again. Returns
    /// the number of their samples.
    pub(super) fn rewind(&mut self) -> u64 {
        let requests = self.accepted.take();
        let Some(first) = requests.front() else { return 0 };
        self.position = first.start;
        for request in &requests {
            if let Some(file) = self.files.iter_mut().find(|file| file.number == request.start.file) {
                file.samples += u64::from(request.samples);
            }
        }
        requests.iter().map(|request| u64::from(request.samples)).sum()
    }

    /// Writes all requests through to the disk, so that they outlive a power failure.
    pub(super) fn sync(&mut self) {
        self.write_out();
        if std::mem::take(&mut self.is_dirty)
            && let Err(error) = self.active.sync_data().and_then(|()| self.position_file.sync())
        {
            self.tally.error = Some(error.to_string());
        }
    }

    /// Returns the current extent.
    pub(super) fn stats(&self) -> Stats {
        let in_memory: u64 = self.memory.iter().map(|request| u64::from(request.samples)).sum();
        let in_files: u64 = self.files.iter().map(|file| file.samples).sum();
        let samples = in_files + in_memory;
        Stats {
            bytes: self.files.iter().map(|file| file.bytes).sum(),
            samples,
            memory_bytes: self.memory_bytes,
            lag_ms: if samples == 0 || self.sent_ms == 0 {
                0
            } else {
                (self.appended_ms - self.sent_ms).max(0)
            },
        }
    }
}
