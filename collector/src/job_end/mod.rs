//! A command of the site that runs at the end of each job, with the job's report on its standard input.
//!
//! ```text
//! writers -- the end, in the transaction that stores it --> queue (a table) --> runner --> workers --> command
//! ```
//!
//! Nothing here is shared with the writers: the runner and its workers have threads and connections of their
//! own. A worker gathers the report as `polymeter report --json` does.

mod child;
mod command_file;
mod command_input;
mod command_log;
mod config;
mod counters;
mod runner;
mod worker;

pub(crate) use self::child::{End, Invocation};
pub use self::command_file::fault as command_fault;
pub use self::config::JobEndConfig;
pub(crate) use self::runner::JobEndRunner;
