//! The client of agents and collectors: their commands, and what every program of commands needs. It links no libzmq, no
//! SQLite and no PostgreSQL. `polymeter-client` has these commands alone; `polymeter` adds those that read stores, or contain
//! an agent and a collector.

#![allow(clippy::missing_errors_doc, reason = "every error is the `Failure` that the command reports")]

pub mod commands;
pub mod completion;
pub mod connection;
mod control_view;
pub mod failure;
pub mod job_choice;
pub mod local;
pub mod output;
pub mod own_cgroups;
pub mod program;
#[cfg(test)]
#[path = "../../src/snapshot.rs"]
mod snapshot;
pub mod version;
