//! The opening of a spool: what an earlier process left is checked, and its end found.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io;
use std::path::Path;

use super::bounds::{SpoolBounds, Tally};
use super::files::{self, create, extent, path_of};
use super::position::{Position, PositionFile};
use super::queue::{PositionFiles, Queue, SpoolFile};
use super::record::{self, Kind};
use crate::sinks::remote_write::request::{self, WriteRequest};

/// Opens the spool in `directory`, which is created if it is missing; then `initial` has the last times of
/// its series. Returns it with the last time of each series, in milliseconds since the epoch, by the hash of
/// its labels.
///
/// # Errors
/// Returns an error if the directory cannot be read and written.
pub(super) fn open(
    directory: &Path,
    bounds: SpoolBounds,
    initial: &[u8],
) -> io::Result<(Queue, HashMap<u64, i64>)> {
    fs::create_dir_all(directory)?;
    let (mut position, position_files) = open_positions(directory, bounds)?;
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
            let (file, bytes) = files::create_with_times(directory, number, initial)?;
            times.extend(record::decode_times(initial));
            found.push_back(SpoolFile { number, bytes, samples: 0, is_damaged: false });
            file
        }
    };
    let mut queue = Queue::new((directory.to_owned(), bounds), (found, active), (position, position_files));
    queue.tally = tally;
    Ok((queue, times))
}

/// Opens the files of positions, and returns the one from which requests are sent. If accepted requests are
/// kept, it is that of the oldest one, since the receiver may have been killed while this process was not
/// running.
fn open_positions(directory: &Path, bounds: SpoolBounds) -> io::Result<(Position, PositionFiles)> {
    let (file, position) = PositionFile::open(&directory.join("position"))?;
    let position = position.unwrap_or_default();
    if bounds.resend_window.is_zero() {
        return Ok((position, PositionFiles { position: file, kept: None }));
    }
    let (kept_file, kept) = PositionFile::open(&directory.join("kept"))?;
    let position = kept.map_or(position, |kept| kept.min(position));
    Ok((position, PositionFiles { position: file, kept: Some(kept_file) }))
}

/// Checks a file of an earlier process, and cuts it behind its last complete record. A damaged file is moved
/// aside, and replaced by its valid beginning. Of the newest file all contents are read, and the last times
/// of series added to `times`.
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
    for (series, last_ms) in request::read(payload).into_iter().flat_map(WriteRequest::last_times) {
        let known = times.entry(series).or_insert(last_ms);
        *known = last_ms.max(*known);
    }
}
