//! Tests of the agent's side of the protocol that no simulation covers: at the limits, and with refusals.

use std::collections::HashSet;
use std::sync::Arc;

use crate::common::{SESSION, delivery, descriptor, flushed};
use polymeter_agent::delivery::session::{DeliverySession, REFUSALS, SessionNotice};
use polymeter_agent::lanes::{EventRecord, ReadCost, SourceKey, SourceReport};
use polymeter_proto::ledger::{Event, Tally};
use polymeter_proto::limits;
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::Frame;
use polymeter_proto::wire::message::{Lost, SkipReason, ToAgent, ToCollector};

const SECOND_NS: u64 = 1_000_000_000;

fn send_all(delivery: &mut DeliverySession) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    while let Some(send) = delivery.next_send() {
        sent.push(send.bytes().to_vec());
        delivery.sent(0);
    }
    sent
}

fn refused(sequence: u64) -> ToAgent {
    ToAgent::Refused { reason: "no".into(), frame: Some((SESSION, sequence)) }
}

#[test]
fn a_batch_beyond_one_frame_is_divided_in_order() {
    let mut delivery = delivery();
    let columns = u32::try_from(limits::BLOCK_COLUMNS).unwrap();
    let mut flushed = flushed(16, columns);
    let key = Arc::new(SourceKey { job: None, name: "stat".try_into().unwrap() });
    let tally = Tally { due: 1, missed: 1, ..Tally::default() };
    flushed.reports.push(SourceReport { key, tally, cost: ReadCost::default(), last: false });
    delivery.take(&flushed, 0);
    let frames: Vec<_> = send_all(&mut delivery).iter().map(|bytes| Frame::decode(bytes).unwrap()).collect();
    assert!(frames.len() > 1);
    let mut known = HashSet::new();
    for (sequence, frame) in (1..).zip(&frames) {
        assert_eq!(frame.sequence, sequence);
        known.extend(frame.dictionary.iter().filter_map(|entry| match entry {
            Entry::Shape(id, _) => Some(*id),
            Entry::Session(_)
            | Entry::Metric(..)
            | Entry::Job(..)
            | Entry::Series(..)
            | Entry::Function(..)
            | Entry::Stack(..) => None,
        }));
        assert!(frame.blocks.iter().all(|block| known.contains(&block.shape)));
    }
    let tells = |frame: &Frame| {
        let named = frame.ledger.iter().map(|entry| entry.tally);
        named.chain(frame.shape_tallies.iter().map(|(_, tally)| *tally)).any(|found| found == tally)
    };
    let with_losses = frames.iter().position(tells).unwrap();
    let with_samples = frames.iter().position(|frame| frame.samples() > 0).unwrap();
    assert!(with_losses <= with_samples, "losses come before the samples behind them");
    let samples: u64 = frames.iter().map(Frame::samples).sum();
    assert_eq!((samples, known.len()), (flushed.batch.samples(), 16));
}

#[test]
fn the_oldest_frame_is_given_up_when_it_is_refused_again_and_again() {
    let mut delivery = delivery();
    (0..3).for_each(|_| delivery.take(&flushed(1, 1), 0));
    assert_eq!(send_all(&mut delivery).len(), 3);
    // The second frame is judged only when it is the oldest.
    for _ in 0..REFUSALS {
        delivery.handle(refused(2), 0);
    }
    assert!(send_all(&mut delivery).is_empty());
    for _ in 1..REFUSALS {
        delivery.handle(refused(1), 0);
        assert_eq!(send_all(&mut delivery).len(), 3);
    }
    let given_up = SessionNotice::GivenUp { sequence: 1, samples: 1, reason: "no".into() };
    assert_eq!(delivery.handle(refused(1), 0), given_up);
    assert_eq!(delivery.handle(refused(1), 0), SessionNotice::Ordinary);
    let sent = send_all(&mut delivery);
    let Ok(ToCollector::Skipped { first: 1, last: 1, lost, reason, .. }) = ToCollector::decode(&sent[0])
    else {
        panic!("{sent:?}")
    };
    assert_eq!((reason, sent.len(), delivery.counts().samples_refused), (SkipReason::Refused, 3, 1));
    assert_eq!(lost, [Lost { job: None, source: "stat".try_into().unwrap(), samples: 1 }]);
}

