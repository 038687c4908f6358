//! Tests of the spool: what was appended is sent once and in order, also after a kill, with damaged files and
//! a full disk.

use std::fs;
use std::path::Path;
use std::time::Duration;

use polymeter_service::spool::record::HEAD_BYTES;

use super::record::HEADER_BYTES;
use super::{Log, SpoolBounds};
use crate::sinks::outbound::request::{RequestBuilder, encode_labels, hash};

const BOUNDS: SpoolBounds =
    SpoolBounds { bytes: 1 << 20, file_bytes: 400, memory_bytes: 1000, resend_window: Duration::ZERO };

const WINDOW: SpoolBounds = SpoolBounds { resend_window: Duration::from_secs(10), ..BOUNDS };

fn request(name: &str, time_ms: i64) -> Vec<u8> {
    let mut builder = RequestBuilder::default();
    builder.add(&encode_labels([("__name__", name)]), &[(time_ms, 0)], None);
    snap::raw::Encoder::new().compress_vec(builder.body()).unwrap()
}

fn append(log: &Log, time_ms: i64) {
    log.append(request("up", time_ms), 1, time_ms, Vec::new);
}

/// Finishes all requests, and returns the times of their samples.
fn drain(log: &Log) -> Vec<i64> {
    std::iter::from_fn(|| log.next().inspect(|request| log.finish(request, Duration::ZERO)))
        .map(|request| request.newest_ms)
        .collect()
}

fn open(directory: &Path) -> Log {
    Log::open(directory, BOUNDS, &[]).unwrap().0
}

fn spool_files(directory: &Path, extension: &str) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}

#[test]
fn requests_are_sent_in_order_and_files_removed() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    (1..=100).for_each(|time_ms| append(&log, time_ms));
    assert!(spool_files(directory.path(), "spool").len() > 10);
    let stats = log.stats();
    assert!(stats.samples == 100 && stats.bytes > 4000 && stats.memory_bytes == 0, "{stats:?}");
    assert_eq!(drain(&log), (1..=100).collect::<Vec<_>>());
    assert_eq!(spool_files(directory.path(), "spool").len(), 1, "the newest file stays");
    assert_eq!((log.stats().samples, log.stats().lag_ms), (0, 0));
    append(&log, 101);
    append(&log, 105);
    assert_eq!(log.next().unwrap().newest_ms, 101);
    assert_eq!(log.stats().lag_ms, 5, "nothing newer than 100 was sent");
}

#[test]
fn a_killed_process_continues_behind_the_last_request_that_was_finished() {
    let directory = tempfile::tempdir().unwrap();
    for killed_after in [0, 1, 7, 30] {
        let log = open(directory.path());
        let before = log.stats().samples;
        (1..=30).for_each(|time_ms| append(&log, time_ms));
        for _ in 0..killed_after {
            let request = log.next().unwrap();
            log.finish(&request, Duration::ZERO);
        }
        // Taken, and not finished: it is sent again.
        let next = log.next().map(|request| request.newest_ms);
        drop(log);
        let log = open(directory.path());
        assert_eq!(log.stats().samples, before + 30 - killed_after);
        assert_eq!(log.next().map(|request| request.newest_ms), next);
        if killed_after == 30 {
            drain(&log);
        }
    }
}

#[test]
fn last_times_of_series_survive() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    let (up, old) = (hash(&encode_labels([("__name__", "up")])), 7);
    for time_ms in 1..=50 {
        log.append(request("up", time_ms), 1, time_ms, || {
            super::record::encode_times([(old, 3), (up, time_ms)].into_iter())
        });
    }
    drain(&log);
    drop(log);
    let (_, times) = Log::open(directory.path(), BOUNDS, &[]).unwrap();
    assert_eq!((times.get(&up), times.get(&old)), (Some(&50), Some(&3)));
}

