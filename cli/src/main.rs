//! `polymeter`: monitors and profiles HPC jobs, each metric at its own sampling period.

#[cfg(feature = "local")]
mod calendar;
mod client;
mod commands;
mod control_view;
#[cfg(feature = "local")]
mod disk;
mod failure;
mod output;
mod own_cgroups;
#[cfg(feature = "local")]
mod report;
#[cfg(test)]
mod snapshot;
#[cfg(feature = "local")]
mod store_failure;
mod version;

use std::process::ExitCode;

use clap::Parser;

use commands::CommandLine;
use failure::{ErrorFormat, Failure};
use output::terminal;

fn main() -> ExitCode {
    if commands::answer_completion() {
        return ExitCode::SUCCESS;
    }
    polymeter_service::log::init("polymeter");
    let command_line = match CommandLine::try_parse() {
        Ok(command_line) => command_line,
        Err(error) => return help_or_wrong_usage(&error),
    };
    command_line.execute().unwrap_or_else(|(failure, format)| report(&failure, format))
}

/// Prints a failure, and returns its exit status.
fn report(failure: &Failure, format: ErrorFormat) -> ExitCode {
    terminal::print_failure(failure, format);
    failure.exit_code()
}

/// Prints the help that was requested, or reports wrong usage.
fn help_or_wrong_usage(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    if !error.use_stderr() {
        let printed = terminal::print(&text);
        return printed.map_or_else(|failure| report(&failure, ErrorFormat::Text), |()| ExitCode::SUCCESS);
    }
    if commands::tolerates_wrong_usage(std::env::args_os()) {
        commands::report_wrong_usage(text.trim_end());
        return ExitCode::SUCCESS;
    }
    // The arguments after `--` belong to the command of `polymeter run`.
    let mut own = std::env::args_os().skip(1).take_while(|argument| argument != "--").peekable();
    let is_run = own.peek().is_some_and(|command| command == "run");
    let failure = Failure::Usage(text.trim_start_matches("error: ").trim_end().to_owned());
    match (own.any(|argument| argument == "--json"), is_run) {
        (true, true) => return report(&failure, ErrorFormat::JsonOnStderr),
        (true, false) => return report(&failure, ErrorFormat::Json),
        (false, _) => terminal::print_error(&text),
    }
    failure.exit_code()
}
