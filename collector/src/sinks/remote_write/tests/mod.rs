//! Tests of the whole sink with a receiver that answers as ordered.

mod receiver;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use polymeter_proto::ledger::{Cause, JobDetails, JobFacts, PlanChange};
use polymeter_service::clock::{Clock, realtime_us};
use polymeter_store::{OpenOptions, Store, StoreUrl, TimescaleMode};

use self::receiver::{Contents, Receiver, Reply};
use super::config::{Protocol, RemoteWriteConfig};
use super::counters::{Counters, DropReason};
use super::request::STALE;
use super::sink::RemoteWrite;
use crate::sinks::sink::{AcceptedRows, Sink};
use crate::sinks::testing::TestSession;

/// A sink, and the directory of its spool and its store.
struct Fixture {
    directory: tempfile::TempDir,
    config: RemoteWriteConfig,
    receiver: Receiver,
    counters: Counters,
}

impl Fixture {
    fn new(receiver: Receiver, protocol: Protocol) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = RemoteWriteConfig {
            protocol,
            spool: directory.path().join("spool"),
            batch_samples: 50,
            batch_wait: Duration::from_millis(10),
            shards: 2,
            timeout: Duration::from_secs(60),
            ..RemoteWriteConfig::new(format!("http://{}/write", receiver.address).parse().unwrap())
        };
        Self { directory, config, receiver, counters: Counters::default() }
    }

    fn store(&self) -> StoreUrl {
        StoreUrl::sqlite(self.directory.path().join("store.db"))
    }

    fn sink(&self) -> RemoteWrite {
        RemoteWrite::with_counters(self.config.clone(), self.store(), self.counters.clone(), Clock::start())
    }

    /// Calls `tick` until the receiver has what `is_done` wants.
    fn drive<T>(&self, sink: &mut RemoteWrite, mut is_done: impl FnMut(&Contents) -> Option<T>) -> T {
        loop {
            sink.tick();
            let mut result = None;
            self.receiver.wait_for(|contents| {
                result = is_done(contents);
                Some(())
            });
            if let Some(result) = result {
                return result;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Calls `tick` until `is_done`.
    fn drive_until(&self, sink: &mut RemoteWrite, mut is_done: impl FnMut(&Counters) -> bool) {
        while !is_done(&self.counters) {
            sink.tick();
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

/// Returns `count` times, one in each millisecond from `begin_ms` on.
fn times(begin_ms: i64, count: i64) -> Vec<i64> {
    (begin_ms..begin_ms + count).map(|ms| ms * 1000 + 7).collect()
}

fn accept(sink: &mut RemoteWrite, frame: polymeter_store::accepted::Accepted) {
    sink.accept(&AcceptedRows::new(vec![frame])).unwrap();
}

/// Returns the times of the samples of a device's counter, in milliseconds.
fn times_of(contents: &Contents, device: &str) -> Vec<i64> {
    let name =
        [("__name__", "polymeter_cpu_usage_total"), ("device", device), ("jobid", "42"), ("node", "n1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let samples = contents.samples.get(&name[..]).cloned().unwrap_or_default();
    samples.into_iter().filter(|(_, bits)| *bits != STALE).map(|(ms, _)| ms).collect()
}

const BEGIN_MS: i64 = 1_767_225_600_000;

/// Sends 300 samples of two series to a receiver, which gives `replies` first. Returns the sink after all are
/// accepted or refused.
fn send(
    replies: impl IntoIterator<Item = Reply>,
    usual: Reply,
    protocol: Protocol,
) -> (Fixture, RemoteWrite) {
    let fixture = Fixture::new(Receiver::start(replies, usual), protocol);
    let mut sink = fixture.sink();
    let mut session = TestSession::new(1, &["a", "b"]);
    for at in 0..10 {
        accept(&mut sink, session.frame(times(BEGIN_MS + at * 30, 30)));
    }
    fixture.drive(&mut sink, |contents| {
        (times_of(contents, "a").len() == 300 && times_of(contents, "b").len() == 300).then_some(())
    });
    fixture.drive_until(&mut sink, |counters| counters.pending.get() == 0);
    (fixture, sink)
}

fn assert_complete(fixture: &Fixture) {
    fixture.receiver.wait_for(|contents| {
        for device in ["a", "b"] {
            assert_eq!(times_of(contents, device), (BEGIN_MS..BEGIN_MS + 300).collect::<Vec<_>>());
        }
        Some(())
    });
}

#[test]
fn all_samples_arrive_in_order_over_persistent_connections() {
    let (fixture, sink) = send([], Reply::V1, Protocol::V1);
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
    let (fixture, _sink) = send(replies, Reply::V1, Protocol::V1);
    assert_complete(&fixture);
    assert!(fixture.counters.retries.get() >= 5);
    assert_eq!(fixture.counters.dropped(DropReason::Refused), 0);
}

#[test]
fn a_repeated_request_is_refused_and_nothing_is_stored_twice() {
    let (fixture, mut sink) = send([Reply::Cut, Reply::V1, Reply::Cut], Reply::V1, Protocol::V1);
    assert_complete(&fixture);
    // The last sample of a series may be repeated without a refusal.
    fixture.drive_until(&mut sink, |counters| counters.dropped(DropReason::Refused) > 0);
    assert!(fixture.counters.dropped(DropReason::Refused) <= 130);
}

#[test]
fn only_the_bad_samples_of_a_refused_request_are_dropped() {
    let fixture = Fixture::new(Receiver::start([], Reply::V1), Protocol::V1);
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
    let fixture = Fixture::new(Receiver::start([Reply::Status(422, "")], Reply::V1), Protocol::V1);
    let mut sink = fixture.sink();
    accept(&mut sink, TestSession::new(1, &["a"]).frame(times(BEGIN_MS, 10)));
    fixture.drive_until(&mut sink, |counters| counters.dropped(DropReason::Refused) > 0);
    assert_eq!(fixture.counters.retries.get(), 0);
}

#[test]
fn the_version_is_negotiated() {
    for (reply, protocol, is_v2) in [
        (Reply::V2, Protocol::Auto, true),
        (Reply::V2, Protocol::V2, true),
        (Reply::V1, Protocol::Auto, false),
        (Reply::V2, Protocol::V1, false),
    ] {
        let (fixture, _sink) = send([], reply, protocol);
        assert_complete(&fixture);
        let last = fixture.receiver.wait_for(|contents| contents.heads.last().cloned());
        assert_eq!(last.contains("write.v2.request"), is_v2, "{protocol:?}: {last}");
    }
    let (fixture, _sink) = send([Reply::Status(415, "")], Reply::V1, Protocol::Auto);
    assert_complete(&fixture);
    assert_eq!(fixture.counters.retries.get(), 0);
}

#[test]
fn a_receiver_that_hangs_delays_nothing_and_costs_no_sample() {
    let receiver = Receiver::start([], Reply::Hang);
    let mut fixture = Fixture::new(receiver, Protocol::V1);
    fixture.config.timeout = Duration::from_millis(50);
    let mut sink = fixture.sink();
    let mut session = TestSession::new(1, &["a"]);
    for at in 0..10 {
        accept(&mut sink, session.frame(times(BEGIN_MS + at * 30, 30)));
    }
    fixture.drive_until(&mut sink, |counters| counters.retries.get() >= 3);
    assert!(fixture.counters.pending.get() >= 300 && fixture.counters.lag_seconds.get() >= 0.0);
    // It is stopped while the receiver hangs, and continues with its spool.
    drop(sink);
    fixture.receiver.wait_for(|contents| contents.usual.replace(Reply::V1));
    fixture.config.timeout = Duration::from_secs(60);
    let mut sink = fixture.sink();
    fixture.drive(&mut sink, |contents| (times_of(contents, "a").len() == 300).then_some(()));
}

#[test]
fn a_killed_collector_sends_the_rest_from_the_spool_and_the_store() {
    let begin_ms = realtime_us() / 1000 - 60_000;
    for killed_at in [1, 4, 9] {
        let fixture = Fixture::new(Receiver::start([], Reply::V1), Protocol::V1);
        let options =
            OpenOptions { timescale: TimescaleMode::Off, may_create: true, ..OpenOptions::default() };
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
fn series_end_with_their_job_their_metric_and_their_agent() {
    let is_ended = |contents: &Contents, device: &str| {
        contents.samples.iter().any(|(name, samples)| {
            name.iter().any(|(_, value)| value == device)
                && samples.last().is_some_and(|(_, bits)| *bits == STALE)
        })
    };
    let ends: [fn(&TestSession, &mut polymeter_store::accepted::Accepted); 3] = [
        |session, frame| frame.job_ends.push((Arc::clone(&session.job), BEGIN_MS * 1000)),
        |_, frame| frame.session_end_us = Some(BEGIN_MS * 1000),
        |session, frame| {
            let change = PlanChange {
                at_us: BEGIN_MS * 1000,
                job: None,
                metric: "cpu.usage".to_owned().try_into().unwrap(),
                old: None,
                new: None,
                cause: Cause::Lease,
                by: None,
                until_us: None,
            };
            frame.plan_changes.push((Some(Arc::clone(&session.job)), None, change));
        },
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let fixture = Fixture::new(Receiver::start([], Reply::V1), Protocol::V1);
        let mut sink = fixture.sink();
        let mut session = TestSession::new(1, &["a"]);
        let mut frame = session.frame(times(BEGIN_MS, 3));
        end(&session, &mut frame);
        accept(&mut sink, frame);
        fixture.drive(&mut sink, |contents| is_ended(contents, "a").then_some(()));
        if number < 2 {
            fixture.drive(&mut sink, |contents| is_ended(contents, "polymeter_job_info").then_some(()));
        } else {
            // The job itself continues without the metric.
            let facts_ended =
                fixture.receiver.wait_for(|contents| Some(is_ended(contents, "polymeter_job_info")));
            assert!(!facts_ended);
        }
        // It continues, as after a restart of the agent.
        let mut session = TestSession::new(2, &["a"]);
        accept(&mut sink, session.frame(times(BEGIN_MS + 10, 3)));
        fixture.drive(&mut sink, |contents| (times_of(contents, "a").len() == 6).then_some(()));
    }
}

#[test]
fn facts_of_a_job_become_labels_when_they_are_known() {
    let fixture = Fixture::new(Receiver::start([], Reply::V1), Protocol::V1);
    let mut sink = fixture.sink();
    let mut session = TestSession::new(1, &["a"]);
    accept(&mut sink, session.frame(times(BEGIN_MS, 3)));
    let mut frame = session.frame(times(BEGIN_MS + 10, 3));
    let facts = JobFacts {
        account: Some("acc".try_into().unwrap()),
        queue: Some("q".try_into().unwrap()),
        ..JobFacts::default()
    };
    let details = JobDetails { name: Some("my \"job\"".into()), ..JobDetails::default() };
    frame.job_facts.push((Arc::clone(&session.job), facts));
    frame.job_details.push((Arc::clone(&session.job), details));
    accept(&mut sink, frame);
    let found = fixture.drive(&mut sink, |contents| {
        let is_facts = |name: &receiver::Name| name.iter().any(|(_, value)| value == "polymeter_job_info");
        let facts: Vec<_> = contents.samples.iter().filter(|(name, _)| is_facts(name)).collect();
        let has_end = facts.iter().any(|(_, samples)| samples.last().is_some_and(|(_, bits)| *bits == STALE));
        let owned = facts.iter().map(|(name, samples)| ((*name).clone(), (*samples).clone()));
        (facts.len() == 2 && has_end).then(|| owned.collect::<Vec<_>>())
    });
    let with = |name: &str| found.iter().find(|(labels, _)| labels.iter().any(|(n, _)| n == name)).unwrap();
    let value = |name: &str| with("account").0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    assert_eq!(
        (value("account"), value("partition"), value("name")),
        (Some("acc"), Some("q"), Some("my \"job\""))
    );
    let without = found.iter().find(|(labels, _)| labels.iter().all(|(n, _)| n != "account")).unwrap();
    assert_eq!(without.1.last().unwrap().1, STALE, "the series with fewer facts has ended");
}

#[test]
fn periods_below_a_millisecond_become_windows() {
    let fixture = Fixture::new(Receiver::start([], Reply::V1), Protocol::V1);
    let mut sink = fixture.sink();
    let times_us = (0..100).map(|at| BEGIN_MS * 1000 + at * 100).collect();
    accept(&mut sink, TestSession::new(1, &["a"]).frame(times_us));
    let values = |contents: &Contents, suffix: &str| -> Vec<(i64, f64)> {
        let is = |name: &&Vec<(String, String)>| {
            name.iter().any(|(_, v)| *v == format!("polymeter_cpu_usage_{suffix}"))
        };
        let name = contents.samples.keys().find(is);
        let samples = name.and_then(|name| contents.samples.get(name)).cloned().unwrap_or_default();
        samples.into_iter().map(|(ms, bits)| (ms - BEGIN_MS, f64::from_bits(bits))).collect()
    };
    fixture.drive(&mut sink, |contents| (values(contents, "max").len() == 10).then_some(()));
    fixture.receiver.wait_for(|contents| {
        let expected =
            |of: fn(i32) -> i32| (0..10).map(|ms| (i64::from(ms), f64::from(of(ms)))).collect::<Vec<_>>();
        assert_eq!(values(contents, "total"), expected(|ms| ms * 10 + 9));
        assert_eq!(values(contents, "min"), expected(|ms| ms * 10));
        assert_eq!(values(contents, "max"), expected(|ms| ms * 10 + 9));
        Some(())
    });
}

#[test]
fn only_selected_series_are_sent_with_the_configured_labels() {
    type Select = fn(&mut RemoteWriteConfig);
    let selections: [(Select, bool); 4] = [
        (|config| config.metrics = vec!["memory.*".parse().unwrap()], false),
        (|config| config.jobs = vec!["4?".parse().unwrap()], true),
        (|config| config.jobs = Vec::new(), false),
        (|config| config.nodes = vec!["n2*".parse().unwrap()], false),
    ];
    for (select, is_sent) in selections {
        let mut fixture = Fixture::new(Receiver::start([], Reply::V1), Protocol::V1);
        select(&mut fixture.config);
        fixture.config.labels = vec![("site".to_owned(), "here".to_owned())];
        let mut sink = fixture.sink();
        accept(&mut sink, TestSession::new(1, &["a"]).frame(times(BEGIN_MS, 3)));
        let find = |contents: &Contents| {
            let mut names = contents.samples.keys();
            names.find(|name| name.iter().any(|(_, value)| value == "polymeter_cpu_usage_total")).cloned()
        };
        if is_sent {
            let name = fixture.drive(&mut sink, find);
            assert_eq!(name.last(), Some(&("site".to_owned(), "here".to_owned())));
        } else {
            drop(sink);
            assert_eq!(fixture.receiver.wait_for(|contents| Some(find(contents))), None);
        }
    }
}

#[test]
fn a_spool_belongs_to_one_collector_and_shards_may_change() {
    let mut fixture = Fixture::new(Receiver::start([], Reply::V1), Protocol::V1);
    let mut sink = fixture.sink();
    let mut session = TestSession::new(1, &["a", "b", "c", "d"]);
    accept(&mut sink, session.frame(times(BEGIN_MS, 30)));
    let error = fixture.sink().accept(&AcceptedRows::new(vec![])).unwrap_err();
    assert!(error.to_string().contains("another collector uses it"), "{error}");
    fixture.drive_until(&mut sink, |counters| counters.sent.get() >= 120 && counters.pending.get() == 0);
    drop(sink);
    fixture.config.shards = 5;
    let mut sink = fixture.sink();
    // The same samples again, and new ones.
    let mut again = TestSession::new(2, &["a", "b", "c", "d"]);
    accept(&mut sink, again.frame(times(BEGIN_MS, 40)));
    let is_sent = |contents: &Contents| {
        ["a", "b", "c", "d"].iter().all(|device| times_of(contents, device).len() == 40)
    };
    fixture.drive(&mut sink, |contents| is_sent(contents).then_some(()));
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
