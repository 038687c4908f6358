use std::sync::Arc;

use polymeter_proto::batch::{Batch, Column, Instant, Shape};
use polymeter_proto::ledger::Event;
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    JobHandle, Kind, Labels, MetricDescriptor, MetricId, Number, SeriesId, ShapeId, Unit,
};

use super::*;

const SESSION: SessionId = SessionId(1);

fn summary(samples: u64, at_us: i64) -> FrameSummary {
    let source = "stat".try_into().unwrap();
    let period = Period::SECOND;
    let shape =
        Arc::new(Shape { id: ShapeId(1), job: None, source, period, window: None, columns: vec![column()] });
    let mut batch = Batch::default();
    let index = batch.add_shape(&shape);
    for _ in 0..samples {
        let instant = Instant { deadline: None, time_us: at_us };
        batch.push(index, instant, std::iter::once(Some(1))).unwrap();
    }
    FrameSummary::of(&batch)
}

fn column() -> Column {
    let name = MetricName::new("cpu.usage").unwrap();
    let metric = MetricDescriptor { name, unit: Unit::Count, kind: Kind::Counter, number: Number::Unsigned };
    Column { series: SeriesId(1), metric: (MetricId(1), metric), labels: Labels::default() }
}

fn outbox(frames: u8, limit_bytes: usize) -> Outbox {
    let mut outbox = Outbox::new(SESSION, limit_bytes);
    for frame in 1..=frames {
        push(&mut outbox, frame, u64::from(frame));
    }
    outbox
}

/// Adds a frame of ten bytes with `samples` samples, and drops frames for which there is no room.
fn push(outbox: &mut Outbox, byte: u8, samples: u64) -> u64 {
    outbox.push(vec![byte; 10], summary(samples, i64::from(byte) * 10), Vec::new());
    outbox.make_room().samples
}

fn send_all(outbox: &mut Outbox) -> Vec<String> {
    let mut sent = Vec::new();
    while let Some(outgoing) = outbox.next_outgoing() {
        sent.push(match outgoing {
            Outgoing::Frame(bytes) => format!("{}", bytes[0]),
            Outgoing::Note(ToCollector::Skipped { first, last, lost, reason, .. }) => {
                let samples: u64 = lost.iter().map(|lost| lost.samples).sum();
                format!("{first}-{last}:{samples}:{reason:?}")
            }
            other @ (Outgoing::Note(_) | Outgoing::Segment(_)) => panic!("{other:?}"),
        });
        outbox.sent();
    }
    sent
}

#[test]
fn frames_stay_until_they_are_acknowledged() {
    let mut outbox = outbox(3, 1000);
    assert_eq!(send_all(&mut outbox), ["1", "2", "3"]);
    assert_eq!(outbox.bytes_under_way(), 30);
    assert_eq!(outbox.acknowledge(2).frames, 2);
    assert_eq!((outbox.bytes(), outbox.awaits_answer()), (10, true));
    outbox.resend_all();
    assert_eq!(send_all(&mut outbox), ["3"]);
    assert_eq!(outbox.acknowledge(3).frames, 1);
    assert!(outbox.is_empty());
}

#[test]
fn a_full_outbox_notes_dropped_frames_and_keeps_sent_ones() {
    let mut outbox = outbox(5, 20);
    assert_eq!(send_all(&mut outbox), ["1-3:6:OutboxFull", "4", "5"]);
    // Sent frames may be stored already. Only the newest was never sent, so it is dropped.
    assert_eq!(push(&mut outbox, 6, 6), 6);
    assert_eq!(send_all(&mut outbox), ["6-6:6:OutboxFull"]);
    // A note that was sent is not extended; one that was not sent is.
    assert_eq!(push(&mut outbox, 7, 7), 7);
    assert_eq!(push(&mut outbox, 8, 8), 8);
    assert_eq!(send_all(&mut outbox), ["7-8:15:OutboxFull"]);
    assert_eq!(outbox.acknowledge(4).frames, 1);
    assert_eq!(outbox.acknowledge(8).frames, 1);
    assert!(outbox.is_empty());
}

