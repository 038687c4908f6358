//! Polymeter's node agent: samples the metrics of every job, each at its own period, and pushes them to a collector.
//!
//! The stages, in the order in which data passes them: [`source`] reads and parses, [`schedule`] says when, the
//! [`sampler`] joins the two and fills batches, [`delivery`] encodes them and keeps frames until they are acknowledged.
//! Beside them the manager decides what is sampled: it finds [`jobs`], computes the [`plan`] and opens sources.
//! [`Agent`] joins them all.

mod accounts;
mod agent;
mod allowance;
pub mod arguments;
pub mod asker;
pub mod check;
pub mod config;
pub mod control;
pub mod counters;
pub mod delivery;
pub mod detach;
pub mod doorbell;
pub mod jobs;
pub mod kernel;
pub mod keys;
pub mod log;
mod manager;
pub mod plan;
pub mod request;
pub mod sampler;
pub mod schedule;
pub mod source;
pub mod status;

pub use polymeter_service::clock;

pub use agent::{Agent, StartError, Stopped};
