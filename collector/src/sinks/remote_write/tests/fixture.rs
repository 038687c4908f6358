//! A sink with its spool, its store and its receiver.

use std::time::Duration;

use polymeter_service::clock::Clock;
use polymeter_store::StoreUrl;
use polymeter_store::accepted::Accepted;

use super::receiver::{Contents, Receiver, Reply};
use crate::sinks::remote_write::config::{Protocol, RemoteWriteConfig};
use crate::sinks::remote_write::counters::Counters;
use crate::sinks::remote_write::remote_write_sink::RemoteWrite;
use crate::sinks::remote_write::request::STALE;
use crate::sinks::sink::{AcceptedRows, Sink};
use crate::sinks::testing::TestSession;

pub(super) struct Fixture {
    directory: tempfile::TempDir,
    pub(super) config: RemoteWriteConfig,
    pub(super) receiver: Receiver,
    pub(super) counters: Counters,
}

impl Fixture {
    pub(super) fn new(receiver: Receiver, protocol: Protocol) -> Self {
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

    pub(super) fn store(&self) -> StoreUrl {
        StoreUrl::sqlite(self.directory.path().join("store.db"))
    }

    pub(super) fn sink(&self) -> RemoteWrite {
        RemoteWrite::with_counters(self.config.clone(), self.store(), self.counters.clone(), Clock::start())
    }

    /// Calls `tick` until the receiver has what `is_done` wants.
    pub(super) fn drive<T>(
        &self,
        sink: &mut RemoteWrite,
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

    pub(super) fn drive_until(&self, sink: &mut RemoteWrite, mut is_done: impl FnMut(&Counters) -> bool) {
        while !is_done(&self.counters) {
            sink.tick();
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

/// One time in each millisecond from `begin_ms` on.
pub(super) fn times(begin_ms: i64, count: i64) -> Vec<i64> {
    (begin_ms..begin_ms + count).map(|ms| ms * 1000 + 7).collect()
}

pub(super) fn accept(sink: &mut RemoteWrite, frame: Accepted) {
    sink.accept(&AcceptedRows::new(vec![frame])).unwrap();
}

pub(super) fn times_of(contents: &Contents, device: &str) -> Vec<i64> {
    let name =
        [("__name__", "polymeter_cpu_usage_total"), ("device", device), ("jobid", "42"), ("node", "n1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let samples = contents.samples.get(&name[..]).cloned().unwrap_or_default();
    samples.into_iter().filter(|(_, bits)| *bits != STALE).map(|(ms, _)| ms).collect()
}

pub(super) const BEGIN_MS: i64 = 1_767_225_600_000;

/// Sends 300 samples of two series to a receiver, which gives `replies` first. Returns the sink after all are
/// accepted or refused.
pub(super) fn send(
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

pub(super) fn assert_complete(fixture: &Fixture) {
    fixture.receiver.wait_for(|contents| {
        for device in ["a", "b"] {
            assert_eq!(times_of(contents, device), (BEGIN_MS..BEGIN_MS + 300).collect::<Vec<_>>());
        }
        Some(())
    });
}
