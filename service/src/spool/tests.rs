//! Tests of the directory: what was flushed survives, of a failed write nothing is kept, and one process
//! writes.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::record::{self, HEAD_BYTES, Records};
use super::{Key, Spool, SpoolError};

const FIRST: Key = Key { stream: 7, number: 1 };
const SECOND: Key = Key { stream: 7, number: 2 };

fn open(directory: &Path) -> Spool {
    Spool::open(directory, "test", 1000).unwrap()
}

fn record(contents: &str) -> Vec<u8> {
    let mut record = Vec::new();
    record::put(&mut record, &[contents.as_bytes()]);
    record
}

fn contents(spool: &Spool, key: Key) -> Vec<String> {
    let bytes = spool.read(key, u64::MAX).unwrap();
    Records::of(&bytes).flatten().map(|contents| String::from_utf8(contents.to_vec()).unwrap()).collect()
}

/// Reads one record after another.
fn contents_by_reader(spool: &Spool, key: Key) -> Vec<String> {
    let (reader, mut found, mut offset) = (spool.reader(key).unwrap(), Vec::new(), 0);
    while let Some(head) = reader.head(offset).unwrap() {
        let contents = reader.contents(offset, &head).unwrap();
        found.extend(contents.map(|contents| String::from_utf8(contents).unwrap()));
        offset += head.record_bytes();
    }
    found
}

fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

#[test]
fn the_next_process_finds_segments_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let mut spool = open(directory.path());
    spool.begin(SECOND, &record("b")).unwrap();
    spool.begin(FIRST, &record("a")).unwrap();
    spool.append(&record("more")).unwrap();
    assert_eq!(spool.open_segment(), Some((FIRST, 2 * HEAD_BYTES as u64 + 5)));
    spool.begin(Key { stream: 0, number: 9 }, &[]).unwrap();
    drop(spool);

    let mut spool = open(directory.path());
    assert_eq!(
        spool.segments().keys().copied().collect::<Vec<_>>(),
        [Key { stream: 0, number: 9 }, FIRST, SECOND]
    );
    assert_eq!(
        (contents(&spool, FIRST), contents_by_reader(&spool, FIRST)),
        (vec!["a".to_owned(), "more".to_owned()], vec!["a".to_owned(), "more".to_owned()])
    );
    assert_eq!((spool.bytes(), spool.open_segment()), (3 * HEAD_BYTES as u64 + 6, None));
    assert!(spool.has_room(1000 - spool.bytes()) && !spool.has_room(1001 - spool.bytes()));
    spool.remove(SECOND).unwrap();
    assert!(matches!(spool.remove(SECOND), Err(SpoolError::Disk { doing: "remove", .. })));
    assert_eq!(spool.bytes(), 2 * HEAD_BYTES as u64 + 5);
}

#[test]
fn one_process_uses_a_spool() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path());
    let refused = Spool::open(directory.path(), "test", 1000).unwrap_err();
    assert!(refused.to_string().starts_with("another test uses the spool /"), "{refused}");
    drop(first);
    open(directory.path());
}

#[test]
fn foreign_files_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let names = ["README", "x.spool", "0000000000000007-1.spool", "0000000000000007-zzzzzzzzzzzzzzzz.spool"];
    for name in names {
        fs::write(directory.path().join(name), "?").unwrap();
    }
    assert!(open(directory.path()).segments().is_empty());
    assert!(names.iter().all(|name| directory.path().join(name).exists()));
}

#[test]
fn a_segment_begins_as_a_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let mut spool = open(directory.path());
    spool.begin(FIRST, &record("a")).unwrap();
    // A directory in the place of the segment, and a disk without room: faults that occur for root, too.
    let blocked = SECOND.path(directory.path());
    fs::create_dir(&blocked).unwrap();
    let cannot_make = |error| matches!(error, SpoolError::Disk { doing: "make", .. });
    assert!(cannot_make(spool.begin(SECOND, &record("b")).unwrap_err()));
    fs::remove_dir(&blocked).unwrap();
    let new = directory.path().join("new");
    symlink("/dev/full", &new).unwrap();
    assert!(cannot_make(spool.begin(SECOND, &record("b")).unwrap_err()));
    assert!(fs::symlink_metadata(&new).is_err() && !blocked.exists());
    assert_eq!(spool.open_segment(), Some((FIRST, HEAD_BYTES as u64 + 1)), "it stays open");
    // The process ended while it made a segment.
    fs::write(&new, "half").unwrap();
    drop(spool);
    let mut spool = open(directory.path());
    assert_eq!(spool.segments().len(), 1);
    spool.begin(SECOND, &record("b")).unwrap();
    assert_eq!(contents(&spool, SECOND), ["b"]);
}

