//! The spool of a shard: a queue of requests in files, which outlives the process.
//!
//! Requests are appended to the newest file, and sent from the oldest one on. The position of the next one is stored
//! after each request that was sent. A file is removed when all of its requests were sent, except for the newest one:
//! its first record and its requests have the last time of each series, so that a restarted collector sends no sample
//! twice.
//!
//! While the disk refuses a request, it waits in bounded memory.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::files::{self, create, extent, path_of};
use super::record::{self, HEAD_BYTES, Head, Kind, POSITION_BYTES, Position};
use crate::sinks::remote_write::request;

/// The bounds of a spool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpoolBounds {
    /// The size of all files; the oldest file beyond it is dropped.
    pub(crate) bytes: u64,
    /// The size of a file, after which another one is begun.
    pub(crate) file_bytes: u64,
    /// The size of the requests in memory, while the disk refuses them.
    pub(crate) memory_bytes: usize,
}

/// A spool.
#[derive(Debug)]
pub(crate) struct Log {
    directory: PathBuf,
    bounds: SpoolBounds,
    state: Mutex<State>,
    appended: Notify,
}

/// A file of the spool.
#[derive(Debug, Clone, Copy)]
struct SpoolFile {
    number: u64,
    /// The length of its records, in bytes.
    bytes: u64,
    /// The samples of its requests that were not sent.
    samples: u64,
    is_damaged: bool,
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
    /// The position after it; none for a request from memory.
    end: Option<Position>,
}

#[derive(Debug)]
struct State {
    /// The files, the oldest first; never empty.
    files: VecDeque<SpoolFile>,
    /// The newest file.
    active: File,
    /// The file that is read, and its number.
    reading: Option<(u64, File)>,
    position: Position,
    position_file: File,
    /// The place of the next write in `position_file`: writes alternate, so that a torn one leaves the other.
    is_second_slot: bool,
    memory: VecDeque<Request>,
    memory_bytes: usize,
    /// The times of the newest samples that were appended and taken off, in milliseconds since the epoch.
    appended_ms: i64,
    sent_ms: i64,
    is_dirty: bool,
    tally: Tally,
    /// The encoded record, kept for its allocation.
    record: Vec<u8>,
}

/// Losses and faults since the last call of [`Log::take_tally`].
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Samples in files that were dropped, since the spool was full.
    pub(crate) dropped_full: u64,
    /// Samples that neither the disk nor memory had room for.
    pub(crate) dropped_unwritable: u64,
    /// Samples in damaged files.
    pub(crate) dropped_damaged: u64,
    /// Damaged files.
    pub(crate) damaged_files: u64,
    /// The last error of the disk.
    pub(crate) error: Option<String>,
}

/// The extent of a spool.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stats {
    /// The size of its files.
    pub(crate) bytes: u64,
    /// The samples that were not sent, in files and in memory.
    pub(crate) samples: u64,
    /// The size of the requests in memory.
    pub(crate) memory_bytes: usize,
    /// The time by which the newest sample that was sent is older than the newest one in the spool, in milliseconds.
    pub(crate) lag_ms: i64,
}