#[test]
fn a_new_connection_is_reason_enough_to_send_again() {
    let mut delivery = delivery();
    delivery.take(&flushed(1, 1), 0);
    let first = send_all(&mut delivery);
    delivery.advance(4 * SECOND_NS);
    assert!(send_all(&mut delivery).is_empty());
    delivery.connected();
    assert_eq!(send_all(&mut delivery), first);
    delivery.advance(6 * SECOND_NS);
    assert_eq!(send_all(&mut delivery), first);
}

#[test]
fn the_events_of_a_dropped_frame_are_sent_although_no_batch_follows() {
    let mut delivery = DeliverySession::new(SESSION, descriptor(), 1000, 0);
    let mut ended = flushed(1, 1);
    let event = Event::SessionEnded { at_us: 1 };
    ended.events.push(EventRecord { job: None, event: event.clone() });
    delivery.take(&ended, 0);
    // Each frame repeats the event, until the frame with it is dropped by the last one.
    for _ in 0..1000 {
        if delivery.has_unreported() {
            break;
        }
        delivery.take(&flushed(1, 1), 0);
    }
    assert!(delivery.has_unreported());
    let mut last = 0;
    while !delivery.is_empty() {
        for bytes in send_all(&mut delivery) {
            last = match ToCollector::decode(&bytes) {
                Ok(ToCollector::Skipped { last, .. }) => last,
                _ => Frame::decode(&bytes).unwrap().sequence,
            };
        }
        delivery.handle(ToAgent::Ack { session: SESSION, through: last }, 0);
    }
    delivery.advance(0);
    let [frame] = &send_all(&mut delivery)[..] else { panic!("one frame is due") };
    assert_eq!(Frame::decode(frame).unwrap().events, [event]);
    delivery.handle(ToAgent::Ack { session: SESSION, through: last + 1 }, 0);
    delivery.advance(29 * SECOND_NS);
    assert!(send_all(&mut delivery).is_empty() && !delivery.has_unreported());
    delivery.advance(30 * SECOND_NS);
    assert_eq!(send_all(&mut delivery).len(), 1, "an idle agent is alive");
}

/// Shapes of the dictionary that a collector gets when it asks for it.
fn announced_shapes(delivery: &mut DeliverySession) -> Vec<u32> {
    delivery.handle(ToAgent::NeedDictionary { session: SESSION }, 0);
    let messages = send_all(delivery).into_iter().filter_map(|bytes| ToCollector::decode(&bytes).ok());
    let entries = messages.flat_map(|message| match message {
        ToCollector::Dictionary { entries, .. } => entries,
        ToCollector::Skipped { .. } | ToCollector::Answer { .. } => Vec::new(),
    });
    let shape = |entry| if let Entry::Shape(id, _) = entry { Some(id.0) } else { None };
    entries.filter_map(shape).collect()
}

/// A device that changes all the time has new shapes all the time.
#[test]
fn shapes_that_nothing_uses_any_more_are_forgotten_with_their_last_frame() {
    let mut delivery = delivery();
    let ack = |through| ToAgent::Ack { session: SESSION, through };
    let first = flushed(3, 2);
    let in_use = Arc::clone(&first.batch.shapes()[1]);
    delivery.take(&first, 0);
    drop(first);
    assert_eq!(announced_shapes(&mut delivery), [0, 1, 2], "a collector may need them for the frame");
    send_all(&mut delivery);
    delivery.handle(ack(1), 0);
    delivery.take(&flushed(1, 2), 0);
    delivery.handle(ack(2), 0);
    assert_eq!(announced_shapes(&mut delivery), [1]);
    drop(in_use);
    // Nothing has changed in the dictionary until there is another shape.
    delivery.take(&flushed(5, 2), 0);
    assert_eq!(announced_shapes(&mut delivery), [0, 1, 2, 3, 4]);
    delivery.handle(ack(3), 0);
    delivery.handle(ack(3), 0);
    assert_eq!(announced_shapes(&mut delivery), [0; 0]);
}
