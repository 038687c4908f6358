//! Sinks that send samples to another database: by remote_write, the protocol by which Prometheus,
//! VictoriaMetrics, Mimir and Thanos accept them, and by InfluxDB's line protocol.
//!
//! ```text
//! rows -> series (selection, labels, windows of 1 ms) -> batches -> spool -> sender -> receiver
//!                                                                    ^
//!                         store -> catch_up (after a restart) -------+
//! ```
//!
//! The protocol is that of the sender alone ([`Protocol`]): selection, labels, batches and spools are the
//! same for all, and the spool has requests of remote_write 1.0.
//!
//! Each series belongs to a shard, which has batches, a spool and a connection of its own, so that its
//! samples stay in order. Every request passes through the spool: a receiver that fails or hangs, and a
//! restart of the collector, cost no sample as long as the spool has room. Samples that were committed and
//! did not reach the spool, since the collector was killed, are read from the store.

mod catch_up;
mod config;
mod counters;
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod job_facts;
mod pipeline;
mod remote_write_sink;
mod request;
mod sender;
mod series;
mod shards;
mod spool;
pub mod standalone;
#[cfg(test)]
mod tests;
mod udp;
mod window;

pub(crate) use self::config::SHARDS_MAX;
pub use self::config::{Credentials, Glob, Header, Protocol, ReceiverUrl, RemoteWriteConfig};
pub(crate) use self::http::connect_to;
pub(super) use self::remote_write_sink::RemoteWrite;
