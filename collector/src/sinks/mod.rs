//! Sinks: additional best-effort outputs of committed rows.
//!
//! Only the store determines acknowledgements. A sink gets rows after they were committed, so that it never
//! has a row that the store lacks. Each sink has its own thread and bounded queue: rows without room are
//! dropped and counted, and a slow or blocked sink delays neither the store nor the other sinks.
//!
//! The live values of the HTTP API are such a sink, too: it gets nothing while no client watches a job. So is
//! the watch for stragglers, if there are rules about them.
//!
//! Sinks that send to another database ([`outbound`]) have sections of their own in the configuration, since
//! they have many settings.
//!
//! To add a sink: write a file here that implements `Sink` of `sink.rs`, and add a line to `KINDS` in
//! `registry.rs`.

mod ends;
mod fan_out;
mod federation;
pub mod influx;
mod jsonl;
mod live;
pub mod otlp;
pub mod outbound;
mod registry;
pub mod remote_write;
mod row_queue;
mod sink;
mod straggler_exchange;
mod stragglers;
#[cfg(test)]
mod testing;

pub(crate) use self::fan_out::{OtherSinks, SinkThreads, Sinks, start};
pub use self::registry::{InvalidSinkUrl, SinkUrl};
pub use self::sink::RelativePath;
pub(crate) use self::stragglers::StragglerWatch;
