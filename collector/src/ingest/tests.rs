use std::sync::Arc;
use std::time::Duration;

use polymeter_proto::batch::{Batch, Column, Instant, Job, Shape};
use polymeter_proto::ledger::{Event, LedgerEntry};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    Identifier, JobDescriptor, JobHandle, Kind, Labels, MetricDescriptor, MetricId, Number, SeriesDescriptor,
    SeriesId, SessionDescriptor, SessionId, ShapeDescriptor, ShapeId, Unit,
};
use polymeter_proto::wire::dictionary::{Announced, Entry};
use polymeter_proto::wire::frame::{Encoder, Extras, Frame};
use polymeter_proto::wire::message::{Lost, SkipReason, ToAgent, ToCollector};
use polymeter_service::clock::Now;
use polymeter_store::accepted::{Accepted, LossReason, LossRecord, OutOfRange};

use super::session::RequestTimes;
use super::{Ingest, OutOfRangePolicy, TimeRange, Verdict, times};
use crate::agents::AgentInfo;
use crate::limits;
use crate::messages::Peer;
use crate::refusal::RefusalKind;

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
    Arc::new(Shape { id: ShapeId(id), job, source: source(), period: Period::SECOND, columns: vec![column] })
}

/// Returns a frame of the session with a sample at each of `times_us`, and all entries that are not in
/// `announced`.
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
        batch.push(index, Instant { deadline: None, time_us: *time_us }, std::iter::once(Some(42))).unwrap();
    }
    let mut bytes = Vec::new();
    let extras = Extras { dictionary: &dictionary, ledger: &[], events };
    Encoder::default().encode(&mut bytes, SESSION, sequence, &batch, extras).unwrap();
    Frame::decode(&bytes).unwrap()
}

/// Returns an ingest whose session is open after `committed`, and frames 1.. of one sample each.
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
    match verdict {
        Verdict::Rejected(accepted, _) => accepted,
        other @ (Verdict::Accepted(_)
        | Verdict::Repeated(_)
        | Verdict::Ask(_)
        | Verdict::Refused(_)
        | Verdict::Nothing) => panic!("{other:?}"),
    }
}

#[test]
fn accepts_frames_in_order_and_no_repetitions() {
    let (mut ingest, _, frames) = opened(0, 2);
    let first = accepted(ingest.frame(&peer(), frames[0].clone(), at(0)));
    assert_eq!((first.sequence, first.rows(), first.samples[0].iter().count()), (1, 1, 1));
    // Nothing is committed yet, so that there is nothing to acknowledge.
    assert!(matches!(ingest.frame(&peer(), frames[0].clone(), at(0)), Verdict::Repeated(None)));
    accepted(ingest.frame(&peer(), frames[1].clone(), at(0)));
    assert_eq!(ingest.committed(SESSION, 2), Some((peer(), ToAgent::Ack { session: SESSION, through: 2 })));
    let Verdict::Repeated(Some(ack)) = ingest.frame(&peer(), frames[1].clone(), at(0)) else {
        panic!("not repeated")
    };
    assert_eq!(ack, ToAgent::Ack { session: SESSION, through: 2 });
}

#[test]
fn restarted_collector_requests_frames_and_dictionary() {
    let (mut ingest, _, frames) = opened(1, 3);
    let verdict = ingest.frame(&peer(), frames[2].clone(), at(0));
    assert!(matches!(verdict, Verdict::Ask(ToAgent::Resend { from: 2, .. })), "{verdict:?}");
    // The requested frame arrives, and must not count as another frame out of order.
    let verdict = ingest.frame(&peer(), frames[1].clone(), at(1));
    assert!(matches!(verdict, Verdict::Ask(ToAgent::NeedDictionary { .. })), "{verdict:?}");
}

