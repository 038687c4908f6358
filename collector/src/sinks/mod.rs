//! Sinks: further outputs of committed rows, best effort.
//!
//! The store alone decides acknowledgement. A sink gets rows after they were committed, so that it never shows a row that the
//! store does not have. Each sink has a thread and a bounded queue of its own: rows that find no room are dropped and counted,
//! and neither a slow sink nor one that hangs delays the store or the other sinks.
//!
//! To add a sink: write a file here that implements `Sink` of `sink.rs`, and add a line to `KINDS` in `registry.rs`.

mod fan_out;
mod jsonl;
mod queue;
mod registry;
mod sink;
#[cfg(test)]
mod testing;

pub(crate) use self::fan_out::{SinkThreads, Sinks, start};
pub use self::registry::SinkUrl;
