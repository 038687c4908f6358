//! `polymeter`: monitors and profiles HPC jobs, each metric at its own sampling period.

mod calendar;
mod client;
mod commands;
mod disk;
mod http_get;
mod local;
mod local_config;
mod output;
mod report;
#[cfg(test)]
mod snapshot;
mod store_failure;
mod version;

use std::process::ExitCode;

use polymeter_client::{failure, program};

fn main() -> ExitCode {
    program::main(commands::Command::execute, Some(&local::LOCAL))
}
