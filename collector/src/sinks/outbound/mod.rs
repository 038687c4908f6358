//! Sinks that send samples to another database. Each has its protocol in a module of its own.
//!
//! ```text
//! rows -> series (selection, labels, windows of 1 ms) -> batches -> spool -> sender -> receiver
//!                                                                    ^
//!                         store -> catch_up (after a restart) -------+
//! ```
//!
//! A [`Protocol`] names the series and encodes requests. All else is the same for all sinks: selection,
//! labels, batches, and spools, which have requests of remote_write 1.0.
//!
//! Each series belongs to a shard, which has batches, a spool and a connection of its own, so that its
//! samples stay in order. Every request passes through the spool: a receiver that fails or hangs, and a
//! restart of the collector, cost no sample as long as the spool has room. Samples that were committed and
//! did not reach the spool, since the collector was killed, are read from the store.

mod catch_up;
mod config;
mod counters;
mod facts;
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod job_facts;
mod outbound_sink;
mod pipeline;
mod protocol;
pub(super) mod request;
mod sender;
mod series;
mod shards;
mod spool;
pub mod standalone;
mod sum;
#[cfg(test)]
pub(super) mod tests;
mod udp;
mod window;

pub(crate) use self::config::SHARDS_MAX;
pub use self::config::{Credentials, Glob, Header, OutboundConfig, ReceiverUrl};
#[cfg(test)]
pub(super) use self::counters::DropReason;
pub(crate) use self::http::connect_to;
pub(super) use self::job_facts::Jobs;
pub(super) use self::outbound_sink::OutboundSink;
pub use self::protocol::Protocol;
pub(super) use self::protocol::{Body, Count, Form, Named, Response, Statement, is_temporary, read_text};
pub(super) use self::request::{Label, STALE, SampleMessage, TimeSeries, WriteRequest, read};
