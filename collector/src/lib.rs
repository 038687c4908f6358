//! Polymeter's collector: receives frames from agents, stores every sample once, and acknowledges after the
//! commit.
//!
//! ```text
//! agents --ROUTER--> receiver --queues--> writers (ingest, gather, commit) --> store
//!            ^                                |
//!            +------------ answers -----------+
//! users --> control --> receiver --> agents, and back the same way
//!                +--> reading --> store
//! pages, programs --> api --> store, control
//!                      job_end --> store, a command of the site
//!                    summaries --> store, notices to persons
//! ```
//!
//! The invariant: acknowledged data are committed, and committed exactly once. Agents keep the frames that
//! are not acknowledged; therefore the collector may lose everything that it has in memory.

pub mod agents;
mod allocator;
mod api;
mod auth;
mod backlog;
pub mod check;
mod clock_offsets;
mod clock_skew;
mod collector;
pub mod config;
pub mod control;
mod error;
mod fair_queue;
pub mod federation;
#[doc(hidden)]
pub mod fuzzing;
pub mod ingest;
pub mod job_end;
pub mod keys;
pub mod limits;
mod metrics;
pub mod notices;
mod other_collectors;
mod page_server;
mod queues;
mod reading;
mod receiver;
pub mod refusal;
pub mod roles;
pub mod session_messages;
mod settings;
mod shutdown;
pub mod sinks;
mod stragglers;
mod summaries;
mod thread;
mod waker;
pub mod watchdog;
mod writer;

pub use collector::Collector;
pub use config::CollectorConfig;
pub use error::{CollectorStartError, ThreadPanicked};
pub use polymeter_service::clock;
pub use writer::Totals;
