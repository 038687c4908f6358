//! Polymeter's node agent: samples the metrics of every job, each at its own period, and pushes them to a
//! collector.
//!
//! The stages, in the order of the data flow: [`sources`] read and parse, [`lanes`] read them at their
//! deadlines and fill batches, [`delivery`] encodes them and keeps frames until they are acknowledged. Beside
//! them the `supervisor` applies the decisions of state machines: `lifecycle` finds the jobs that `targets`
//! tracks, and `admission` decides on their [`plan`], the period of each metric. Requests of users come in
//! through [`control`]. [`Agent`] joins them all.

mod admission;
mod agent;
pub mod arguments;
pub mod cgroups;
pub mod check;
pub mod config;
pub mod control;
pub mod counters;
pub mod delivery;
pub mod detach;
pub mod event_fd;
pub mod file_pages;
mod futex_timer;
pub mod in_force;
pub mod kernel;
pub mod keys;
pub mod lanes;
mod lifecycle;
mod mutex;
mod openmetrics;
pub mod plan;
pub mod principal;
pub mod request;
mod rights;
pub mod roof_file;
#[cfg(test)]
mod simulation;
pub mod sources;
mod start_error;
pub mod stats_cache;
mod supervisor;
mod targets;
mod trigger_file;
pub mod triggers;
pub mod watchdog;

pub use polymeter_service::clock;

pub use agent::Agent;
pub use delivery::sender::Stopped;
pub use openmetrics::EntranceError;
pub use start_error::AgentStartError;
