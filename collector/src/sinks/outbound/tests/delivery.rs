//! Tests of the answers of receivers.

use std::time::Duration;

use super::fixture::{BEGIN_MS, Fixture, accept, assert_complete, offer, send, times, times_of};
use super::receiver::{Receiver, Reply};
use crate::sinks::outbound::counters::DropReason;
use crate::sinks::remote_write::{AUTO, V1, V2};
use crate::sinks::testing::TestSession;

#[test]
fn all_samples_arrive_in_order_over_persistent_connections() {
    let (fixture, sink) = send([], Reply::V1, &V1);
    assert_complete(&fixture);
    assert_eq!((fixture.counters.retries.get(), fixture.counters.dropped(DropReason::Refused)), (0, 0));
    let (requests, connections, facts) = fixture.receiver.wait_for(|contents| {
        let facts = contents.samples.keys().find(|name| name[0].1 == "polymeter_job_info").cloned();
        Some((contents.heads.len(), contents.connections, facts.unwrap()))
    });
    assert!(requests >= 10 && connections <= 2, "{requests} {connections}");
    assert_eq!(facts[1..], [("jobid", "42"), ("node", "n1")].map(|(n, v)| (n.to_owned(), v.to_owned())));
    assert!(fixture.counters.sent.get() > 600 && fixture.counters.series.get() == 3);
    drop(sink);
}

#[test]
fn failures_of_the_receiver_cost_no_sample() {
    let replies = [
        Reply::Status(500, ""),
        Reply::Close,
        Reply::Status(429, "Retry-After: 0\r\n"),
        Reply::Status(503, "Retry-After: Sun, 06 Nov 1994 08:49:37 GMT\r\n"),
        Reply::V1,
        Reply::Close,
    ];
    let (fixture, _sink) = send(replies, Reply::V1, &V1);
    assert_complete(&fixture);
    assert!(fixture.counters.retries.get() >= 5);
    assert_eq!(fixture.counters.dropped(DropReason::Refused), 0);
}

#[test]
fn a_repeated_request_is_refused_and_nothing_is_stored_twice() {
    let (fixture, mut sink) = send([Reply::Cut, Reply::V1, Reply::Cut], Reply::V1, &V1);
    assert_complete(&fixture);
    // The last sample of a series may be repeated without a refusal.
    fixture.drive_until(&mut sink, |counters| counters.dropped(DropReason::Refused) > 0);
    assert!(fixture.counters.dropped(DropReason::Refused) <= 130);
}

#[test]
fn only_the_bad_samples_of_a_refused_request_are_dropped() {
    let fixture = Fixture::new(Receiver::start([], Reply::V1), &V1);
    let name = [("__name__", "polymeter_cpu_usage_total"), ("device", "a"), ("jobid", "42"), ("node", "n1")];
    let name: Vec<_> = name.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    // The receiver has newer samples of the series already.
    fixture
        .receiver
        .wait_for(|contents| contents.samples.insert(name.clone(), vec![(BEGIN_MS + 2, 0)]).or(Some(vec![])));
    let mut sink = fixture.sink();
    accept(&mut sink, TestSession::new(1, &["a", "b"]).frame(times(BEGIN_MS, 20)));
    fixture.drive(&mut sink, |contents| {
        (times_of(contents, "a").last() == Some(&(BEGIN_MS + 19)) && times_of(contents, "b").len() == 20)
            .then_some(())
    });
    fixture.receiver.wait_for(|contents| {
        assert_eq!(times_of(contents, "a"), (BEGIN_MS + 2..BEGIN_MS + 20).collect::<Vec<_>>());
        Some(())
    });
    fixture.drive_until(&mut sink, |counters| counters.dropped(DropReason::Refused) == 3);
}

#[test]
fn other_refusals_drop_the_request_without_a_repetition() {
    let fixture = Fixture::new(Receiver::start([Reply::Status(422, "")], Reply::V1), &V1);
    let mut sink = fixture.sink();
    accept(&mut sink, TestSession::new(1, &["a"]).frame(times(BEGIN_MS, 10)));
    fixture.drive_until(&mut sink, |counters| counters.dropped(DropReason::Refused) > 0);
    assert_eq!(fixture.counters.retries.get(), 0);
}

#[test]
fn the_version_is_negotiated() {
    for (reply, protocol, is_v2) in
        [(Reply::V2, &AUTO, true), (Reply::V2, &V2, true), (Reply::V1, &AUTO, false), (Reply::V2, &V1, false)]
    {
        let (fixture, _sink) = send([], reply, protocol);
        assert_complete(&fixture);
        let last = fixture.receiver.wait_for(|contents| contents.heads.last().cloned());
        assert_eq!(last.contains("write.v2.request"), is_v2, "{}: {last}", protocol.version);
    }
    let (fixture, _sink) = send([Reply::Status(415, "")], Reply::V1, &AUTO);
    assert_complete(&fixture);
    assert_eq!(fixture.counters.retries.get(), 0);
}

#[test]
fn a_receiver_that_hangs_delays_nothing_and_costs_no_sample() {
    let receiver = Receiver::start([], Reply::Hang);
    let mut fixture = Fixture::new(receiver, &V1);
    fixture.config.timeout = Duration::from_millis(50);
    let mut sink = fixture.sink();
    offer(&mut sink, &["a"]);
    fixture.drive_until(&mut sink, |counters| counters.retries.get() >= 3);
    assert!(fixture.counters.pending.get() >= 300 && fixture.counters.lag_seconds.get() >= 0.0);
    // It is stopped while the receiver hangs, and continues with its spool.
    drop(sink);
    fixture.receiver.wait_for(|contents| contents.usual.replace(Reply::V1));
    fixture.config.timeout = Duration::from_secs(60);
    let mut sink = fixture.sink();
    fixture.drive(&mut sink, |contents| (times_of(contents, "a").len() == 300).then_some(()));
}