#[test]
fn an_incomplete_write_is_cut_and_a_damaged_file_is_moved_aside() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    (1..=30).for_each(|time_ms| append(&log, time_ms));
    drop(log);
    let files = spool_files(directory.path(), "spool");
    let newest = files.last().unwrap();
    let mut torn = fs::read(newest).unwrap();
    torn.extend(&fs::read(&files[0]).unwrap()[..50]);
    fs::write(newest, &torn).unwrap();
    let log = open(directory.path());
    assert_eq!(log.take_tally().damaged_files, 0);
    drop(log);
    // A bit of the second file flips.
    let mut damaged = fs::read(&files[1]).unwrap();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    fs::write(&files[1], &damaged).unwrap();
    let log = open(directory.path());
    let sent = drain(&log);
    let tally = log.take_tally();
    assert!(tally.damaged_files == 1 && tally.dropped_damaged > 0 && tally.error.is_some(), "{tally:?}");
    assert_eq!(sent.len() as u64 + tally.dropped_damaged, 30);
    assert!(sent.is_sorted() && sent.last() == Some(&30));
    assert_eq!(spool_files(directory.path(), "damaged").len(), 1);
}

#[test]
fn a_damaged_newest_file_keeps_its_valid_requests() {
    let bounds = SpoolBounds { file_bytes: 1 << 20, ..BOUNDS };
    // Damage in the contents of the fifth request costs this one; in its head, also those behind it.
    for (at, sent) in [(HEAD_BYTES + HEADER_BYTES, vec![1, 2, 3, 4, 6, 7, 8, 9, 10]), (1, vec![1, 2, 3, 4])] {
        let directory = tempfile::tempdir().unwrap();
        let (log, _) = Log::open(directory.path(), bounds, &[]).unwrap();
        (1..=4).for_each(|time_ms| append(&log, time_ms));
        let fifth = usize::try_from(log.stats().bytes).unwrap();
        (5..=10).for_each(|time_ms| append(&log, time_ms));
        drop(log);
        let newest = spool_files(directory.path(), "spool").pop().unwrap();
        let mut bytes = fs::read(&newest).unwrap();
        bytes[fifth + at] ^= 0x40;
        fs::write(&newest, &bytes).unwrap();
        let (log, times) = Log::open(directory.path(), bounds, &[]).unwrap();
        assert_eq!(drain(&log), sent);
        assert_eq!(times.values().max(), sent.last(), "the times are those of the valid requests");
        assert_eq!(log.take_tally().damaged_files, 1);
        assert_eq!(fs::read(&spool_files(directory.path(), "damaged")[0]).unwrap(), bytes);
        append(&log, 11);
        assert_eq!(drain(&log), [11]);
        drop(log);
        let (_, times) = Log::open(directory.path(), bounds, &[]).unwrap();
        assert_eq!(times.values().max(), Some(&11));
    }
}

#[test]
fn the_times_of_a_damaged_file_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    append(&log, 5);
    drain(&log);
    drop(log);
    let newest = spool_files(directory.path(), "spool").pop().unwrap();
    let damaged = [fs::read(&newest).unwrap(), vec![1; HEAD_BYTES]].concat();
    fs::write(&newest, damaged).unwrap();
    drop(open(directory.path()));
    let (log, times) = Log::open(directory.path(), BOUNDS, &[]).unwrap();
    assert_eq!((times.values().max(), log.next()), (Some(&5), None));
}

#[test]
fn the_oldest_file_beyond_the_bound_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = Log::open(directory.path(), SpoolBounds { bytes: 2000, ..BOUNDS }, &[]).unwrap();
    let first = {
        append(&log, 1);
        log.next().unwrap()
    };
    (2..=200).for_each(|time_ms| append(&log, time_ms));
    assert!(log.stats().bytes <= 2000);
    // It was being sent while its file was dropped.
    log.finish(&first, Duration::ZERO);
    let sent = drain(&log);
    let dropped = log.take_tally().dropped_full;
    assert_eq!(sent.len() as u64 + dropped, 200);
    assert!(sent.last() == Some(&200) && sent.len() > 10, "{sent:?}");
}

#[test]
fn a_damaged_position_sends_again_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    (1..=3).for_each(|time_ms| append(&log, time_ms));
    let request = log.next().unwrap();
    log.finish(&request, Duration::ZERO);
    drop(log);
    fs::write(directory.path().join("position"), [0xff; 40]).unwrap();
    assert_eq!(drain(&open(directory.path())), [1, 2, 3]);
}

