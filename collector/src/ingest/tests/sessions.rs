//! Tests of sessions, their jobs and their peers.

use std::sync::Arc;

use polymeter_proto::ledger::{Event, LedgerEntry};
use polymeter_proto::series::{JobHandle, SessionId};
use polymeter_proto::wire::dictionary::Announced;
use polymeter_proto::wire::message::{Lost, SkipReason, ToAgent, ToCollector};

use super::super::{Ingest, Verdict};
use super::{NOW_US, SESSION, accepted, at, descriptor, frame, opened, peer, shape, source};
use crate::agents::AgentInfo;
use crate::limits;
use crate::refusal::RefusalKind;
use crate::session_messages::Peer;

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
fn changes_of_node_and_jobs_are_returned_once() {
    let (mut ingest, mut announced, frames) = opened(0, 1);
    accepted(ingest.frame(&peer(), frames[0].clone(), at(0)));
    let jobs =
        |agent: &AgentInfo| -> Vec<String> { agent.jobs.iter().map(|(job, _)| job.to_string()).collect() };
    let changes = ingest.take_changes().unwrap();
    assert_eq!((changes.session, changes.node.as_str(), jobs(&changes)), (SESSION, "n1", Vec::new()));
    let of_job = frame(2, &shape(2, Some(5)), &[NOW_US], &mut announced, &[]);
    accepted(ingest.frame(&peer(), of_job, at(0)));
    assert_eq!(jobs(&ingest.take_changes().unwrap()), ["1"]);
    accepted(ingest.frame(&peer(), frame(3, &shape(1, None), &[NOW_US], &mut announced, &[]), at(0)));
    assert_eq!(ingest.take_changes(), None);
    let elsewhere = Peer::from(b"elsewhere".as_slice());
    let ends = [Event::JobEnded { job: JobHandle(5), at_us: NOW_US }];
    assert!(matches!(ingest.frame(&elsewhere, frames[0].clone(), at(0)), Verdict::Repeated(_)));
    assert_eq!(ingest.take_changes().unwrap().peer, elsewhere, "it has reconnected");
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
    let dictionary = ToCollector::Dictionary { session: SESSION, entries: announced.all(&descriptor()) };
    assert!(ingest.open(SESSION, &own("n2"), 0, at(0)));
    assert!(is_refused(ingest.frame(&own("n2"), frames[0].clone(), at(0))));
    assert!(is_refused(ingest.message(&own("n2"), dictionary, at(0))));
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