#[test]
fn a_frame_that_is_refused_leaves_a_note_and_what_follows_is_sent_again() {
    let mut outbox = outbox(3, 1000);
    send_all(&mut outbox);
    assert_eq!(outbox.give_up_oldest().samples, 1);
    assert_eq!(outbox.give_up_oldest().samples, 0);
    assert_eq!((outbox.bytes(), outbox.bytes_under_way()), (20, 0));
    assert_eq!(send_all(&mut outbox), ["1-1:1:Refused", "2", "3"]);
    assert_eq!(outbox.acknowledge(3).frames, 2);
    assert_eq!((outbox.bytes(), outbox.bytes_under_way(), outbox.is_empty()), (0, 0, true));
}

#[test]
fn an_acknowledgement_counts_after_a_resend_has_begun() {
    let mut outbox = outbox(3, 1000);
    send_all(&mut outbox);
    outbox.resend_all();
    assert_eq!(outbox.acknowledge(2).frames, 2);
    assert_eq!(send_all(&mut outbox), ["3"]);
}

#[test]
fn events_of_a_dropped_frame_are_returned() {
    let mut outbox = Outbox::new(SESSION, 15);
    let event = Event::JobEnded { job: JobHandle(7), at_us: 1 };
    let record = EventRecord { job: None, event: event.clone() };
    outbox.push(vec![0; 10], summary(1, 0), vec![record]);
    assert!(outbox.make_room().events.is_empty());
    outbox.push(vec![0; 10], summary(1, 1), Vec::new());
    let given_back = outbox.make_room().events;
    assert_eq!(given_back.into_iter().map(|record| record.event).collect::<Vec<_>>(), [event]);
}

#[test]
fn acknowledged_frames_are_replaced_by_notes() {
    let mut outbox = outbox(3, 1000);
    send_all(&mut outbox);
    outbox.acknowledge(2);
    outbox.resend_from(1);
    assert_eq!(send_all(&mut outbox), ["1-2:0:AlreadyAcknowledged", "3"]);
    outbox.acknowledge(3);
    outbox.resend_from(2);
    assert_eq!(send_all(&mut outbox), ["2-3:0:AlreadyAcknowledged"]);
}

#[test]
fn kept_frames_are_sent_again_after_a_failover() {
    let mut outbox = Outbox::new(SESSION, 1000);
    outbox.keep_acknowledged(25);
    for frame in 1..=5 {
        push(&mut outbox, frame, u64::from(frame));
    }
    send_all(&mut outbox);
    outbox.acknowledge(4);
    assert_eq!((outbox.bytes(), outbox.kept_bytes(), outbox.oldest_kept()), (10, 20, 1));
    // There was room for the bytes of two frames; of others the losses are known.
    assert_eq!(outbox.resend_from(2), [2]);
    assert_eq!(send_all(&mut outbox), ["2-2:2:AlreadyAcknowledged", "3", "4", "5"]);
    assert_eq!((outbox.bytes(), outbox.kept_bytes(), outbox.oldest_kept()), (30, 0, 1));
    assert_eq!(outbox.acknowledge(5).frames, 3);
    assert_eq!((outbox.bytes(), outbox.kept_bytes()), (0, 20));
    // The note and the frames before it are lost once more.
    outbox.resend_from(1);
    assert_eq!(send_all(&mut outbox), ["1-3:6:AlreadyAcknowledged", "4", "5"]);
}

#[test]
fn frames_that_are_not_kept_any_more_become_a_note_without_a_number() {
    let mut outbox = Outbox::new(SESSION, 100_000);
    outbox.keep_acknowledged(1);
    for _ in 0..1030 {
        push(&mut outbox, 0, 1);
    }
    send_all(&mut outbox);
    outbox.acknowledge(1029);
    assert_eq!(outbox.oldest_kept(), 6);
    outbox.resend_from(1);
    let expected = ["1-5:0:AlreadyAcknowledged", "6-1029:1024:AlreadyAcknowledged", "0"];
    assert_eq!(send_all(&mut outbox), expected);
}

