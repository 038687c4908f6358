//! Client of agents and collectors: the commands that ask them, and what all commands need. It links no
//! libzmq, SQLite or PostgreSQL. The program `polymeter-client` has these commands alone; `polymeter` adds
//! those that open a store, or start an agent or a collector.

pub mod commands;
pub mod completion;
pub mod connection;
pub mod control_view;
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