#[test]
fn nothing_is_kept_of_a_failed_write() {
    let directory = tempfile::tempdir().unwrap();
    let mut spool = open(directory.path());
    assert!(spool.append(&record("a")).is_err(), "no segment is open");
    spool.begin(FIRST, &record("a")).unwrap();
    spool.replace_file(fs::File::options().write(true).open("/dev/full").unwrap());
    let error = spool.append(&record("b")).unwrap_err();
    assert!(error.is_temporary() && error.to_string().contains("No space left"), "{error}");
    assert_eq!((spool.bytes(), contents(&spool, FIRST)), (HEAD_BYTES as u64 + 1, vec!["a".to_owned()]));
    // The disk has room again.
    let path = FIRST.path(directory.path());
    spool.replace_file(fs::File::options().write(true).open(path).unwrap());
    spool.append(&record("c")).unwrap();
    let before = spool.bytes();
    spool.append(&record("d")).unwrap();
    spool.flush().unwrap();
    assert_eq!(contents(&spool, FIRST), ["a", "c", "d"]);
    // As after a failed flush.
    spool.close_at(before);
    assert_eq!(
        (spool.open_segment(), spool.bytes(), contents(&spool, FIRST)),
        (None, before, vec!["a".to_owned(), "c".to_owned()])
    );
}

#[test]
fn an_unfinished_record_is_told_from_a_damaged_one_and_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let mut spool = open(directory.path());
    spool.begin(FIRST, &[record("a"), record("b")].concat()).unwrap();
    drop(spool);
    let path = FIRST.path(directory.path());
    let mut bytes = fs::read(&path).unwrap();
    bytes.pop();
    fs::write(&path, &bytes).unwrap();
    let mut spool = open(directory.path());
    assert_eq!(contents_by_reader(&spool, FIRST), ["a"]);
    let end = HEAD_BYTES as u64 + 1;
    assert!(spool.reader(FIRST).unwrap().is_unfinished(end).unwrap());
    bytes[HEAD_BYTES + 2] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert!(!spool.reader(FIRST).unwrap().is_unfinished(end).unwrap());
    spool.resume(FIRST, end).unwrap();
    spool.append(&record("c")).unwrap();
    assert_eq!(contents(&spool, FIRST), ["a", "c"]);
}

#[test]
fn few_damaged_segments_are_kept_for_an_examination() {
    let directory = tempfile::tempdir().unwrap();
    let mut spool = open(directory.path());
    for number in 1..=6 {
        let key = Key { number, ..FIRST };
        spool.begin(key, &record("a")).unwrap();
        spool.set_aside(key).unwrap();
        assert_eq!((spool.open_segment(), spool.bytes()), (None, 0));
    }
    let mut kept = files(directory.path(), "damaged");
    kept.sort();
    assert_eq!((kept.len(), files(directory.path(), "spool").len()), (4, 0));
    assert!(kept[0].ends_with("0000000000000007-0000000000000003.damaged"), "{kept:?}");
}

#[test]
fn a_spool_that_root_makes_belongs_to_the_user_of_its_place() {
    let place = tempfile::tempdir().unwrap();
    let root = geteuid().is_root();
    let user = if root { 64_001 } else { geteuid().as_raw() };
    if root {
        chown(place.path(), Some(user), Some(user)).unwrap();
    }
    let directory = place.path().join("a/spool");
    let mut spool = Spool::open(&directory, "agent", 1 << 20).unwrap();
    spool.begin(Key { stream: 1, number: 1 }, b"records").unwrap();
    let mut seen = 0;
    for directory in [place.path().join("a"), directory] {
        assert_eq!(fs::metadata(&directory).unwrap().uid(), user);
        for entry in fs::read_dir(directory).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().uid(), user);
            seen += 1;
        }
    }
    assert_eq!(seen, 3, "the spool, its lock and its segment");
}

#[test]
fn links_of_others_in_the_place_of_files_lead_nowhere() {
    if !geteuid().is_root() {
        // Only root can make links of others.
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (directory, victim) = (place.path().join("spool"), place.path().join("victim"));
    fs::create_dir(&directory).unwrap();
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, directory.join("new")).unwrap();
    lchown(directory.join("new"), Some(64_001), Some(64_001)).unwrap();
    let mut spool = Spool::open(&directory, "agent", 1 << 20).unwrap();
    spool.begin(Key { stream: 1, number: 1 }, b"records").unwrap();
    drop(spool);
    fs::remove_file(directory.join("lock")).unwrap();
    symlink(place.path().join("dangling"), directory.join("lock")).unwrap();
    let error = Spool::open(&directory, "agent", 1 << 20).map(drop).unwrap_err();
    assert!(matches!(error, SpoolError::Disk { doing: "open", .. }), "{error}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(!place.path().join("dangling").exists());
}
