//! Tests of the spool: all kept frames are restored, even from damaged files; and the effects of disk faults.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{SESSION, delivery, flushed};
use polymeter_agent::delivery::outbox::Restored;
use polymeter_agent::delivery::session::{DeliverySession, NextSend};
use polymeter_agent::delivery::spool::segment::{self, Segment};
use polymeter_agent::delivery::spool::{AppendError, Spool, SpoolBatch};
use polymeter_proto::wire::frame::Frame;
use polymeter_proto::wire::message::{ToAgent, ToCollector};
use polymeter_service::spool::SpoolError;
use polymeter_service::spool::record::{HEAD_BYTES, Records};

const LARGE: u64 = 1 << 30;

/// Batch that a delivery with `frames` frames of one sample writes to the spool at its end.
fn batch(frames: u32) -> (DeliverySession, SpoolBatch) {
    let mut delivery = delivery();
    delivery.use_spool();
    (0..frames).for_each(|_| delivery.take(&flushed(1, 1), 0));
    let batch = delivery.spill(None, true, 0).unwrap();
    (delivery, batch)
}

fn numbers(segment: &Segment) -> Vec<u64> {
    segment
        .restored
        .iter()
        .map(|restored| match restored {
            Restored::Frame(number, ..) => *number,
            Restored::Skipped(..) => panic!("a note"),
        })
        .collect()
}

fn the_file(directory: &Path) -> PathBuf {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some()).max().unwrap()
}

#[test]
fn a_segment_that_is_cut_gives_what_is_before_the_cut() {
    let bytes = batch(4).1.bytes;
    assert_eq!(numbers(&segment::read(SESSION, &bytes)), [1, 2, 3, 4]);
    let mut most = 0;
    for len in 0..bytes.len() {
        let read = segment::read(SESSION, &bytes[..len]);
        let found = numbers(&read);
        assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>(), "{len}");
        assert!(found.len() >= most && found.len() < 4 && read.damaged == 0, "{len}");
        most = found.len();
    }
    assert_eq!(most, 3);
}

#[test]
fn a_flipped_bit_is_detected() {
    let bytes = batch(4).1.bytes;
    let whole = segment::read(SESSION, &bytes);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let read = segment::read(SESSION, &flipped);
        // Either one record is damaged, or all from one on are cut off; the others are unchanged.
        assert!(read.damaged == 1 && read.cut_bytes == 0 || read.damaged == 0 && read.cut_bytes > 0, "{bit}");
        for restored in &read.restored {
            assert!(
                whole.restored.iter().any(|other| match (restored, other) {
                    (Restored::Frame(a, of_a, ..), Restored::Frame(b, of_b, ..)) => a == b && of_a == of_b,
                    (Restored::Frame(..) | Restored::Skipped(..), _) => false,
                }),
                "{bit}"
            );
        }
    }
}

/// Sends all frames and notes of an earlier process's session, and returns a description of each.
fn replayed(spool: &Spool, delivery: &mut DeliverySession) -> Vec<String> {
    let mut sent = Vec::new();
    while let Some(send) = delivery.next_send() {
        match send {
            NextSend::Restore(segment) => {
                let read = spool.read(delivery.session(), segment).unwrap();
                delivery.restored(segment, read);
                continue;
            }
            NextSend::Frame(bytes) => sent.push(Frame::decode(bytes).unwrap().sequence.to_string()),
            NextSend::Message(bytes) => match ToCollector::decode(&bytes).unwrap() {
                ToCollector::Skipped { first, last, reason, .. } => {
                    sent.push(format!("{first}-{last} {reason:?}"))
                }
                other @ (ToCollector::Dictionary { .. } | ToCollector::Answer { .. }) => {
                    panic!("{other:?}")
                }
            },
        }
        delivery.sent(0);
    }
    sent
}

