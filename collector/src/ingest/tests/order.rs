//! Tests of the order of frames, of repetitions, and of requests to the agent.

use polymeter_proto::wire::message::{Lost, SkipReason, ToAgent, ToCollector};
use polymeter_store::accepted::LossReason;

use super::super::Verdict;
use super::{NOW_US, SESSION, accepted, at, descriptor, frame, opened, peer, shape, source};
use crate::session_messages::Peer;

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
    let verdict = ingest.frame(&peer(), frames[1].clone(), at(0));
    assert!(matches!(verdict, Verdict::Ask(ToAgent::NeedDictionary { session: SESSION })));
    assert!(matches!(ingest.frame(&peer(), frames[2].clone(), at(1)), Verdict::Nothing));
    let dictionary = ToCollector::Dictionary { session: SESSION, entries: announced.all(&descriptor()) };
    assert!(matches!(ingest.message(&peer(), dictionary.clone(), at(2)), Verdict::Nothing));
    accepted(ingest.frame(&peer(), frames[1].clone(), at(3)));
    // A repeated dictionary is accepted.
    assert!(matches!(ingest.message(&peer(), dictionary, at(4)), Verdict::Nothing));
    accepted(ingest.frame(&peer(), frames[2].clone(), at(5)));
}

fn skipped(first: u64, last: u64, reason: SkipReason) -> ToCollector {
    let lost = vec![Lost { job: None, source: source(), samples: 5 }];
    ToCollector::Skipped { session: SESSION, first, last, reason, span_us: (1, 2), lost }
}

#[test]
fn skipped_frames_advance_the_session() {
    let (mut ingest, mut announced, frames) = opened(0, 1);
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
    assert_eq!((stored.losses[0].reason, stored.losses[0].samples), (LossReason::StoreReplaced, 5));
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

#[test]
fn frames_stored_by_another_collector_are_not_requested() {
    let (mut ingest, _, frames) = opened(0, 3);
    accepted(ingest.frame(&peer(), frames[0].clone(), at(0)));
    assert_eq!(ingest.committed(SESSION, 2), Some((peer(), ToAgent::Ack { session: SESSION, through: 2 })));
    assert!(matches!(ingest.frame(&peer(), frames[1].clone(), at(0)), Verdict::Repeated(Some(_))));
    accepted(ingest.frame(&peer(), frames[2].clone(), at(0)));
}
