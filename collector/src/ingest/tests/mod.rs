//! Tests of the rules for accepting frames.

mod content;
mod order;
mod sessions;
mod windows;

use std::sync::Arc;
use std::time::Duration;

use polymeter_proto::batch::{Batch, Column, Instant, Job, Shape};
use polymeter_proto::ledger::Event;
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    Identifier, JobDescriptor, JobHandle, Kind, Labels, MetricDescriptor, MetricId, Number, SeriesId,
    SessionDescriptor, SessionId, ShapeId, Unit,
};
use polymeter_proto::wire::dictionary::{Announced, Entry};
use polymeter_proto::wire::frame::{Encoder, Extras, Frame};
use polymeter_service::clock::Now;
use polymeter_store::accepted::Accepted;

use super::{Ingest, Verdict};
use crate::session_messages::Peer;

const SESSION: SessionId = SessionId(7);
const NOW_US: i64 = 1_700_000_000_000_000;

fn at(millis: u64) -> Now {
    Now { wall_us: NOW_US, since_start: Duration::from_millis(millis) }
}

fn peer() -> Peer {
    Peer::from(b"peer".as_slice())
}

fn descriptor() -> SessionDescriptor {
    SessionDescriptor {
        node: "n1".try_into().unwrap(),
        agent_version: "1".try_into().unwrap(),
        started_us: NOW_US,
        processors: Default::default(),
    }
}

fn source() -> Identifier {
    "cpu.stat".try_into().unwrap()
}

fn metric() -> MetricDescriptor {
    MetricDescriptor {
        name: MetricName::new("cpu.usage").unwrap(),
        unit: Unit::Count,
        kind: Kind::Counter,
        number: Number::Unsigned,
    }
}

fn shape(id: u32, job: Option<u32>) -> Arc<Shape> {
    let column = Column { series: SeriesId(id), metric: (MetricId(1), metric()), labels: Labels::default() };
    let job = job.map(|handle| {
        let descriptor = JobDescriptor {
            job_id: "1".try_into().unwrap(),
            cluster: None,
            owner_uid: None,
            owner: None,
            started_us: NOW_US,
        };
        Arc::new(Job { handle: JobHandle(handle), descriptor })
    });
    Arc::new(Shape {
        id: ShapeId(id),
        job,
        source: source(),
        period: Period::SECOND,
        window: None,
        columns: vec![column],
    })
}

/// Frame of the session with a sample at each of `times_us`, and all entries that are not in `announced`.
fn frame(
    sequence: u64,
    shape: &Arc<Shape>,
    times_us: &[i64],
    announced: &mut Announced,
    events: &[Event],
) -> Frame {
    let mut dictionary = if sequence == 1 { vec![Entry::Session(descriptor())] } else { Vec::new() };
    announced.announce(shape, &mut dictionary);
    let mut batch = Batch::with_capacity(16);
    let index = batch.add_shape(shape);
    for time_us in times_us {
        let values = shape.columns.iter().map(|_| Some(42));
        batch.push(index, Instant { deadline: None, time_us: *time_us }, values).unwrap();
    }
    let mut bytes = Vec::new();
    let extras = Extras { dictionary: &dictionary, events, ..Extras::default() };
    Encoder::default().encode(&mut bytes, SESSION, sequence, &batch, extras).unwrap();
    Frame::decode(&bytes).unwrap()
}

/// Ingest whose session is open after `committed`, and frames 1.. of one sample each.
fn opened(committed: u64, frames: u64) -> (Ingest, Announced, Vec<Frame>) {
    let mut announced = Announced::default();
    let frames = (1..=frames)
        .map(|sequence| frame(sequence, &shape(1, None), &[NOW_US], &mut announced, &[]))
        .collect();
    let mut ingest = Ingest::default();
    assert!(ingest.open(SESSION, &peer(), committed, at(0)));
    (ingest, announced, frames)
}

fn accepted(verdict: Verdict) -> Accepted {
    match verdict {
        Verdict::Accepted(accepted) => accepted,
        other @ (Verdict::Rejected(..)
        | Verdict::Repeated(_)
        | Verdict::Ask(_)
        | Verdict::Refused(_)
        | Verdict::Nothing) => panic!("{other:?}"),
    }
}

fn rejected(verdict: Verdict) -> Accepted {
    rejection(verdict).0
}

/// Accepted part, and number of refused events.
fn rejection(verdict: Verdict) -> (Accepted, usize) {
    match verdict {
        Verdict::Rejected(accepted, rejection) => (accepted, rejection.events),
        other @ (Verdict::Accepted(_)
        | Verdict::Repeated(_)
        | Verdict::Ask(_)
        | Verdict::Refused(_)
        | Verdict::Nothing) => panic!("{other:?}"),
    }
}
