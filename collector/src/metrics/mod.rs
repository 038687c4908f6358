//! The collector's own metrics, and the server of `/metrics`.
//!
//! To add a metric: create it from `prometheus_client`, keep a clone where it is counted, and call [`Metrics::register`].

mod http;
mod writer;

use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

pub(crate) use self::http::Server;
#[cfg(fuzzing)]
pub use self::http::is_answered;
use self::writer::WriterFamilies;
pub(crate) use self::writer::{QueueDepth, WriterMetrics};
use crate::refusal::RefusalKind;

/// The prefix of all names.
const PREFIX: &str = "polymeter_collector";

/// The label `reason`.
type Reason = [(&'static str, &'static str); 1];

/// Counters of one metric by reason.
#[derive(Debug, Clone, Default)]
pub(crate) struct ByReason(Family<Reason, Counter>);

impl ByReason {
    /// Creates the counters, so that they are served before they count.
    pub(crate) fn create(&self, reasons: impl IntoIterator<Item = &'static str>) {
        reasons.into_iter().for_each(|reason| self.add(reason, 0));
    }

    /// Adds to the counter of `reason`.
    pub(crate) fn add(&self, reason: &'static str, count: u64) {
        self.0.get_or_create(&[("reason", reason)]).inc_by(count);
    }
}

/// The metrics of one collector.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    pub(crate) received_messages: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) sent_messages: Counter,
    pub(crate) dropped_messages: Counter,
    pub(crate) refused_messages: ByReason,
    pub(crate) accepted_connections: Counter,
    pub(crate) refused_connections: ByReason,
    pub(crate) authorised_keys: Gauge,
    writers: WriterFamilies,
}

impl Metrics {
    /// The metrics of a collector whose store is written as `write_mode` says.
    pub(crate) fn new(write_mode: String) -> Self {
        let metrics = Self {
            registry: Mutex::new(Registry::with_prefix(PREFIX)),
            received_messages: Counter::default(),
            received_bytes: Counter::default(),
            sent_messages: Counter::default(),
            dropped_messages: Counter::default(),
            refused_messages: ByReason::default(),
            accepted_connections: Counter::default(),
            refused_connections: ByReason::default(),
            authorised_keys: Gauge::default(),
            writers: WriterFamilies::default(),
        };
        let build = Info::new([("version", env!("CARGO_PKG_VERSION").to_owned()), ("writes", write_mode)]);
        metrics.register("build", "The version of the collector and the layout of its store", build);
        metrics.refused_messages.create(RefusalKind::ALL.map(RefusalKind::as_str));
        metrics.register_receiver();
        metrics.writers.register(&metrics);
        metrics
    }

    /// Adds a metric to the page. A counter's name has no `_total`: the page adds it.
    pub(crate) fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner).register(name, help, metric);
    }

    /// Adds a metric to the page whose name ends in its unit: the page adds it.
    pub(crate) fn register_with_unit(&self, name: &str, help: &str, unit: Unit, metric: impl Metric) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register_with_unit(name, help, unit, metric);
    }

    /// Adds the metrics of the receiver and of authentication.
    fn register_receiver(&self) {
        self.register("received_messages", "Messages from agents", self.received_messages.clone());
        self.register_with_unit(
            "received",
            "Bytes of messages from agents",
            Unit::Bytes,
            self.received_bytes.clone(),
        );
        self.register("sent_messages", "Messages to agents", self.sent_messages.clone());
        self.register(
            "dropped_messages",
            "Messages dropped unread because their peer exceeded its limits",
            self.dropped_messages.clone(),
        );
        self.register(
            "refused_messages",
            "Messages that cannot be used, by reason",
            self.refused_messages.0.clone(),
        );
        self.register(
            "accepted_connections",
            "Connections whose key is authorised; none without keys",
            self.accepted_connections.clone(),
        );
        self.register(
            "refused_connections",
            "Connections that failed before the first message, by reason",
            self.refused_connections.0.clone(),
        );
        self.register("authorised_keys", "Keys of agents that may connect", self.authorised_keys.clone());
    }

    /// The metrics of writer `number`.
    pub(crate) fn writer(&self, number: usize) -> WriterMetrics {
        self.writers.writer(number)
    }

    /// The page: OpenMetrics text, version 1.0.0.
    fn to_text(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a string cannot fail.
        prometheus_client::encoding::text::encode(&mut text, &registry).ok();
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn page_is_openmetrics_text_with_units_and_totals() {
        let metrics = Metrics::new("a \"b\" \\ c".to_owned());
        metrics.received_bytes.inc_by(7);
        metrics.refused_messages.add("node", 2);
        let writer = metrics.writer(0);
        writer.commit_duration.observe(Duration::from_millis(3).as_secs_f64());
        writer.queue.set(2, 5);
        let rows: Counter = Counter::default();
        metrics.register("sink_dropped_rows", "Rows that a sink dropped", rows.clone());
        rows.inc();
        let text = metrics.to_text();
        for line in [
            "# TYPE polymeter_collector_received_bytes counter",
            "# UNIT polymeter_collector_received_bytes bytes",
            "polymeter_collector_received_bytes_total 7",
            "polymeter_collector_refused_messages_total{reason=\"key\"} 0",
            "polymeter_collector_refused_messages_total{reason=\"node\"} 2",
            "polymeter_collector_queue_messages{writer=\"0\"} 2",
            "polymeter_collector_queue_bytes{writer=\"0\"} 5",
            "polymeter_collector_commit_duration_seconds_bucket{le=\"0.002\",writer=\"0\"} 0",
            "polymeter_collector_commit_duration_seconds_bucket{le=\"0.005\",writer=\"0\"} 1",
            "polymeter_collector_commit_duration_seconds_count{writer=\"0\"} 1",
            "polymeter_collector_sink_dropped_rows_total 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in:\n{text}");
        }
        assert!(text.contains("writes=\"a \\\"b\\\" \\\\ c\"") && text.ends_with("# EOF\n"), "{text}");
    }
}