#[test]
fn requests_a_gap_once_a_second() {
    let (mut ingest, _, frames) = opened(0, 4);
    let resend = |verdict| matches!(verdict, Verdict::Ask(ToAgent::Resend { session: SESSION, from: 1 }));
    assert!(resend(ingest.frame(&peer(), frames[1].clone(), at(0))));
    assert!(matches!(ingest.frame(&peer(), frames[2].clone(), at(999)), Verdict::Nothing));
    assert!(resend(ingest.frame(&peer(), frames[3].clone(), at(1000))));
    // A new connection gets a request at once, since the last request went to the old one.
    assert!(resend(ingest.frame(&Peer::from(b"anew".as_slice()), frames[3].clone(), at(1001))));
    accepted(ingest.frame(&peer(), frames[0].clone(), at(1002)));
    accepted(ingest.frame(&peer(), frames[1].clone(), at(1002)));
}

#[test]
fn requests_unknown_ids_and_then_accepts_the_frame() {
    let (mut ingest, announced, frames) = opened(1, 3);
    let ask = |verdict| matches!(verdict, Verdict::Ask(ToAgent::NeedDictionary { session: SESSION }));
    assert!(ask(ingest.frame(&peer(), frames[1].clone(), at(0))));
    assert!(matches!(ingest.frame(&peer(), frames[2].clone(), at(1)), Verdict::Nothing));
    let dictionary = ToCollector::Dictionary { session: SESSION, entries: announced.all(&descriptor()) };
    assert!(matches!(ingest.message(&peer(), dictionary.clone(), at(2)), Verdict::Nothing));
    accepted(ingest.frame(&peer(), frames[1].clone(), at(3)));
    // A repeated dictionary is accepted.
    assert!(matches!(ingest.message(&peer(), dictionary, at(4)), Verdict::Nothing));
    accepted(ingest.frame(&peer(), frames[2].clone(), at(5)));
}

#[test]
fn ids_that_are_never_announced_become_a_loss() {
    let (mut ingest, _, frames) = opened(1, 2);
    for round in 0..u64::from(limits::DICTIONARIES_PER_FRAME) {
        let now = at(round * 2000);
        assert!(
            matches!(
                ingest.frame(&peer(), frames[1].clone(), now),
                Verdict::Ask(ToAgent::NeedDictionary { .. })
            ),
            "{round}"
        );
        let dictionary =
            ToCollector::Dictionary { session: SESSION, entries: vec![Entry::Session(descriptor())] };
        assert!(matches!(ingest.message(&peer(), dictionary, now), Verdict::Nothing));
    }
    // The content that does not need them is stored.
    let mut last = frames[1].clone();
    let tally = |job| LedgerEntry { job, source: "x".try_into().unwrap(), tally: Default::default() };
    last.ledger = vec![tally(Some(JobHandle(9))), tally(None)];
    last.events = vec![Event::JobEnded { job: JobHandle(9), at_us: NOW_US }];
    let lost = rejected(ingest.frame(&peer(), last, at(60_000)));
    assert_eq!((lost.sequence, lost.losses[0].samples, lost.losses[0].reason), (2, 1, LossReason::UnknownId));
    assert_eq!((lost.tallies.len(), lost.job_ends.len(), lost.rows()), (1, 0, 0));
}

#[test]
fn contradictions_are_a_loss_and_the_session_continues() {
    let (mut ingest, mut announced, frames) = opened(0, 1);
    accepted(ingest.frame(&peer(), frames[0].clone(), at(0)));
    let mut columns = frame(2, &shape(1, None), &[NOW_US], &mut announced, &[]);
    columns.blocks[0].shape_columns = 2;
    assert_eq!(rejected(ingest.frame(&peer(), columns, at(0))).losses[0].reason, LossReason::Contradiction);
    let mut redefined = frame(3, &shape(1, None), &[NOW_US], &mut announced, &[]);
    redefined.dictionary =
        vec![Entry::Metric(MetricId(1), MetricDescriptor { unit: Unit::Bytes, ..metric() })];
    assert_eq!(rejected(ingest.frame(&peer(), redefined, at(0))).losses[0].samples, 1);
    accepted(ingest.frame(&peer(), frame(4, &shape(2, None), &[NOW_US], &mut announced, &[]), at(0)));
}

