//! Tests of restarts of the collector and of the receiver.

use std::path::Path;
use std::time::Duration;

use polymeter_service::clock::realtime_us;
use polymeter_store::{ExtensionMode, OpenOptions, Store};

use super::fixture::{BEGIN_MS, Fixture, accept, times, times_of};
use super::receiver::{Contents, Receiver, Reply};
use crate::sinks::outbound::counters::DropReason;
use crate::sinks::remote_write::{V1, V2};
use crate::sinks::sink::{AcceptedRows, Sink};
use crate::sinks::testing::TestSession;

#[test]
fn a_killed_collector_sends_the_rest_from_the_spool_and_the_store() {
    let begin_ms = realtime_us() / 1000 - 60_000;
    for killed_at in [1, 4, 9] {
        let fixture = Fixture::new(Receiver::start([], Reply::V1), &V1);
        let options =
            OpenOptions { timescale: ExtensionMode::Off, may_create: true, ..OpenOptions::default() };
        let mut store = Store::open(&fixture.store(), &options).unwrap();
        let mut session = TestSession::new(1, &["a", "b"]);
        let mut sink = fixture.sink();
        for at in 0..10 {
            let frame = session.frame(times(begin_ms + at * 30, 30));
            store.commit(std::slice::from_ref(&frame)).unwrap();
            if at < killed_at {
                accept(&mut sink, frame);
                sink.tick();
            }
        }
        let count = |contents: &Contents| (times_of(contents, "a").len(), times_of(contents, "b").len());
        // The spool has something of each series.
        fixture.drive(&mut sink, |contents| (count(contents).0.min(count(contents).1) > 0).then_some(()));
        sink.kill();
        let mut sink = fixture.sink();
        let frame = session.frame(times(begin_ms + 300, 30));
        store.commit(std::slice::from_ref(&frame)).unwrap();
        accept(&mut sink, frame);
        fixture.drive(&mut sink, |contents| (count(contents) == (330, 330)).then_some(()));
        fixture.receiver.wait_for(|contents| {
            assert_eq!(times_of(contents, "a"), (begin_ms..begin_ms + 330).collect::<Vec<_>>());
            Some(())
        });
        assert!(fixture.counters.recovered.get() > 0 || killed_at == 10);
        assert_eq!(fixture.counters.dropped(DropReason::OutOfOrder), 0);
    }
}

#[test]
fn a_spool_belongs_to_one_collector_and_shards_may_change() {
    let mut fixture = Fixture::new(Receiver::start([], Reply::V1), &V1);
    let mut sink = fixture.sink();
    let mut session = TestSession::new(1, &["a", "b", "c", "d"]);
    accept(&mut sink, session.frame(times(BEGIN_MS, 30)));
    let error = fixture.sink().accept(&AcceptedRows::new(vec![])).unwrap_err();
    assert!(error.to_string().contains("another collector uses the spool"), "{error}");
    fixture.drive_until(&mut sink, |counters| counters.sent.get() >= 120 && counters.pending.get() == 0);
    drop(sink);
    fixture.config.shards = 5;
    let mut sink = fixture.sink();
    // The same samples again, and new ones.
    let mut again = TestSession::new(2, &["a", "b", "c", "d"]);
    accept(&mut sink, again.frame(times(BEGIN_MS, 40)));
    fixture.drive(&mut sink, |contents| {
        let is_sent = ["a", "b", "c", "d"].iter().all(|device| times_of(contents, device).len() == 40);
        is_sent.then_some(())
    });
    assert_eq!(fixture.counters.dropped(DropReason::Refused), 0);
    assert_eq!(
        fixture.counters.dropped(DropReason::OutOfOrder)
            + fixture.counters.dropped(DropReason::SameMillisecond),
        120
    );
    assert_eq!(shards(&fixture.config.spool), 5);
}

fn shards(spool: &Path) -> usize {
    std::fs::read_dir(spool).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
}

/// Kills a receiver as VictoriaMetrics, which forgets what it accepted.
#[test]
fn what_a_killed_receiver_forgot_is_sent_again() {
    for protocol in [&V1, &V2] {
        let usual = if protocol == &V1 { Reply::Unordered } else { Reply::UnorderedV2 };
        let mut fixture = Fixture::new(Receiver::start([], usual.clone()), protocol);
        fixture.config.resend_window = Duration::from_secs(600);
        let mut sink = fixture.sink();
        let mut session = TestSession::new(1, &["a", "b"]);
        for round in 0..3_i64 {
            accept(&mut sink, session.frame(times(BEGIN_MS + round * 100, 100)));
            let count = usize::try_from(round + 1).unwrap() * 100;
            fixture.drive(&mut sink, |contents| {
                let is_complete = ["a", "b"].iter().all(|device| times_of(contents, device).len() == count);
                is_complete.then_some(())
            });
            fixture.drive_until(&mut sink, |counters| counters.pending.get() == 0);
            fixture.receiver.restart();
        }
        // All shards notice it with their next request.
        accept(&mut sink, session.frame(times(BEGIN_MS + 300, 100)));
        fixture.drive(&mut sink, |contents| (times_of(contents, "a").len() == 400).then_some(()));
        fixture.drive(&mut sink, |contents| (times_of(contents, "b").len() == 400).then_some(()));
        assert!(fixture.counters.resent.get() >= 1_200, "{}", fixture.counters.resent.get());
        assert_eq!(fixture.counters.dropped(DropReason::Refused), 0);
        // The collector is killed together with the receiver.
        fixture.drive_until(&mut sink, |counters| counters.pending.get() == 0);
        sink.kill();
        fixture.receiver.restart();
        let mut sink = fixture.sink();
        fixture.drive(&mut sink, |contents| (times_of(contents, "a").len() == 400).then_some(()));
        fixture.drive(&mut sink, |contents| (times_of(contents, "b").len() == 400).then_some(()));
    }
}