impl Log {
    /// Opens the spool in `directory`, which is created if it is missing; then `initial` has the last times of its
    /// series. Returns it with the last time of each series, in milliseconds since the epoch, by the hash of its
    /// labels.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read and written.
    pub(crate) fn open(
        directory: &Path,
        bounds: SpoolBounds,
        initial: &[u8],
    ) -> io::Result<(Self, HashMap<u64, i64>)> {
        fs::create_dir_all(directory)?;
        let position_file = files::open(&directory.join("position"))?;
        let mut position = read_position(&position_file)?;
        let mut tally = Tally::default();
        let mut times = HashMap::new();
        let mut found = VecDeque::new();
        let numbers = files::numbers(directory)?;
        let newest = numbers.last().copied();
        // The files were removed by hand.
        if newest.is_some_and(|newest| newest < position.file) {
            position = Position::default();
        }
        for number in numbers {
            let is_newest = Some(number) == newest;
            // It was sent; the collector was killed before it removed the file.
            if number < position.file && !is_newest {
                fs::remove_file(path_of(directory, number))?;
                continue;
            }
            let from = if number == position.file { position.offset } else { 0 };
            let opened = open_file(directory, number, from, is_newest.then_some(&mut times), &mut tally)?;
            if number == position.file && !opened.has_from {
                position.offset = 0;
            }
            let samples = if number < position.file { 0 } else { opened.samples };
            found.push_back(SpoolFile { number, bytes: opened.valid_bytes, samples, is_damaged: false });
        }
        let active = match found.back() {
            Some(newest) => files::open(&path_of(directory, newest.number))?,
            None => {
                let number = position.file + 1;
                let (file, bytes) = create_file(directory, number, initial)?;
                times.extend(record::decode_times(initial));
                found.push_back(SpoolFile { number, bytes, samples: 0, is_damaged: false });
                file
            }
        };
        let state = State {
            files: found,
            active,
            reading: None,
            position,
            position_file,
            is_second_slot: false,
            memory: VecDeque::new(),
            memory_bytes: 0,
            appended_ms: 0,
            sent_ms: 0,
            is_dirty: false,
            tally,
            record: Vec::new(),
        };
        let log = Self {
            directory: directory.to_owned(),
            bounds,
            state: Mutex::new(state),
            appended: Notify::new(),
        };
        Ok((log, times))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a request. If a new file begins after it, `times` returns the last time of each series in the spool.
    pub(crate) fn append(
        &self,
        payload: Vec<u8>,
        samples: u32,
        newest_ms: i64,
        times: impl FnOnce() -> Vec<u8>,
    ) {
        let mut state = self.state();
        state.appended_ms = state.appended_ms.max(newest_ms);
        let request = Request { payload, samples, newest_ms, end: None };
        state.memory_bytes += request.payload.len();
        state.memory.push_back(request);
        self.write_out(&mut state);
        let is_full =
            state.files.back().is_some_and(|file| file.bytes >= self.bounds.file_bytes || file.is_damaged);
        // Times of requests that the disk refused must not be in a file.
        if is_full
            && state.memory.is_empty()
            && let Err(error) = self.begin_file(&mut state, &times())
        {
            state.tally.error = Some(error.to_string());
        }
        self.enforce_bounds(&mut state);
        drop(state);
        self.appended.notify_one();
    }

    /// Moves requests from memory to the newest file, as far as the disk takes them.
    fn write_out(&self, state: &mut State) {
        while let Some(request) = state.memory.pop_front() {
            let mut record = std::mem::take(&mut state.record);
            record::encode(&mut record, Kind::Request, &request.payload, request.samples, request.newest_ms);
            let written = match state.files.back_mut() {
                // After an error the bytes behind the last record are overwritten by the next one.
                Some(file) => state.active.write_all_at(&record, file.bytes).map(|()| {
                    file.bytes += record.len() as u64;
                    file.samples += u64::from(request.samples);
                }),
                None => Ok(()),
            };
            state.record = record;
            match written {
                Ok(()) => {
                    state.memory_bytes = state.memory_bytes.saturating_sub(request.payload.len());
                    state.is_dirty = true;
                }
                Err(error) => {
                    state.tally.error = Some(error.to_string());
                    state.memory.push_front(request);
                    break;
                }
            }
        }
        while state.memory_bytes > self.bounds.memory_bytes {
            let Some(request) = state.memory.pop_front() else { break };
            state.memory_bytes = state.memory_bytes.saturating_sub(request.payload.len());
            state.tally.dropped_unwritable += u64::from(request.samples);
        }
    }

    fn begin_file(&self, state: &mut State, times: &[u8]) -> io::Result<()> {
        let number = state.files.back().map_or(1, |file| file.number + 1);
        state.active.sync_data()?;
        let (file, bytes) = create_file(&self.directory, number, times)?;
        state.active = file;
        state.files.push_back(SpoolFile { number, bytes, samples: 0, is_damaged: false });
        Ok(())
    }

    /// Removes the oldest files while the spool is too large.
    fn enforce_bounds(&self, state: &mut State) {
        while state.files.len() > 1
            && state.files.iter().map(|file| file.bytes).sum::<u64>() > self.bounds.bytes
        {
            let Some(oldest) = state.files.front().copied() else { break };
            state.tally.dropped_full += oldest.samples;
            self.remove_oldest(state);
        }
    }

    fn remove_oldest(&self, state: &mut State) {
        let Some(oldest) = state.files.pop_front() else { return };
        let removed = if oldest.is_damaged {
            files::move_aside(&self.directory, oldest.number)
        } else {
            fs::remove_file(path_of(&self.directory, oldest.number))
        };
        if let Err(error) = removed {
            state.tally.error = Some(error.to_string());
        }
        if state.reading.as_ref().is_some_and(|(number, _)| *number == oldest.number) {
            state.reading = None;
        }
    }

    /// Returns the next request; none if all were sent.
    pub(crate) fn next(&self) -> Option<Request> {
        let mut state = self.state();
        loop {
            let oldest = state.files.front().copied()?;
            if state.position.file < oldest.number {
                state.position = Position { file: oldest.number, offset: 0 };
            }
            let number = state.position.file;
            let current = state.files.iter().find(|file| file.number == number).copied();
            let is_active = state.files.back().is_some_and(|file| file.number == number);
            match current {
                Some(file) if state.position.offset < file.bytes => {
                    match read_next(&mut state, &self.directory) {
                        Ok(Some(request)) => return Some(request),
                        Ok(None) => {}
                        Err(error) => self.skip_damaged(&mut state, &error),
                    }
                }
                Some(_) if is_active => break,
                _ => {
                    // All of it was sent.
                    self.remove_oldest(&mut state);
                    let next = state.files.front()?.number;
                    state.position = Position { file: next, offset: 0 };
                }
            }
        }
        // The memory has what the disk refused, which is newer than all files.
        let request = state.memory.pop_front()?;
        state.memory_bytes = state.memory_bytes.saturating_sub(request.payload.len());
        Some(request)
    }

    /// Skips the rest of the file that is read.
    fn skip_damaged(&self, state: &mut State, error: &io::Error) {
        let position = state.position;
        state.tally.error = Some(error.to_string());
        state.tally.damaged_files += 1;
        if let Some(file) = state.files.iter_mut().find(|file| file.number == position.file) {
            file.is_damaged = true;
            state.position.offset = file.bytes;
            state.tally.dropped_damaged += std::mem::take(&mut file.samples);
        }
    }

    /// Records that `request`, the result of [`Self::next`], was sent or refused.
    pub(crate) fn finish(&self, request: &Request) {
        let mut state = self.state();
        state.sent_ms = state.sent_ms.max(request.newest_ms);
        let Some(end) = request.end else { return };
        // The file may have been dropped in the meantime.
        if let Some(file) = state.files.iter_mut().find(|file| file.number == end.file) {
            file.samples = file.samples.saturating_sub(request.samples.into());
        }
        if state.position < end {
            state.position = end;
        }
        let offset = if state.is_second_slot { POSITION_BYTES as u64 } else { 0 };
        state.is_second_slot = !state.is_second_slot;
        if let Err(error) = state.position_file.write_all_at(&state.position.encode(), offset) {
            state.tally.error = Some(error.to_string());
        }
    }

    /// Waits until a request is appended. May return early.
    pub(crate) async fn wait(&self) {
        self.appended.notified().await;
    }

    /// Writes all requests through to the disk, so that they outlive a power failure.
    pub(crate) fn sync(&self) {
        let mut state = self.state();
        self.write_out(&mut state);
        if std::mem::take(&mut state.is_dirty)
            && let Err(error) = state.active.sync_data().and_then(|()| state.position_file.sync_data())
        {
            state.tally.error = Some(error.to_string());
        }
    }

    /// Returns the losses and faults since the last call.
    pub(crate) fn take_tally(&self) -> Tally {
        std::mem::take(&mut self.state().tally)
    }

    /// Replaces the newest file, to simulate a full disk.
    #[cfg(test)]
    pub(super) fn replace_active(&self, file: File) {
        self.state().active = file;
    }

    /// Returns the current extent.
    pub(crate) fn stats(&self) -> Stats {
        let state = self.state();
        let in_memory: u64 = state.memory.iter().map(|request| u64::from(request.samples)).sum();
        let in_files: u64 = state.files.iter().map(|file| file.samples).sum();
        let samples = in_files + in_memory;
        Stats {
            bytes: state.files.iter().map(|file| file.bytes).sum(),
            samples,
            memory_bytes: state.memory_bytes,
            lag_ms: if samples == 0 || state.sent_ms == 0 {
                0
            } else {
                (state.appended_ms - state.sent_ms).max(0)
            },
        }
    }
}

/// Reads the record at the position; none if it is no request.
fn read_next(state: &mut State, directory: &Path) -> io::Result<Option<Request>> {
    let Position { file: number, offset } = state.position;
    if state.reading.as_ref().is_none_or(|(open, _)| *open != number) {
        state.reading = Some((number, File::open(path_of(directory, number))?));
    }
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("spool file {number} is damaged"));
    let Some((_, file)) = &state.reading else { return Ok(None) };
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
        state.position = end;
        return Ok(None);
    }
    Ok(Some(Request { payload, samples: head.samples, newest_ms: head.newest_ms, end: Some(end) }))
}