#[test]
fn requests_the_dictionary_for_entries_with_unknown_references() {
    let (mut ingest, mut announced, frames) = opened(0, 1);
    accepted(ingest.frame(&peer(), frames[0].clone(), at(0)));
    let series = SeriesDescriptor { metric: MetricId(9), job: None, labels: Labels::default() };
    let shape_of_nothing = ShapeDescriptor { source: source(), series: vec![SeriesId(9)] };
    for entry in [Entry::Series(SeriesId(9), series), Entry::Shape(ShapeId(9), shape_of_nothing)] {
        let mut next = frame(2, &shape(1, None), &[NOW_US], &mut announced, &[]);
        next.dictionary.push(entry);
        ingest.sessions.get_mut(&SESSION).unwrap().requested = RequestTimes::default();
        assert!(matches!(ingest.frame(&peer(), next, at(0)), Verdict::Ask(ToAgent::NeedDictionary { .. })));
    }
}

#[test]
fn skipped_frames_advance_the_session() {
    let (mut ingest, mut announced, frames) = opened(0, 1);
    let skipped = |first, last, reason| {
        let lost = vec![Lost { job: None, source: source(), samples: 5 }];
        ToCollector::Skipped { session: SESSION, first, last, reason, span_us: (1, 2), lost }
    };
    // Before the session entry there is no node for which a loss could be counted.
    assert!(matches!(
        ingest.message(&peer(), skipped(1, 2, SkipReason::OutboxFull), at(0)),
        Verdict::Ask(ToAgent::NeedDictionary { .. })
    ));
    accepted(ingest.frame(&peer(), frames[0].clone(), at(0)));
    assert!(matches!(
        ingest.message(&peer(), skipped(3, 4, SkipReason::OutboxFull), at(0)),
        Verdict::Ask(ToAgent::Resend { from: 2, .. })
    ));
    let loss = accepted(ingest.message(&peer(), skipped(1, 4, SkipReason::OutboxFull), at(0)));
    assert_eq!((loss.sequence, loss.losses.len(), loss.losses[0].reason), (4, 1, LossReason::OutboxFull));
    assert!(matches!(
        ingest.message(&peer(), skipped(2, 4, SkipReason::OutboxFull), at(0)),
        Verdict::Repeated(_)
    ));
    let stored = accepted(ingest.message(&peer(), skipped(5, 9, SkipReason::AlreadyAcknowledged), at(0)));
    assert_eq!((stored.sequence, stored.follows, stored.losses.len()), (9, 4, 1));
    assert_eq!((stored.losses[0].reason, stored.losses[0].samples), (LossReason::StoreReplaced, 0));
    assert!(matches!(
        ingest.message(&peer(), skipped(10, u64::MAX, SkipReason::OutboxFull), at(0)),
        Verdict::Refused(_)
    ));
    assert!(matches!(
        ingest.message(&peer(), skipped(11, 10, SkipReason::OutboxFull), at(0)),
        Verdict::Refused(_)
    ));
    accepted(ingest.frame(&peer(), frame(10, &shape(1, None), &[NOW_US], &mut announced, &[]), at(0)));
}

/// Returns the current time, and times just too old, just too far ahead, and just not too old.
fn on_both_sides_of(range: TimeRange) -> [i64; 4] {
    let (age_us, skew_us) = (times::micros(range.max_age), times::micros(range.max_skew));
    [NOW_US, NOW_US - age_us - 1, NOW_US + skew_us + 1, NOW_US - age_us]
}

#[test]
fn samples_out_of_range_are_counted_as_lost() {
    let (mut ingest, mut announced, _) = opened(0, 0);
    let times = on_both_sides_of(TimeRange::default());
    let kept = accepted(ingest.frame(&peer(), frame(1, &shape(1, None), &times, &mut announced, &[]), at(0)));
    assert_eq!(kept.samples[0].times_us, [times[0], times[3]]);
    assert_eq!(kept.rows(), 2);
    let [LossRecord { samples: 2, reason: LossReason::Clock, span_us, line: Some(of) }] = &kept.losses[..]
    else {
        panic!("{:?}", kept.losses)
    };
    assert_eq!((*span_us, of.source.as_str()), ((times[1], times[2]), source().as_str()));
    assert_eq!((kept.out_of_range.unwrap().samples, kept.rows_quarantined()), (2, 0));
}

