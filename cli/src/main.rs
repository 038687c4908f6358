//! `polymeter`: everything that a person types.

mod catalogue;
mod control;
mod failure;
mod keygen;
mod manual;
mod own;
mod report;
mod run;
mod terminal;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Looks at jobs closely and cheaply: each metric at its own period, from 100 µs to a day.
#[derive(Debug, Parser)]
#[command(name = "polymeter", version, arg_required_else_help = true)]
#[command(
    after_help = "Exit status: 0 done, 1 refused or failed, 2 wrong usage, 3 the agent cannot be reached."
)]
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
    /// Put a named instant, or the begin or end of a phase, into a job's data.
    Mark(control::MarkArguments),
    /// Put a value of your own into a job's data.
    Push(control::PushArguments),
    /// Show what is sampled, as it is sampled.
    Watch(watch::Arguments),
    /// Print what completes this command in a shell.
    Completions(manual::CompletionsArguments),
    /// Print this command's manual page, or write the pages of all commands.
    Man(manual::ManArguments),
    /// Make a key pair, with which an agent or a collector encrypts and shows who it is.
    Keygen(keygen::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Report(arguments) => report::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Keygen(arguments) => keygen::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Metrics(arguments) => catalogue::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Status(arguments) => control::status(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Jobs(arguments) => control::jobs(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Plan(arguments) => control::plan(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Set(arguments) => control::set(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Reset(arguments) => control::reset(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Mark(arguments) => control::mark(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Push(arguments) => control::push(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Watch(arguments) => watch::run(&arguments),
        Command::Completions(arguments) => {
            manual::completions(&arguments, &mut Arguments::command()).map(|()| ExitCode::SUCCESS)
        }
        Command::Man(arguments) => manual::man(&arguments, Arguments::command()).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|failure| {
        terminal::complain(&format!("polymeter: {failure}\n"));
        failure.exit_code()
    })
}