#[test]
fn a_full_disk_delays_requests_in_bounded_memory() {
    // Writes to /dev/full fail with "no space left on device".
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    append(&log, 1);
    log.replace_active(fs::File::options().write(true).open("/dev/full").unwrap());
    (2..=5).for_each(|time_ms| append(&log, time_ms));
    let tally = log.take_tally();
    assert!(tally.error.unwrap().contains("No space left"));
    assert_eq!(tally.dropped_unwritable, 0);
    assert!(log.stats().memory_bytes > 0);
    assert_eq!(drain(&log), [1, 2, 3, 4, 5], "in order, also without the disk");
    (6..=200).for_each(|time_ms| append(&log, time_ms));
    assert!(log.stats().memory_bytes <= 1000);
    let dropped = log.take_tally().dropped_unwritable;
    let newest = spool_files(directory.path(), "spool").pop().unwrap();
    log.replace_active(fs::File::options().write(true).open(newest).unwrap());
    append(&log, 201);
    assert_eq!(log.stats().memory_bytes, 0, "the disk has room again");
    let sent = drain(&log);
    assert_eq!(sent.len() as u64 + dropped, 196);
    assert!(sent.is_sorted() && sent.last() == Some(&201));
}

fn accept(log: &Log, seconds: std::ops::RangeInclusive<u64>) -> Vec<i64> {
    let mut times = Vec::new();
    for at_s in seconds {
        let request = log.next().unwrap();
        log.finish(&request, Duration::from_secs(at_s));
        times.push(request.newest_ms);
    }
    times
}

#[test]
fn requests_accepted_within_the_window_are_sent_again() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path(), WINDOW, &[]).unwrap().0;
    (1..=40).for_each(|time_ms| append(&log, time_ms));
    accept(&log, 1..=30);
    let files = spool_files(directory.path(), "spool").len();
    assert_eq!(log.stats().samples, 10);
    assert_eq!(log.rewind(), 11, "those that were accepted in the seconds 20 to 30");
    assert_eq!((log.stats().samples, spool_files(directory.path(), "spool").len()), (21, files));
    assert_eq!(drain(&log), (20..=40).collect::<Vec<_>>());
    assert_eq!(log.stats().samples, 0);
    // All were accepted at the same time.
    assert_eq!(log.rewind(), 21);
    assert_eq!(accept(&log, 50..=70), (20..=40).collect::<Vec<_>>());
    assert_eq!((log.rewind(), log.rewind()), (11, 0));
}

#[test]
fn a_restarted_process_sends_the_window_again() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path(), WINDOW, &[]).unwrap().0;
    (1..=40).for_each(|time_ms| append(&log, time_ms));
    accept(&log, 1..=30);
    drop(log);
    let log = Log::open(directory.path(), WINDOW, &[]).unwrap().0;
    assert_eq!(log.stats().samples, 21);
    assert_eq!(accept(&log, 1..=21), (20..=40).collect::<Vec<_>>());
    drop(log);
    // Without a window, only what was not accepted is sent.
    let log = open(directory.path());
    assert_eq!((log.stats().samples, log.next()), (0, None));
    assert_eq!(spool_files(directory.path(), "spool").len(), 1);
}

#[test]
fn a_dropped_or_damaged_file_is_not_sent_again() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path(), SpoolBounds { bytes: 2000, ..WINDOW }, &[]).unwrap().0;
    (1..=20).for_each(|time_ms| append(&log, time_ms));
    let sent = drain(&log);
    assert_eq!(sent, (1..=20).collect::<Vec<_>>());
    (21..=40).for_each(|time_ms| append(&log, time_ms));
    let again = log.rewind();
    assert!((1..20).contains(&again), "{again}");
    assert_eq!(log.take_tally().dropped_full, 0, "what was dropped had been accepted");
    let sent = drain(&log);
    assert!(sent.len() as u64 == 20 + again && sent.last() == Some(&40), "{sent:?}");
    // A bit flips after the requests were accepted.
    let newest = spool_files(directory.path(), "spool").pop().unwrap();
    let mut damaged = fs::read(&newest).unwrap();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    fs::write(&newest, &damaged).unwrap();
    let again = log.rewind();
    let sent = drain(&log);
    let tally = log.take_tally();
    assert_eq!(sent.len() as u64 + tally.dropped_damaged, again);
    assert_eq!((log.rewind(), drain(&log).len()), (sent.len() as u64, sent.len()));
    assert_eq!(log.take_tally().damaged_files, 0, "it is known");
}