#[test]
fn samples_out_of_range_are_quarantined_if_configured() {
    let (max_age, max_skew) = (Duration::from_secs(3600), Duration::from_secs(60));
    let range = TimeRange { max_age, max_skew, out_of_range: OutOfRangePolicy::Quarantine };
    let (mut ingest, mut announced) = (Ingest::new(range), Announced::default());
    assert!(ingest.open(SESSION, &peer(), 0, at(0)));
    let times = on_both_sides_of(range);
    let with_job = frame(1, &shape(1, Some(3)), &times, &mut announced, &[]);
    let kept = accepted(ingest.frame(&peer(), with_job, at(0)));
    assert_eq!(kept.samples[0].times_us, [times[0], times[3]]);
    assert_eq!(kept.quarantined[0].times_us, [times[1], times[2]]);
    assert_eq!((kept.rows(), kept.rows_quarantined(), kept.losses.len()), (2, 2, 0));
    assert_eq!(kept.out_of_range, Some(OutOfRange { samples: 2, span_us: (times[1], times[2]) }));
    assert_eq!(
        (kept.quarantined[0].line.source.as_str(), kept.quarantined[0].line.job.is_some()),
        (source().as_str(), true)
    );
    // If the store refuses the frame, they are lost with the others.
    assert_eq!(kept.as_loss(LossReason::StoreRefused).losses[0].samples, 4);
    // Times that no clock has, and times that every clock can have.
    let nonsense = frame(2, &shape(1, Some(3)), &[i64::MIN, i64::MAX], &mut announced, &[]);
    let kept = accepted(ingest.frame(&peer(), nonsense, at(0)));
    assert_eq!((kept.rows(), kept.rows_quarantined()), (0, 2));
    let sound = frame(3, &shape(1, Some(3)), &[NOW_US], &mut announced, &[]);
    let kept = accepted(ingest.frame(&peer(), sound, at(0)));
    assert_eq!((kept.rows(), kept.rows_quarantined(), kept.out_of_range), (1, 0, None));
}

#[test]
fn an_ended_job_is_forgotten_after_its_frame() {
    let (mut ingest, mut announced, _) = opened(0, 0);
    let ended = [Event::JobEnded { job: JobHandle(3), at_us: NOW_US }];
    let last = accepted(ingest.frame(
        &peer(),
        frame(1, &shape(1, Some(3)), &[NOW_US], &mut announced, &ended),
        at(0),
    ));
    assert_eq!((last.rows(), last.job_ends.len()), (1, 1));
    // The series are removed, but tallies are still accepted.
    let mut late = frame(2, &shape(1, Some(3)), &[NOW_US], &mut announced, &[]);
    late.dictionary.clear();
    let entry =
        LedgerEntry { job: Some(JobHandle(3)), source: "x".try_into().unwrap(), tally: Default::default() };
    late.ledger.push(entry);
    assert!(matches!(
        ingest.frame(&peer(), late.clone(), at(0)),
        Verdict::Ask(ToAgent::NeedDictionary { .. })
    ));
    late.blocks.clear();
    assert_eq!(accepted(ingest.frame(&peer(), late, at(0))).tallies.len(), 1);
}

#[test]
fn sessions_of_a_peer_are_bounded_and_uncommitted_ones_stay() {
    let (mut ingest, _, frames) = opened(0, 1);
    accepted(ingest.frame(&peer(), frames[0].clone(), at(0)));
    for session in 100..200 {
        assert!(ingest.open(SessionId(session), &peer(), 0, at(session)));
    }
    assert_eq!(ingest.sessions.len(), limits::SESSIONS_PER_PEER);
    assert!(ingest.knows(SESSION) && ingest.knows(SessionId(199)) && !ingest.knows(SessionId(100)));
    ingest.committed(SESSION, 1);
    assert!(ingest.open(SessionId(200), &peer(), 0, at(200)));
    assert!(!ingest.knows(SESSION));
    assert_eq!(ingest.dictionary_bytes, 0);
}

