//! Metrics of the collector itself, and the server of `/metrics`.
//!
//! To add a metric: create it from `prometheus_client`, keep a clone where it is counted, and call
//! [`Metrics::register`].

mod http;
mod page;
mod reasons;
mod registered;
mod store_calls;
mod writer;

pub use self::http::metrics_answer;
pub(crate) use self::registered::Metrics;
pub(crate) use self::writer::{QueueDepth, WriterMetrics};
