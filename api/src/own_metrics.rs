//! Metrics of the API itself, which the collector adds to its page.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// Upper bounds of the buckets of times: from a list of jobs to the longest query.
const BOUNDS_S: [f64; 14] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0, 60.0];

type RequestLabels = [(&'static str, &'static str); 2];

/// Copies share their values.
#[derive(Debug, Clone)]
pub struct ApiMetrics {
    /// Grouped by resource and by the class of the status, such as `4xx`.
    pub requests: Family<RequestLabels, Counter>,
    /// Seconds from a request to the end of its answer.
    pub duration: Histogram,
    pub sent_bytes: Counter,
    pub connections: Gauge,
    /// Connections that were refused, since their user has too many, or no place is free.
    pub refused_connections: Counter,
    pub displaced_connections: Counter,
    pub failed_authentications: Counter,
}

impl Default for ApiMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            duration: Histogram::new(BOUNDS_S),
            sent_bytes: Counter::default(),
            connections: Gauge::default(),
            refused_connections: Counter::default(),
            displaced_connections: Counter::default(),
            failed_authentications: Counter::default(),
        }
    }
}

/// Counts an open connection until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection(Gauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl ApiMetrics {
    pub(crate) fn count(&self, resource: &'static str, status: axum::http::StatusCode) {
        let class = match status.as_u16() {
            100..200 => "1xx",
            200..300 => "2xx",
            300..400 => "3xx",
            400..500 => "4xx",
            _ => "5xx",
        };
        self.requests.get_or_create(&[("resource", resource), ("status", class)]).inc();
    }

    /// Counts it until the result is dropped.
    pub(crate) fn open_connection(&self) -> OpenConnection {
        self.connections.inc();
        OpenConnection(self.connections.clone())
    }
}