#[test]
fn frames_stored_by_another_collector_are_not_requested() {
    let (mut ingest, _, frames) = opened(0, 3);
    accepted(ingest.frame(&peer(), frames[0].clone(), at(0)));
    assert_eq!(ingest.committed(SESSION, 2), Some((peer(), ToAgent::Ack { session: SESSION, through: 2 })));
    assert!(matches!(ingest.frame(&peer(), frames[1].clone(), at(0)), Verdict::Repeated(Some(_))));
    accepted(ingest.frame(&peer(), frames[2].clone(), at(0)));
}

#[test]
fn changes_of_node_and_jobs_are_returned_once() {
    let (mut ingest, mut announced, frames) = opened(0, 1);
    accepted(ingest.frame(&peer(), frames[0].clone(), at(0)));
    let jobs = |presence: &AgentInfo| -> Vec<String> {
        presence.jobs.iter().map(|(job, _)| job.to_string()).collect()
    };
    let news = ingest.take_changes().unwrap();
    assert_eq!((news.session, news.node.as_str(), jobs(&news)), (SESSION, "n1", Vec::new()));
    let of_job = frame(2, &shape(2, Some(5)), &[NOW_US], &mut announced, &[]);
    accepted(ingest.frame(&peer(), of_job, at(0)));
    assert_eq!(jobs(&ingest.take_changes().unwrap()), ["1"]);
    accepted(ingest.frame(&peer(), frame(3, &shape(1, None), &[NOW_US], &mut announced, &[]), at(0)));
    assert_eq!(ingest.take_changes(), None);
    let elsewhere = Peer::from(b"elsewhere".as_slice());
    let ends = [Event::JobEnded { job: JobHandle(5), at_us: NOW_US }];
    assert!(matches!(ingest.frame(&elsewhere, frames[0].clone(), at(0)), Verdict::Repeated(_)));
    assert_eq!(ingest.take_changes().unwrap().peer, elsewhere, "it has connected anew");
    accepted(ingest.frame(&elsewhere, frame(4, &shape(1, None), &[NOW_US], &mut announced, &ends), at(0)));
    assert_eq!(jobs(&ingest.take_changes().unwrap()), [""; 0]);
}

#[test]
fn a_key_of_one_node_cannot_send_data_of_another() {
    let own = |node: &str| peer().bound_to(Some(Arc::new(node.try_into().unwrap())));
    let is_refused =
        |verdict| matches!(verdict, Verdict::Refused(refusal) if refusal.kind == RefusalKind::Node);
    let (mut ingest, mut announced) = (Ingest::default(), Announced::default());
    let frames: Vec<_> =
        (1..=2).map(|sequence| frame(sequence, &shape(1, None), &[NOW_US], &mut announced, &[])).collect();
    let dictionary = || ToCollector::Dictionary { session: SESSION, entries: announced.all(&descriptor()) };
    assert!(ingest.open(SESSION, &own("n2"), 0, at(0)));
    assert!(is_refused(ingest.frame(&own("n2"), frames[0].clone(), at(0))));
    assert!(is_refused(ingest.message(&own("n2"), dictionary(), at(0))));
    // The node itself is accepted, and the refused messages have left no state.
    assert!(matches!(ingest.frame(&own("n1"), frames[0].clone(), at(0)), Verdict::Accepted(_)));
    assert!(is_refused(ingest.frame(&own("n2"), frames[1].clone(), at(0))), "the session is another's");
    let skipped = ToCollector::Skipped {
        session: SESSION,
        first: 2,
        last: 9,
        reason: SkipReason::OutboxFull,
        span_us: (NOW_US, NOW_US),
        lost: vec![Lost { job: None, source: source(), samples: 1 }],
    };
    assert!(is_refused(ingest.message(&own("n2"), skipped, at(0))));
    // A key that is not bound to a node may send data of any node.
    assert!(matches!(ingest.frame(&peer(), frames[1].clone(), at(0)), Verdict::Accepted(_)));
}
