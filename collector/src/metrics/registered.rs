//! All metrics of a collector.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Unit};

use super::page::Page;
use super::reasons::ByReason;
use super::writer::{WriterFamilies, WriterMetrics};
use crate::refusal::RefusalKind;

#[derive(Debug)]
pub(crate) struct Metrics {
    page: Page,
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
    /// `write_mode` describes how the collector writes its store.
    pub(crate) fn new(write_mode: String) -> Self {
        let metrics = Self {
            page: Page::default(),
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
        metrics.writers.register(&metrics.page);
        metrics
    }

    /// Requires a name of a counter not to end in `_total`, which the page appends.
    pub(crate) fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.page.register(name, help, metric);
    }

    /// Appends the unit to the name.
    pub(crate) fn register_with_unit(&self, name: &str, help: &str, unit: Unit, metric: impl Metric) {
        self.page.register_with_unit(name, help, unit, metric);
    }

    fn register_receiver(&self) {
        self.register("received_messages", "Messages from agents", self.received_messages.clone());
        self.page.register_with_unit(
            "received",
            "Bytes of messages from agents",
            Unit::Bytes,
            self.received_bytes.clone(),
        );
        self.register("sent_messages", "Messages to agents", self.sent_messages.clone());
        self.register(
            "dropped_messages",
            "Messages dropped because their peer exceeded its limits",
            self.dropped_messages.clone(),
        );
        self.register(
            "refused_messages",
            "Messages refused as invalid, by reason",
            self.refused_messages.family(),
        );
        self.register(
            "accepted_connections",
            "Connections with an authorised key; always 0 without keys",
            self.accepted_connections.clone(),
        );
        self.register(
            "refused_connections",
            "Connections that failed before the first message, by reason",
            self.refused_connections.family(),
        );
        self.register("authorised_keys", "Keys of agents that may connect", self.authorised_keys.clone());
    }

    pub(crate) fn writer(&self, number: usize) -> WriterMetrics {
        self.writers.writer(number)
    }

    /// The collector can store samples: the store answers all writers.
    pub(super) fn is_ready(&self) -> bool {
        self.writers.store_calls.answer()
    }

    /// OpenMetrics text, version 1.0.0.
    pub(super) fn to_text(&self) -> String {
        self.page.to_text()
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