/// Reads the position of the next request; the begin if there is none.
fn read_position(file: &File) -> io::Result<Position> {
    let mut bytes = [0; 2 * POSITION_BYTES];
    let len = file.read_at(&mut bytes, 0)?;
    let slots = bytes.get(..len).unwrap_or_default().chunks(POSITION_BYTES);
    // Positions only increase.
    Ok(slots.filter_map(Position::decode).max().unwrap_or_default())
}

fn create_file(directory: &Path, number: u64, times: &[u8]) -> io::Result<(File, u64)> {
    let mut record = Vec::new();
    record::encode(&mut record, Kind::Series, times, 0, 0);
    Ok((create(&path_of(directory, number), &record)?, record.len() as u64))
}

/// Checks a file of an earlier process, and cuts it behind its last complete record. A damaged file is moved aside,
/// and replaced by its valid beginning. Of the newest file all contents are read, and the last times of series added
/// to `times`.
fn open_file(
    directory: &Path,
    number: u64,
    from: u64,
    times: Option<&mut HashMap<u64, i64>>,
    tally: &mut Tally,
) -> io::Result<files::Extent> {
    let path = path_of(directory, number);
    let file = files::open(&path)?;
    let len = file.metadata()?.len();
    let mut found = extent(&file, from)?;
    let Some(times) = times else {
        if found.valid_bytes < len {
            replace_damaged(directory, number, &fs::read(&path)?, found.valid_bytes, tally)?;
        }
        return Ok(found);
    };
    let contents = fs::read(&path)?;
    let read = record::read(&contents);
    for (_, head, payload) in &read.records {
        match head.kind {
            Kind::Series => times.extend(record::decode_times(payload)),
            Kind::Request => add_times(times, payload),
        }
    }
    if read.is_damaged {
        replace_damaged(directory, number, &contents, read.valid_bytes, tally)?;
        found = extent(&files::open(&path)?, from)?;
    } else if read.valid_bytes < len {
        // The process ended during a write, or the disk was full.
        file.set_len(read.valid_bytes)?;
    }
    Ok(found)
}

fn replace_damaged(
    directory: &Path,
    number: u64,
    contents: &[u8],
    valid_bytes: u64,
    tally: &mut Tally,
) -> io::Result<()> {
    tally.damaged_files += 1;
    tally.error = Some(format!("spool file {number} is damaged behind byte {valid_bytes}"));
    files::move_aside(directory, number)?;
    let valid = usize::try_from(valid_bytes).ok().and_then(|valid| contents.get(..valid));
    create(&path_of(directory, number), valid.unwrap_or_default()).map(drop)
}

/// Adds the last times of the series of a request.
fn add_times(times: &mut HashMap<u64, i64>, payload: &[u8]) {
    let Some(body) = request::decompress(payload) else { return };
    for series in request::series(&body).filter_map(Result::ok) {
        let newest = series.samples().filter_map(Result::ok).map(|(time_ms, _)| time_ms).max();
        if let Some(newest) = newest {
            let known = times.entry(request::hash(series.labels)).or_insert(newest);
            *known = newest.max(*known);
        }
    }
}