#[test]
fn the_next_life_finds_what_was_kept_and_forgets_what_is_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(directory.path(), LARGE).unwrap();
    let (mut delivery, first) = batch(3);
    assert_eq!(spool.append(&first).unwrap(), 1);
    delivery.spilled(&first, 1);
    delivery.take(&flushed(1, 1), 0);
    let second = delivery.spill(spool.open_segment(1 << 20), true, 0).unwrap();
    assert_eq!((second.continues, spool.append(&second).unwrap()), (Some(1), 1));
    drop(spool);

    let mut spool = Spool::open(directory.path(), LARGE).unwrap();
    assert_eq!(spool.sessions(), [(SESSION, vec![1])]);
    let last = spool.read(SESSION, 1).unwrap().last().unwrap();
    let mut delivery = DeliverySession::replay(SESSION, 1 << 20, &[(1, last)], 0);
    assert_eq!(replayed(&spool, &mut delivery), ["1", "2", "3", "4"]);
    // The dictionary contains everything that is needed to decode them.
    delivery.handle(ToAgent::NeedDictionary { session: SESSION }, 0);
    let Some(NextSend::Message(bytes)) = delivery.next_send() else { panic!("no dictionary") };
    let Ok(ToCollector::Dictionary { entries, .. }) = ToCollector::decode(&bytes) else {
        panic!("{bytes:?}")
    };
    assert!(entries.len() > 3);
    delivery.handle(ToAgent::Ack { session: SESSION, through: 4 }, 0);
    for segment in delivery.released() {
        spool.remove(SESSION, segment).unwrap();
    }
    assert!(delivery.is_empty() && spool.sessions().is_empty() && spool.bytes() == 0);
}

#[test]
fn damage_is_reported_and_affects_only_its_record() {
    let directory = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(directory.path(), LARGE).unwrap();
    spool.append(&batch(5).1).unwrap();
    let path = the_file(directory.path());
    let mut bytes = fs::read(&path).unwrap();
    let len = bytes.len();
    // The contents of the third frame, and the end of the last one.
    let lengths: Vec<usize> = Records::of(&bytes).map(|frame| HEAD_BYTES + frame.unwrap().len()).collect();
    bytes[len - lengths[lengths.len() - 2..].iter().sum::<usize>() - 1] ^= 0x10;
    bytes.truncate(len - 3);
    fs::write(&path, bytes).unwrap();
    let mut delivery = DeliverySession::replay(SESSION, 1 << 20, &[(1, 5)], 0);
    let sent = replayed(&spool, &mut delivery);
    assert_eq!(sent.iter().filter(|sent| sent.ends_with("Damaged")).count(), 2, "{sent:?}");
    assert_eq!((sent.len(), sent[2].as_str(), sent[4].as_str()), (5, "3-3 Damaged", "5-5 Damaged"));
    // A file that is missing.
    fs::remove_file(&path).unwrap();
    assert!(matches!(spool.read(SESSION, 1), Err(SpoolError::Disk { doing: "read", .. })));
}

#[test]
fn a_full_or_faulty_disk_keeps_nothing_of_a_batch_and_what_was_kept_stays() {
    let directory = tempfile::tempdir().unwrap();
    let (_, batch) = batch(2);
    let mut spool = Spool::open(directory.path(), batch.bytes.len() as u64 + 100).unwrap();
    spool.append(&batch).unwrap();
    let more =
        SpoolBatch { session: SESSION, first: 3, entries: 1, continues: Some(1), bytes: batch.bytes.clone() };
    assert!(matches!(spool.append(&more), Err(AppendError::Full)));
    assert_eq!(numbers(&spool.read(SESSION, 1).unwrap()), [1, 2]);
    drop(spool);
    // A directory in the place of the new segment's file: a fault that occurs for root, too.
    let mut spool = Spool::open(directory.path(), LARGE).unwrap();
    let blocked = the_file(directory.path()).with_file_name(format!("{SESSION}-{:016x}.spool", 3));
    fs::create_dir(&blocked).unwrap();
    let alone = SpoolBatch { continues: None, ..more };
    let cannot_make = |error| matches!(error, AppendError::Spool(SpoolError::Disk { doing: "make", .. }));
    assert!(cannot_make(spool.append(&alone).unwrap_err()));
    fs::remove_dir(&blocked).unwrap();
    // A disk without room leaves no file behind, which nothing would remove.
    let kept = spool.bytes();
    let new = directory.path().join("new");
    std::os::unix::fs::symlink("/dev/full", &new).unwrap();
    assert!(cannot_make(spool.append(&alone).unwrap_err()));
    let is_gone = |path: &Path| fs::symlink_metadata(path).is_err();
    assert!(is_gone(&blocked) && is_gone(&new) && spool.bytes() == kept);
    assert_eq!(spool.append(&alone).unwrap(), 3);
}

#[test]
fn two_agents_do_not_share_a_spool() {
    let directory = tempfile::tempdir().unwrap();
    let first = Spool::open(directory.path(), LARGE).unwrap();
    let refused = Spool::open(directory.path(), LARGE).unwrap_err();
    assert!(matches!(refused, SpoolError::InUse { .. }), "{refused}");
    drop(first);
    Spool::open(directory.path(), LARGE).unwrap();
}
