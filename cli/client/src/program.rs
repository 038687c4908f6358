//! Start of a program of commands: its command line, and the report of failures.

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands::{completions, job, version};
use crate::completion::jobs;
use crate::failure::{ErrorFormat, Failure};
use crate::local::{Local, Program};
use crate::output::terminal;

/// Monitor and profile HPC jobs, each metric at its own sampling period.
#[derive(Debug, Parser)]
#[command(name = "polymeter", bin_name = "polymeter")]
#[command(arg_required_else_help = true, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Exit status: 0 success, 1 refused or failed, 2 wrong usage, 3 agent or collector not reachable."
)]
struct CommandLine<C: Subcommand> {
    /// Print the version.
    #[arg(short = 'V', long)]
    version: bool,

    /// With --version: print JSON with the origin of the build.
    #[arg(long, requires = "version")]
    json: bool,

    #[command(subcommand)]
    command: Option<C>,
}

#[must_use]
pub fn definition<C: Subcommand>() -> clap::Command {
    CommandLine::<C>::command()
}

pub fn main<C: Subcommand>(
    execute: fn(C, &Program) -> Result<ExitCode, Failure>,
    local: Option<&'static Local>,
) -> ExitCode {
    let program = Program { definition: definition::<C>, local };
    if let Some(local) = local {
        jobs::set_running(local.running_jobs);
    }
    if completions::answer(program.definition) {
        return ExitCode::SUCCESS;
    }
    polymeter_service::log::init("polymeter");
    let (command_line, format) = match parse::<C>() {
        Ok(parsed) => parsed,
        Err(error) => return help_or_wrong_usage(&error),
    };
    let result = match command_line.command {
        None => version::execute(command_line.json, local).map(|()| ExitCode::SUCCESS),
        Some(command) => execute(command, &program),
    };
    result.unwrap_or_else(|failure| report(&failure, format))
}

/// Also finds the format in which the command reports a failure.
fn parse<C: Subcommand>() -> Result<(CommandLine<C>, ErrorFormat), clap::Error> {
    let matches = definition::<C>().try_get_matches()?;
    let format = ErrorFormat::of(wants_json(&matches), matches.subcommand_name() == Some("run"));
    Ok((CommandLine::from_arg_matches(&matches)?, format))
}

/// True if the innermost command has the option `--json`.
fn wants_json(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some((_, of_command)) => wants_json(of_command),
        None => matches.try_get_one::<bool>("json").is_ok_and(|json| json == Some(&true)),
    }
}

/// Nagios and Icinga read a plugin's failure as a line of its standard output, and this status.
const PLUGIN_UNKNOWN: u8 = 3;

/// True if the command is `check`, which Nagios and Icinga run.
fn is_plugin() -> bool {
    std::env::args_os().nth(1).is_some_and(|command| command == "check")
}

#[must_use]
pub fn report(failure: &Failure, format: ErrorFormat) -> ExitCode {
    if is_plugin() {
        terminal::print_unknown(failure);
        return ExitCode::from(PLUGIN_UNKNOWN);
    }
    terminal::print_failure(failure, format);
    failure.exit_code()
}

/// Format in which a failure is reported if the arguments of the command cannot be parsed.
#[must_use]
pub fn unparsed_format() -> ErrorFormat {
    // The arguments after `--` belong to the command of `polymeter run`.
    let mut own = std::env::args_os().skip(1).take_while(|argument| argument != "--").peekable();
    let is_run = own.peek().is_some_and(|command| command == "run");
    ErrorFormat::of(own.any(|argument| argument == "--json"), is_run)
}

fn help_or_wrong_usage(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    if !error.use_stderr() {
        let printed = terminal::print(&text);
        return printed.map_or_else(|failure| report(&failure, ErrorFormat::Text), |()| ExitCode::SUCCESS);
    }
    if job::tolerates_wrong_usage(std::env::args_os()) {
        job::report_error(text.trim_end());
        return ExitCode::SUCCESS;
    }
    if is_plugin() {
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        return report(&Failure::Usage(message.to_owned()), ErrorFormat::Text);
    }
    let failure = Failure::Usage(text.trim_start_matches("error: ").trim_end().to_owned());
    match unparsed_format() {
        ErrorFormat::Text => terminal::print_error(&text),
        format @ (ErrorFormat::Json | ErrorFormat::JsonOnStderr) => return report(&failure, format),
    }
    failure.exit_code()
}
