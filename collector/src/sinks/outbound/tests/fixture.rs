//! A sink with its spool, its store and its receiver.

use std::time::Duration;

use polymeter_service::clock::Clock;
use polymeter_store::StoreUrl;
use polymeter_store::accepted::Accepted;

use super::receiver::{Contents, Receiver, Reply};
use crate::sinks::outbound::config::{OutboundConfig, ReceiverUrl};
use crate::sinks::outbound::counters::Counters;
use crate::sinks::outbound::outbound_sink::OutboundSink;
use crate::sinks::outbound::protocol::Protocol;
use crate::sinks::outbound::request::STALE;
use crate::sinks::sink::{AcceptedRows, Sink};
use crate::sinks::testing::TestSession;

/// `R` is what the test has of its receiver.
pub(in crate::sinks) struct Fixture<R = Receiver> {
    pub(in crate::sinks) directory: tempfile::TempDir,
    pub(in crate::sinks) config: OutboundConfig,
    pub(in crate::sinks) receiver: R,
    pub(in crate::sinks) counters: Counters,
}

impl<R> Fixture<R> {
    /// Configures a sink with one connection.
    pub(in crate::sinks) fn with(receiver: R, protocol: &'static Protocol, url: ReceiverUrl) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = OutboundConfig {
            spool: directory.path().join("spool"),
            batch_samples: 50,
            batch_wait: Duration::from_millis(10),
            shards: 1,
            timeout: Duration::from_secs(60),
            ..OutboundConfig::new(protocol, url)
        };
        Self { directory, config, receiver, counters: Counters::default() }
    }

    pub(super) fn store(&self) -> StoreUrl {
        StoreUrl::sqlite(self.directory.path().join("store.db"))
    }

    pub(in crate::sinks) fn sink(&self) -> OutboundSink {
        OutboundSink::with_counters(self.config.clone(), self.store(), self.counters.clone(), Clock::start())
    }

    pub(in crate::sinks) fn drive_until(
        &self,
        sink: &mut OutboundSink,
        mut is_done: impl FnMut(&Counters) -> bool,
    ) {
        while !is_done(&self.counters) {
            sink.tick();
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

impl Fixture {
    pub(super) fn new(receiver: Receiver, protocol: &'static Protocol) -> Self {
        let url = format!("http://{}/write", receiver.address).parse().unwrap();
        let mut fixture = Self::with(receiver, protocol, url);
        fixture.config.shards = 2;
        fixture
    }

    /// Calls `tick` until the receiver has what `is_done` wants.
    pub(super) fn drive<T>(
        &self,
        sink: &mut OutboundSink,
        mut is_done: impl FnMut(&Contents) -> Option<T>,
    ) -> T {
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
}

/// Offers 300 samples of a series for each of `devices`, whose values begin anew with every 30.
pub(in crate::sinks) fn offer(sink: &mut OutboundSink, devices: &[&str]) {
    let mut session = TestSession::new(1, devices);
    for at in 0..10 {
        accept(sink, session.frame(times(BEGIN_MS + at * 30, 30)));
    }
}

/// One time in each millisecond from `begin_ms` on.
pub(in crate::sinks) fn times(begin_ms: i64, count: i64) -> Vec<i64> {
    (begin_ms..begin_ms + count).map(|ms| ms * 1000 + 7).collect()
}

pub(in crate::sinks) fn accept(sink: &mut OutboundSink, frame: Accepted) {
    sink.accept(&AcceptedRows::new(vec![frame])).unwrap();
}

pub(super) fn times_of(contents: &Contents, device: &str) -> Vec<i64> {
    let name =
        [("__name__", "polymeter_cpu_usage_total"), ("device", device), ("jobid", "42"), ("node", "n1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let samples = contents.samples.get(&name[..]).cloned().unwrap_or_default();
    samples.into_iter().filter(|(_, bits)| *bits != STALE).map(|(ms, _)| ms).collect()
}

pub(in crate::sinks) const BEGIN_MS: i64 = 1_767_225_600_000;

/// Sends 300 samples of two series to a receiver, which gives `replies` first. Returns the sink after all are
/// accepted or refused.
pub(super) fn send(
    replies: impl IntoIterator<Item = Reply>,
    usual: Reply,
    protocol: &'static Protocol,
) -> (Fixture, OutboundSink) {
    let fixture = Fixture::new(Receiver::start(replies, usual), protocol);
    let mut sink = fixture.sink();
    offer(&mut sink, &["a", "b"]);
    fixture.drive(&mut sink, |contents| {
        (times_of(contents, "a").len() == 300 && times_of(contents, "b").len() == 300).then_some(())
    });
    fixture.drive_until(&mut sink, |counters| counters.pending.get() == 0);
    (fixture, sink)
}

pub(super) fn assert_complete(fixture: &Fixture) {
    fixture.receiver.wait_for(|contents| {
        for device in ["a", "b"] {
            assert_eq!(times_of(contents, device), (BEGIN_MS..BEGIN_MS + 300).collect::<Vec<_>>());
        }
        Some(())
    });
}
