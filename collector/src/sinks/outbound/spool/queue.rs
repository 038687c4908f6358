//! State of a spool: requests are appended to the newest file, or wait in memory while the disk refuses
//! them, and are taken from the oldest one on.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use polymeter_service::spool::{Key, Spool, SpoolError};

use super::accepted::{AcceptedRequest, AcceptedRequests};
use super::bounds::{SpoolBounds, Stats, Tally};
use super::position::{Position, PositionFile};
use super::record::{self, HEADER_BYTES, Header, Kind};

pub(super) const fn key(number: u64) -> Key {
    Key { stream: 0, number }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct SpoolFile {
    pub(super) number: u64,
    pub(super) bytes: u64,
    /// Samples of requests that were not sent.
    pub(super) samples: u64,
    /// A record or the bytes behind the last one are damaged. Then nothing more is appended.
    pub(super) is_damaged: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// Body: remote_write 1.0, compressed.
    pub(crate) payload: Vec<u8>,
    pub(crate) samples: u32,
    /// Time of the newest sample, since the epoch.
    pub(crate) newest_ms: i64,
    /// Positions of its record and after it; none for a request from memory.
    place: Option<(Position, Position)>,
}

#[derive(Debug)]
pub(super) struct Queue {
    /// Its open segment is the newest file.
    pub(super) spool: Spool,
    bounds: SpoolBounds,
    /// Oldest first; never empty.
    files: VecDeque<SpoolFile>,
    position: Position,
    position_file: PositionFile,
    /// Position from which a restarted process sends, if accepted requests are kept.
    kept_file: Option<PositionFile>,
    accepted: AcceptedRequests,
    memory: VecDeque<Request>,
    memory_bytes: usize,
    /// Times since the epoch of the newest samples that were appended and taken off.
    appended_ms: i64,
    sent_ms: i64,
    pub(super) tally: Tally,
    /// Kept for its allocation.
    record: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct PositionFiles {
    pub(super) position: PositionFile,
    pub(super) kept: Option<PositionFile>,
}

impl Queue {
    /// Continues with the files of an earlier process, of which the newest is open.
    pub(super) fn new(
        (spool, bounds): (Spool, SpoolBounds),
        files: VecDeque<SpoolFile>,
        (position, position_files): (Position, PositionFiles),
    ) -> Self {
        Self {
            spool,
            bounds,
            files,
            position,
            position_file: position_files.position,
            kept_file: position_files.kept,
            accepted: AcceptedRequests::new(bounds.resend_window),
            memory: VecDeque::new(),
            memory_bytes: 0,
            appended_ms: 0,
            sent_ms: 0,
            tally: Tally::default(),
            record: Vec::new(),
        }
    }

    /// Calls `times` if a new file begins after the request: it returns the last time of each series in the
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
            let Request { samples, newest_ms, .. } = request;
            self.record.clear();
            record::put(
                &mut self.record,
                Header { kind: Kind::Request, samples, newest_ms },
                &request.payload,
            );
            if let Err(error) = self.spool.append(&self.record) {
                self.tally.error = Some(error.to_string());
                self.memory.push_front(request);
                break;
            }
            self.memory_bytes = self.memory_bytes.saturating_sub(request.payload.len());
            if let Some(file) = self.files.back_mut() {
                file.bytes += self.record.len() as u64;
                file.samples += u64::from(samples);
            }
        }
        while self.memory_bytes > self.bounds.memory_bytes {
            let Some(request) = self.memory.pop_front() else { break };
            self.memory_bytes = self.memory_bytes.saturating_sub(request.payload.len());
            self.tally.dropped_unwritable += u64::from(request.samples);
        }
    }

    fn begin_file(&mut self, times: &[u8]) -> Result<(), SpoolError> {
        let number = self.files.back().map_or(1, |file| file.number + 1);
        let first = record::of_times(times);
        self.spool.begin(key(number), &first)?;
        self.files.push_back(SpoolFile { number, bytes: first.len() as u64, samples: 0, is_damaged: false });
        Ok(())
    }

    fn enforce_bounds(&mut self) {
        while self.files.len() > 1 && !self.spool.has_room(0) {
            let Some(oldest) = self.files.front().copied() else { break };
            self.tally.dropped_full += oldest.samples;
            self.accepted.remove_file(oldest.number);
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        let Some(oldest) = self.files.pop_front() else { return };
        let key = key(oldest.number);
        let removed = if oldest.is_damaged { self.spool.set_aside(key) } else { self.spool.remove(key) };
        if let Err(error) = removed {
            self.tally.error = Some(error.to_string());
        }
    }

    /// Oldest request that may be sent.
    fn kept(&self) -> Position {
        self.accepted.first().unwrap_or(self.position).min(self.position)
    }

    /// Keeps the newest file in any case.
    fn remove_sent(&mut self) {
        let kept = self.kept().file;
        while self.files.len() > 1 && self.files.front().is_some_and(|oldest| oldest.number < kept) {
            self.remove_oldest();
        }
    }

    /// None if all were sent.
    pub(super) fn next(&mut self) -> Option<Request> {
        loop {
            let oldest = self.files.front()?.number;
            if self.position.file < oldest {
                self.position = Position { file: oldest, offset: 0 };
            }
            let number = self.position.file;
            if let Some(file) = self.files.iter_mut().find(|file| file.number == number) {
                if self.position.offset < file.bytes {
                    match self.read_next() {
                        Ok(Some(request)) => return Some(request),
                        Ok(None) => {}
                        Err(error) => self.skip_to(None, &error),
                    }
                    continue;
                }
                // All of it was sent, except for what is damaged.
                if file.is_damaged {
                    self.tally.dropped_damaged += std::mem::take(&mut file.samples);
                }
            }
            let Some(next) = self.files.iter().find(|file| file.number > number) else { break };
            self.position = Position { file: next.number, offset: 0 };
            self.remove_sent();
        }
        // The memory has what the disk refused, which is newer than all files.
        let request = self.memory.pop_front()?;
        self.memory_bytes = self.memory_bytes.saturating_sub(request.payload.len());
        Some(request)
    }

    /// Reads the record at the position; none if it is no request or damaged, which is skipped. Fails if
    /// nothing behind it can be read.
    fn read_next(&mut self) -> io::Result<Option<Request>> {
        let Position { file: number, offset } = self.position;
        let reader = self.spool.reader(key(number))?;
        let damaged = || io::Error::other(format!("spool file {number} is damaged"));
        let head = reader.head(offset)?.ok_or_else(damaged)?;
        let end = Position { file: number, offset: offset + head.record_bytes() };
        let contents = reader.contents(offset, &head)?;
        let header = contents.as_deref().and_then(record::decode).map(|(header, _)| header);
        match (contents, header) {
            (Some(mut payload), Some(Header { kind: Kind::Request, samples, newest_ms })) => {
                payload.drain(..HEADER_BYTES);
                let place = Some((self.position, end));
                return Ok(Some(Request { payload, samples, newest_ms, place }));
            }
            (Some(_), Some(Header { kind: Kind::Series, .. })) => self.position = end,
            _ => self.skip_to(Some(end.offset), &damaged()),
        }
        Ok(None)
    }

    /// Skips damage in the file that is read: up to an offset, or the rest of the file.
    fn skip_to(&mut self, offset: Option<u64>, error: &io::Error) {
        let number = self.position.file;
        self.tally.error = Some(error.to_string());
        if let Some(file) = self.files.iter_mut().find(|file| file.number == number) {
            self.tally.damaged_files += u64::from(!std::mem::replace(&mut file.is_damaged, true));
            self.position.offset = offset.unwrap_or(file.bytes);
        }
    }

    /// Takes the result of [`Self::next`] after it was accepted or refused. `now` is the time since the start
    /// of the clock.
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

    /// Returns to the oldest accepted request that is kept: all from it on are sent again. Returns the number
    /// of their samples.
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
        let flushed = self.spool.flush().map_err(io::Error::from);
        if let Err(error) = flushed.and_then(|()| self.position_file.sync()) {
            self.tally.error = Some(error.to_string());
        }
    }

    pub(super) fn stats(&self) -> Stats {
        let in_memory: u64 = self.memory.iter().map(|request| u64::from(request.samples)).sum();
        let in_files: u64 = self.files.iter().map(|file| file.samples).sum();
        let samples = in_files + in_memory;
        Stats {
            bytes: self.spool.bytes(),
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
