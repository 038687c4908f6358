//! Metrics of the sink.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Unit;

use crate::metrics::Metrics;

type Label = [(&'static str, &'static str); 1];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sinks) enum DropReason {
    Refused,
    /// Drops the oldest samples.
    SpoolFull,
    /// The disk refused the samples, and the memory was full.
    SpoolUnwritable,
    SpoolDamaged,
    /// Samples that are not newer than the last one of their series.
    OutOfOrder,
    /// Another sample of the series is in the same millisecond.
    SameMillisecond,
    SeriesLimit,
    /// The protocol cannot state it.
    NotANumber,
}

impl DropReason {
    const ALL: [Self; 8] = [
        Self::Refused,
        Self::SpoolFull,
        Self::SpoolUnwritable,
        Self::SpoolDamaged,
        Self::OutOfOrder,
        Self::SameMillisecond,
        Self::SeriesLimit,
        Self::NotANumber,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::SpoolFull => "spool_full",
            Self::SpoolUnwritable => "spool_unwritable",
            Self::SpoolDamaged => "spool_damaged",
            Self::OutOfOrder => "out_of_order",
            Self::SameMillisecond => "same_millisecond",
            Self::SeriesLimit => "series_limit",
            Self::NotANumber => "not_a_number",
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(in crate::sinks) struct Counters {
    dropped: Family<Label, Counter>,
    pub(in crate::sinks) sent: Counter,
    /// Samples that were read from the store after a restart.
    pub(super) recovered: Counter,
    /// Samples that were sent again, since the receiver may have forgotten them.
    pub(super) resent: Counter,
    pub(super) requests: Counter,
    pub(in crate::sinks) retries: Counter,
    /// Requests as they are in the spool.
    pub(super) sent_bytes: Counter,
    pub(super) damaged_files: Counter,
    pub(super) series: Gauge,
    /// Samples in the spool and in memory.
    pub(in crate::sinks) pending: Gauge,
    pub(super) spool_bytes: Gauge,
    /// Requests in memory, since the disk refuses them.
    pub(super) memory_bytes: Gauge,
    /// How much older the receiver's newest sample is than the spool's.
    pub(super) lag_seconds: Gauge<f64, AtomicU64>,
}

impl Counters {
    /// `sink` begins the names of the metrics.
    pub(super) fn register(metrics: &Metrics, sink: &str) -> Self {
        let counters = Self::default();
        for reason in DropReason::ALL {
            drop(counters.dropped.get_or_create(&[("reason", reason.as_str())]));
        }
        let register = |name: &str, help: &str, counter: &Counter| {
            metrics.register(&format!("{sink}_{name}"), help, counter.clone());
        };
        metrics.register(
            &format!("{sink}_dropped_samples"),
            "Samples that are stored and were not sent, by reason",
            counters.dropped.clone(),
        );
        register(
            "sent_samples",
            "Samples that the receiver accepted, marks of ends of series included",
            &counters.sent,
        );
        register(
            "recovered_samples",
            "Samples that were read from the store after a restart",
            &counters.recovered,
        );
        register(
            "resent_samples",
            "Samples that were sent again after the receiver was lost",
            &counters.resent,
        );
        register("requests", "Requests that the receiver accepted", &counters.requests);
        register("retries", "Requests that were repeated", &counters.retries);
        register("damaged_files", "Damaged files of the spool", &counters.damaged_files);
        let help = "Series that are sent";
        metrics.register(&format!("{sink}_series"), help, counters.series.clone());
        let help = "Samples that wait in the spool or in memory";
        metrics.register(&format!("{sink}_pending_samples"), help, counters.pending.clone());
        let bytes = [
            ("spool", "Bytes of the files of the spool", &counters.spool_bytes),
            ("memory", "Bytes of requests in memory, since the disk refuses them", &counters.memory_bytes),
        ];
        for (name, help, gauge) in bytes {
            metrics.register_with_unit(&format!("{sink}_{name}"), help, Unit::Bytes, gauge.clone());
        }
        let help = "Bytes of the requests that the receiver accepted, as they are in the spool";
        metrics.register_with_unit(&format!("{sink}_sent"), help, Unit::Bytes, counters.sent_bytes.clone());
        let help = "Time by which the newest sample at the receiver is older than the newest one that waits";
        metrics.register_with_unit(&format!("{sink}_lag"), help, Unit::Seconds, counters.lag_seconds.clone());
        counters
    }

    pub(super) fn drop_samples(&self, reason: DropReason, samples: u64) {
        if samples > 0 {
            self.dropped.get_or_create(&[("reason", reason.as_str())]).inc_by(samples);
        }
    }

    #[cfg(test)]
    pub(in crate::sinks) fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped.get_or_create(&[("reason", reason.as_str())]).get()
    }
}
