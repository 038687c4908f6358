//! Metrics of the writers.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use polymeter_service::clock::realtime_ns;
use polymeter_store::accepted::LossReason;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use super::page::Page;
use super::reasons::ByReason;
use super::store_calls::{AllStoreCalls, StoreCalls};

/// Upper bounds of the histogram buckets of commits: from a commit to memory to an unreachable store.
const COMMIT_BOUNDS_S: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0];

type WriterLabel = [(&'static str, u64); 1];

/// Metrics of one writer. Counters are shared by all writers.
#[derive(Debug, Clone)]
pub(crate) struct WriterMetrics {
    pub(crate) stored_frames: Counter,
    pub(crate) stored_samples: Counter,
    pub(crate) quarantined_samples: Counter,
    pub(crate) unattributed_samples: Counter,
    pub(crate) repeated_frames: Counter,
    pub(crate) lost_samples: ByReason,
    pub(crate) lost_events: Counter,
    pub(crate) store_failures: Counter,
    pub(crate) store_up: Gauge,
    pub(crate) store_calls: StoreCalls,
    pub(crate) sessions: Gauge,
    /// Seconds, including time in which the store was unreachable.
    pub(crate) commit_duration: Histogram,
    /// Seconds since the epoch; the start of the collector before the first commit.
    pub(crate) newest_commit: Gauge<f64, AtomicU64>,
    pub(crate) queue: QueueDepth,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct QueueDepth {
    messages: Gauge,
    bytes: Gauge,
}

impl WriterMetrics {
    pub(crate) fn committed(&self, duration: Duration) {
        self.commit_duration.observe(duration.as_secs_f64());
        self.newest_commit.set(realtime_s());
    }
}

fn realtime_s() -> f64 {
    Duration::from_nanos(realtime_ns()).as_secs_f64()
}

impl QueueDepth {
    pub(crate) fn set(&self, messages: usize, bytes: usize) {
        self.messages.set(i64::try_from(messages).unwrap_or(i64::MAX));
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    #[cfg(test)]
    pub(crate) fn get(&self) -> (usize, usize) {
        let size = |gauge: &Gauge| usize::try_from(gauge.get()).unwrap();
        (size(&self.messages), size(&self.bytes))
    }
}

#[derive(Debug)]
pub(super) struct WriterFamilies {
    stored_frames: Counter,
    stored_samples: Counter,
    quarantined_samples: Counter,
    unattributed_samples: Counter,
    repeated_frames: Counter,
    lost_samples: ByReason,
    lost_events: Counter,
    store_failures: Counter,
    store_up: Family<WriterLabel, Gauge>,
    pub(super) store_calls: AllStoreCalls,
    sessions: Family<WriterLabel, Gauge>,
    queue_messages: Family<WriterLabel, Gauge>,
    queue_bytes: Family<WriterLabel, Gauge>,
    commit_duration: Family<WriterLabel, Histogram>,
    newest_commit: Gauge<f64, AtomicU64>,
}

impl Default for WriterFamilies {
    fn default() -> Self {
        Self {
            stored_frames: Counter::default(),
            stored_samples: Counter::default(),
            quarantined_samples: Counter::default(),
            unattributed_samples: Counter::default(),
            repeated_frames: Counter::default(),
            lost_samples: ByReason::default(),
            lost_events: Counter::default(),
            store_failures: Counter::default(),
            store_up: Family::default(),
            store_calls: AllStoreCalls::default(),
            sessions: Family::default(),
            queue_messages: Family::default(),
            queue_bytes: Family::default(),
            commit_duration: Family::new_with_constructor(|| Histogram::new(COMMIT_BOUNDS_S)),
            newest_commit: Gauge::default(),
        }
    }
}

impl WriterFamilies {
    pub(super) fn register(&self, page: &Page) {
        self.lost_samples.create(LossReason::ALL.map(LossReason::as_str));
        page.register("stored_frames", "Frames that were committed", self.stored_frames.clone());
        page.register("stored_samples", "Samples that were committed", self.stored_samples.clone());
        page.register(
            "quarantined_samples",
            "Samples quarantined because their times are out of range",
            self.quarantined_samples.clone(),
        );
        page.register(
            "unattributed_samples",
            "Samples of devices whose label names a job that did not run, or not there",
            self.unattributed_samples.clone(),
        );
        page.register(
            "repeated_frames",
            "Frames received repeatedly and stored only once",
            self.repeated_frames.clone(),
        );
        page.register(
            "lost_samples",
            "Samples lost before they were stored, by reason",
            self.lost_samples.family(),
        );
        page.register(
            "lost_events",
            "Marks, changes of plan and facts of jobs lost before they were stored",
            self.lost_events.clone(),
        );
        page.register(
            "store_failures",
            "Failed store operations, which are retried",
            self.store_failures.clone(),
        );
        page.register("store_up", "1 if the store answers the writer, else 0", self.store_up.clone());
        page.register(
            "sessions",
            "Sessions of agents that the writer keeps in memory",
            self.sessions.clone(),
        );
        page.register("queue_messages", "Messages queued for the writer", self.queue_messages.clone());
        page.register_with_unit(
            "queue",
            "Bytes of messages queued for the writer",
            Unit::Bytes,
            self.queue_bytes.clone(),
        );
        page.register_with_unit(
            "commit_duration",
            "Duration of commits, including waiting for an unavailable store",
            Unit::Seconds,
            self.commit_duration.clone(),
        );
        self.newest_commit.set(realtime_s());
        page.register_with_unit(
            "newest_commit_timestamp",
            "Time of the newest commit, or of the start before the first one",
            Unit::Seconds,
            self.newest_commit.clone(),
        );
    }

    pub(super) fn writer(&self, number: usize) -> WriterMetrics {
        let label = [("writer", number as u64)];
        let metrics = WriterMetrics {
            stored_frames: self.stored_frames.clone(),
            stored_samples: self.stored_samples.clone(),
            quarantined_samples: self.quarantined_samples.clone(),
            unattributed_samples: self.unattributed_samples.clone(),
            repeated_frames: self.repeated_frames.clone(),
            lost_samples: self.lost_samples.clone(),
            lost_events: self.lost_events.clone(),
            store_failures: self.store_failures.clone(),
            store_up: self.store_up.get_or_create_owned(&label),
            store_calls: self.store_calls.add(),
            sessions: self.sessions.get_or_create_owned(&label),
            commit_duration: self.commit_duration.get_or_create_owned(&label),
            newest_commit: self.newest_commit.clone(),
            queue: QueueDepth {
                messages: self.queue_messages.get_or_create_owned(&label),
                bytes: self.queue_bytes.get_or_create_owned(&label),
            },
        };
        metrics.store_up.set(1);
        metrics
    }
}
