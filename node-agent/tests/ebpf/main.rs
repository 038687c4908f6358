//! eBPF programs on the kernel of this machine, with real processes in cgroups of version 2.
//!
//! The program starts itself for the processes of jobs and for a second agent: a variable of the environment
//! says which.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a fault of a test is a failed test"
)]

mod attachments;
mod network;
mod reasons;
mod runqueue;
mod support;
mod vfs;

use std::process::ExitCode;

use support::process::ROLE;
use support::roles::play;

fn main() -> ExitCode {
    match std::env::var(ROLE) {
        Ok(role) => play(&role),
        Err(_) => {
            return polymeter_test_harness::run(&[
                attachments::TESTS,
                network::TESTS,
                reasons::TESTS,
                runqueue::TESTS,
                vfs::TESTS,
            ]);
        }
    }
    ExitCode::SUCCESS
}
