//! The API's own metrics, which the collector adds to its page.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// The upper bounds of the buckets of times, in seconds: from a list of jobs to the longest query.
const BOUNDS_S: [f64; 14] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0, 60.0];

/// The labels of requests: the resource, and the class of the status.
type RequestLabels = [(&'static str, &'static str); 2];

/// The metrics. Copies share their values.
#[derive(Debug, Clone)]
pub struct ApiMetrics {
    /// Requests, by resource and by the class of the status, such as `4xx`.
    pub requests: Family<RequestLabels, Counter>,
    /// Seconds from a request to the end of its answer.
    pub duration: Histogram,
    /// Bytes of answers.
    pub sent_bytes: Counter,
    /// Open connections.
    pub connections: Gauge,
    /// Connections that were refused, since their user has too many, or no place is free.
    pub refused_connections: Counter,
    /// Connections that were closed for new ones.
    pub displaced_connections: Counter,
    /// Requests without valid authentication.
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

/// An open connection, which is counted until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection(Gauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl ApiMetrics {
    /// Counts a request.
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

    /// Counts a connection until the result is dropped.
    pub(crate) fn open_connection(&self) -> OpenConnection {
        self.connections.inc();
        OpenConnection(self.connections.clone())
    }
}
