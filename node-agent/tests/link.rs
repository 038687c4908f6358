//! The agent's side of the protocol where no simulation goes: at the limits, and where a collector refuses.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a fault of a test is a failed test"
)]

use std::collections::HashSet;
use std::sync::Arc;

use polymeter_agent::delivery::link::{Heard, Link, REFUSALS};
use polymeter_agent::sampler::Flushed;
use polymeter_proto::batch::{Column, Instant, Shape};
use polymeter_proto::limits;
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    Kind, Labels, MetricDescriptor, MetricId, Number, SeriesId, SessionDescriptor, SessionId, ShapeId, Unit,
};
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::Frame;
use polymeter_proto::wire::message::{Lost, SkipReason, ToAgent, ToCollector};

const SESSION: SessionId = SessionId(7);
const SECOND_NS: u64 = 1_000_000_000;

fn link() -> Link {
    let descriptor = SessionDescriptor {
        node: "n1".try_into().unwrap(),
        agent_version: "1".try_into().unwrap(),
        started_us: 0,
    };
    Link::new(SESSION, descriptor, 64 << 20, 0)
}

/// A row of a shape with so many columns, of series that no other shape has.
fn flushed(shapes: u32, columns: u32) -> Flushed {
    let mut flushed = Flushed::default();
    for id in 0..shapes {
        let column = |number| {
            let name = MetricName::new("node.vm.pgfault").unwrap();
            let metric =
                MetricDescriptor { name, unit: Unit::Count, kind: Kind::Counter, number: Number::Unsigned };
            let series = SeriesId(id * columns + number);
            Column { series, metric: (MetricId(1), metric), labels: Labels::default() }
        };
        let columns: Vec<_> = (0..columns).map(column).collect();
        let shape = Arc::new(Shape {
            id: ShapeId(id),
            job: None,
            source: "stat".try_into().unwrap(),
            period: Period::SECOND,
            columns,
        });
        let index = flushed.batch.add_shape(&shape);
        let values = shape.columns.iter().map(|column| Some(u64::from(column.series.0)));
        flushed.batch.push(index, Instant { deadline: None, time_us: 1 }, values).unwrap();
    }
    flushed
}

/// Sends all that may be sent.
fn send_all(link: &mut Link) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    while let Some(send) = link.next_send() {
        sent.push(send.bytes().to_vec());
        link.sent(0);
    }
    sent
}

fn refused(sequence: u64) -> ToAgent {
    ToAgent::Refused { reason: "no".into(), versions: (1, 1), frame: Some((SESSION, sequence)) }
}

#[test]
fn what_is_too_much_for_one_frame_comes_in_several_in_order() {
    let mut link = link();
    let columns = u32::try_from(limits::BLOCK_COLUMNS).unwrap();
    let flushed = flushed(16, columns);
    link.take(&flushed, 0);
    let frames: Vec<_> = send_all(&mut link).iter().map(|bytes| Frame::decode(bytes).unwrap()).collect();
    assert!(frames.len() > 1);
    let mut known = HashSet::new();
    for (sequence, frame) in (1..).zip(&frames) {
        assert_eq!(frame.sequence, sequence);
        known.extend(frame.dictionary.iter().filter_map(|entry| match entry {
            Entry::Shape(id, _) => Some(*id),
            Entry::Session(_) | Entry::Metric(..) | Entry::Job(..) | Entry::Series(..) => None,
        }));
        assert!(frame.blocks.iter().all(|block| known.contains(&block.shape)));
    }
    let samples: usize = frames.iter().map(Frame::samples).sum();
    assert_eq!((samples, known.len()), (flushed.batch.samples(), 16));
}

#[test]
fn the_oldest_frame_is_given_up_when_it_is_refused_again_and_again() {
    let mut link = link();
    (0..3).for_each(|_| link.take(&flushed(1, 1), 0));
    assert_eq!(send_all(&mut link).len(), 3);
    // Of the second it is not known yet whether it would be taken in its turn.
    for _ in 0..REFUSALS {
        link.hear(refused(2), 0);
    }
    assert!(send_all(&mut link).is_empty());
    for _ in 1..REFUSALS {
        link.hear(refused(1), 0);
        assert_eq!(send_all(&mut link).len(), 3);
    }
    let given_up = Heard::GivenUp { sequence: 1, samples: 1, reason: "no".into() };
    assert_eq!(link.hear(refused(1), 0), given_up);
    assert_eq!(link.hear(refused(1), 0), Heard::Ordinary);
    let sent = send_all(&mut link);
    let Ok(ToCollector::Skipped { first: 1, last: 1, lost, reason, .. }) = ToCollector::decode(&sent[0])
    else {
        panic!("{sent:?}")
    };
    assert_eq!((reason, sent.len(), link.counts().samples_refused), (SkipReason::Refused, 3, 1));
    assert_eq!(lost, [Lost { job: None, source: "stat".try_into().unwrap(), samples: 1 }]);
}

#[test]
fn a_new_connection_is_reason_enough_to_send_again() {
    let mut link = link();
    link.take(&flushed(1, 1), 0);
    let first = send_all(&mut link);
    link.passed(4 * SECOND_NS);
    assert!(send_all(&mut link).is_empty());
    link.connected();
    assert_eq!(send_all(&mut link), first);
    link.passed(6 * SECOND_NS);
    assert_eq!(send_all(&mut link), first);
}
