//! `polymeter`: everything that a person types.

mod catalogue;
mod control;
mod failure;
mod job;
mod keygen;
mod report;
mod run;
mod terminal;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use polymeter_agent::log::Priority;

/// Looks at jobs closely and cheaply: each metric at its own period, from 100 µs to a day.
#[derive(Debug, Parser)]
#[command(name = "polymeter", version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a command, sample it, and report what it used.
    Run(run::Arguments),
    /// Report what a stored job used.
    Report(report::Arguments),
    /// List the metrics that there are, and where they come from.
    Metrics(catalogue::Arguments),
    /// Show how this node's agent goes: samples due, taken, late and missed, and what they cost.
    Status(control::StatusArguments),
    /// List the jobs that this node's agent follows.
    Jobs(control::JobsArguments),
    /// Show what of a job is sampled, at which period, and because of whom.
    Plan(control::PlanArguments),
    /// Sample metrics of a running job at other periods, for a while.
    Set(control::SetArguments),
    /// End your changes to a job's periods.
    Reset(control::ResetArguments),
    /// Make a key pair, with which an agent or a collector encrypts and shows who it is.
    Keygen(keygen::Arguments),
    /// Say for a scheduler that a job starts or has ended on this node.
    Job(job::Arguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Err(error) if error.use_stderr() && job::spares(std::env::args_os()) => {
            job::report(Priority::Error, error.render().to_string().trim_end());
            return ExitCode::SUCCESS;
        }
        parsed => parsed.unwrap_or_else(|error| error.exit()),
    };
    let done = match arguments.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Report(arguments) => report::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Keygen(arguments) => keygen::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Metrics(arguments) => catalogue::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Status(arguments) => control::status(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Jobs(arguments) => control::jobs(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Plan(arguments) => control::plan(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Set(arguments) => control::set(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Reset(arguments) => control::reset(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Job(arguments) => Ok(job::run(&arguments)),
    };
    done.unwrap_or_else(|failure| {
        terminal::complain(&format!("polymeter: {failure}\n"));
        failure.exit_code()
    })
}
