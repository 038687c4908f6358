//! Opens a spool: checks what an earlier process left, and finds its end.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;

use polymeter_service::spool::Spool;

use super::bounds::{SpoolBounds, Tally};
use super::position::{Position, PositionFile};
use super::queue::{PositionFiles, Queue, SpoolFile, key};
use super::record::{self, Header, Kind};
use crate::sinks::outbound::request::{self, WriteRequest};

/// Opens the spool as [`super::Log::open`] does.
pub(super) fn open(
    directory: &Path,
    bounds: SpoolBounds,
    initial: &[u8],
) -> io::Result<(Queue, HashMap<u64, i64>)> {
    let mut spool = Spool::open(directory, "collector", bounds.bytes)?;
    let (mut position, position_files) = open_positions(directory, bounds)?;
    let mut tally = Tally::default();
    let mut times = HashMap::new();
    let mut files = VecDeque::new();
    let numbers: Vec<u64> = spool.segments().keys().map(|key| key.number).collect();
    let newest = numbers.last().copied();
    // The files were removed by hand.
    if newest.is_some_and(|newest| newest < position.file) {
        position = Position::default();
    }
    for number in numbers {
        let is_newest = Some(number) == newest;
        // It was sent; the collector was killed before it removed the file.
        if number < position.file && !is_newest {
            spool.remove(key(number))?;
            continue;
        }
        let from = if number == position.file { &mut position.offset } else { &mut 0 };
        let file = open_file(&spool, number, from, is_newest.then_some(&mut times))?;
        if file.is_damaged {
            tally.damaged_files += 1;
            tally.error = Some(format!("spool file {number} is damaged"));
        }
        files.push_back(file);
    }
    if let Some(newest) = files.back().filter(|newest| !newest.is_damaged) {
        // Behind its last record is what the earlier process could not complete.
        spool.resume(key(newest.number), newest.bytes)?;
    } else {
        let number = newest.unwrap_or(position.file) + 1;
        if newest.is_none() {
            times.extend(record::decode_times(initial));
        }
        let first = record::of_times(&record::encode_times(times.iter().map(|(hash, ms)| (*hash, *ms))));
        spool.begin(key(number), &first)?;
        files.push_back(SpoolFile { number, bytes: first.len() as u64, samples: 0, is_damaged: false });
    }
    let mut queue = Queue::new((spool, bounds), files, (position, position_files));
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

/// Follows the records of a file of an earlier process. Counts the samples from the offset `from` on, which
/// becomes 0 if no record begins or ends there. All contents of the newest file are read, and the last times
/// of series added to `times`; of other files only the headers.
fn open_file(
    spool: &Spool,
    number: u64,
    from: &mut u64,
    mut times: Option<&mut HashMap<u64, i64>>,
) -> io::Result<SpoolFile> {
    let reader = spool.reader(key(number))?;
    let mut file = SpoolFile { number, bytes: 0, samples: 0, is_damaged: false };
    let (mut before, mut has_from) = (0, *from == 0);
    while let Some(head) = reader.head(file.bytes)? {
        if let Some(times) = &mut times {
            match reader.contents(file.bytes, &head)? {
                Some(contents) => add_times(times, &contents),
                None => file.is_damaged = true,
            }
        }
        let header = reader.prefix(file.bytes, &head)?.and_then(|bytes| Header::decode(&bytes));
        let samples = header.filter(|header| header.kind == Kind::Request).map_or(0, |header| header.samples);
        let counted = if file.bytes < *from { &mut before } else { &mut file.samples };
        *counted += u64::from(samples);
        file.bytes += head.record_bytes();
        has_from |= file.bytes == *from;
    }
    if !has_from {
        *from = 0;
        file.samples += before;
    }
    let len = spool.segments().get(&key(number)).copied().unwrap_or_default();
    // Only the newest file may end within a record.
    file.is_damaged |= file.bytes < len && (times.is_none() || !reader.is_unfinished(file.bytes)?);
    Ok(file)
}

fn add_times(times: &mut HashMap<u64, i64>, contents: &[u8]) {
    let Some((header, payload)) = record::decode(contents) else { return };
    if header.kind == Kind::Series {
        times.extend(record::decode_times(payload));
        return;
    }
    for (series, last_ms) in request::read(payload).into_iter().flat_map(WriteRequest::last_times) {
        let known = times.entry(series).or_insert(last_ms);
        *known = last_ms.max(*known);
    }
}