#[test]
fn an_acknowledgement_of_unsent_frames_is_ignored() {
    let mut outbox = outbox(3, 1000);
    assert_eq!(outbox.acknowledge(u64::MAX).frames, 0);
    assert_eq!(send_all(&mut outbox).len(), 3);
}

#[test]
fn a_frame_larger_than_the_outbox_is_noted_too() {
    let mut outbox = Outbox::new(SESSION, 5);
    assert_eq!(push(&mut outbox, 0, 7), 7);
    assert_eq!(outbox.bytes(), 0);
    assert_eq!(send_all(&mut outbox), ["1-1:7:OutboxFull"]);
}

fn restored(frames: std::ops::RangeInclusive<u64>) -> Vec<Restored> {
    frames
        .map(|frame| {
            Restored::Frame(frame, vec![u8::try_from(frame).unwrap(); 10], summary(frame, 0), Vec::new())
        })
        .collect()
}

/// Spills all that can be spilled into the segment that its first number names.
fn spill(outbox: &mut Outbox) -> (u64, Option<u64>, usize) {
    let Spill { first, continues, entries, .. } = outbox.spill(usize::MAX).unwrap();
    outbox.spilled(first, entries, continues.unwrap_or(first));
    (first, continues, entries)
}

#[test]
fn spilled_frames_keep_their_place_and_are_restored() {
    let mut outbox = outbox(4, 1000);
    outbox.next_outgoing();
    outbox.sent();
    // Entries under way are spilled, too, and stay in memory.
    assert_eq!(spill(&mut outbox), (1, None, 4));
    assert_eq!((outbox.bytes(), outbox.spill(usize::MAX).is_none()), (10, true));
    push(&mut outbox, 5, 5);
    assert_eq!(spill(&mut outbox), (5, Some(1), 1));
    push(&mut outbox, 6, 6);
    assert_eq!(outbox.next_outgoing(), Some(Outgoing::Segment(1)));
    assert_eq!(outbox.restored(1, restored(1..=5)), 0);
    assert_eq!(send_all(&mut outbox), ["2", "3", "4", "5", "6"]);
    assert_eq!(outbox.acknowledge(4), Acknowledged { frames: 4, segments: vec![] });
    assert_eq!(outbox.acknowledge(6), Acknowledged { frames: 2, segments: vec![1] });
    assert!(outbox.is_empty() && outbox.bytes() == 0);
}

#[test]
fn frames_on_the_disk_take_no_room() {
    let mut outbox = Outbox::new(SESSION, 25);
    (1..=3).for_each(|frame| outbox.push(vec![frame; 10], summary(1, 0), Vec::new()));
    assert!(outbox.is_over());
    spill(&mut outbox);
    outbox.restored(1, restored(1..=3));
    assert!(!outbox.is_over() && outbox.bytes() == 30);
    assert_eq!(push(&mut outbox, 4, 4) + push(&mut outbox, 5, 5), 0);
    assert_eq!(push(&mut outbox, 6, 6), 4, "the oldest that is not on the disk");
    assert_eq!(send_all(&mut outbox), ["1", "2", "3", "4-4:4:OutboxFull", "5", "6"]);
    assert_eq!(outbox.acknowledge(6).segments, [1]);
}

#[test]
fn missing_frames_of_a_segment_become_notes() {
    let mut outbox = Outbox::of_segments(SESSION, 1000, &[(1, 6), (7, 7)]);
    assert_eq!(outbox.next_outgoing(), Some(Outgoing::Segment(1)));
    let mut found = restored(2..=2);
    found.extend(restored(4..=5));
    // An entry that does not belong to the segment.
    found.extend(restored(9..=9));
    outbox.restored(1, found);
    outbox.restored(7, Vec::new());
    let damaged = ["1-1:0:Damaged", "2", "3-3:0:Damaged", "4", "5", "6-6:0:Damaged", "7-7:0:Damaged"];
    assert_eq!(send_all(&mut outbox), damaged);
    assert_eq!(outbox.acknowledge(7), Acknowledged { frames: 3, segments: vec![1, 7] });
}
