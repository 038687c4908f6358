//! `polymeter job`: the commands of a scheduler's prolog and epilog. Problems do not fail a job, and nothing
//! is printed on stdout, which some schedulers interpret.

mod agent_start;
mod details;
mod end;
mod environment;
mod kept_reports;
mod problem;
mod said;
mod sampling_request;
mod start;
mod state;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Subcommand;
use polymeter_service::log::Severity;

pub use said::{InvalidField, quantity, time_limit_s};

#[derive(Debug, clap::Args)]
pub struct JobArguments {
    #[command(subcommand)]
    event: JobEvent,
}

#[derive(Debug, Subcommand)]
enum JobEvent {
    /// Announce a job that starts on this node, and start an agent if none runs: for a prolog.
    Start(Box<start::StartArguments>),
    /// Announce that a job has ended on this node: for an epilog.
    End(end::EndArguments),
    /// Report the final state of a job to the collector: for the epilog of the scheduler's controller.
    State(Box<state::StateArguments>),
}

pub(crate) fn execute(arguments: &JobArguments) -> ExitCode {
    let (result, is_strict) = match &arguments.event {
        JobEvent::Start(arguments) => (start::execute(arguments), arguments.is_strict()),
        JobEvent::End(arguments) => (end::execute(arguments), arguments.is_strict()),
        JobEvent::State(arguments) => (state::execute(arguments), arguments.is_strict()),
    };
    result.unwrap_or_else(|failure| {
        problem::report(Severity::Error, &failure.to_string());
        if is_strict { failure.exit_code() } else { ExitCode::SUCCESS }
    })
}

/// True if `arguments` belong to a scheduler's script, which wrong usage must not fail.
pub(crate) fn tolerates_wrong_usage(mut arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.nth(1).is_some_and(|command| command == "job")
        && !arguments.any(|argument| argument == "--strict")
}

pub(crate) fn report_error(message: &str) {
    problem::report(Severity::Error, message);
}
