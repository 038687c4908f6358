//! `polymeter`: everything that a person types.

mod bundle;
mod catalogue;
mod control;
mod failure;
mod keygen;
mod report;
mod run;
mod terminal;
mod version;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Looks at jobs closely and cheaply: each metric at its own period, from 100 µs to a day.
#[derive(Debug, Parser)]
#[command(name = "polymeter", about, arg_required_else_help = true, args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Print the version.
    #[arg(short = 'V', long)]
    version: bool,

    /// With --version: as JSON, with what the program was made of.
    #[arg(long, requires = "version")]
    json: bool,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a command, sample it, and report what it used.
    Run(run::Arguments),
    /// Report what a stored job used.
    Report(report::Arguments),
    /// Put everything about a run into one directory: samples, plan, losses, machine, and how to do it again.
    Bundle(bundle::Arguments),
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
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.command {
        None => version::run(arguments.json).map(|()| ExitCode::SUCCESS),
        Some(Command::Run(arguments)) => run::run(&arguments),
        Some(Command::Bundle(arguments)) => bundle::run(&arguments).map(|()| ExitCode::SUCCESS),
        Some(Command::Report(arguments)) => report::run(&arguments).map(|()| ExitCode::SUCCESS),
        Some(Command::Keygen(arguments)) => keygen::run(&arguments).map(|()| ExitCode::SUCCESS),
        Some(Command::Metrics(arguments)) => catalogue::run(&arguments).map(|()| ExitCode::SUCCESS),
        Some(Command::Status(arguments)) => control::status(&arguments).map(|()| ExitCode::SUCCESS),
        Some(Command::Jobs(arguments)) => control::jobs(&arguments).map(|()| ExitCode::SUCCESS),
        Some(Command::Plan(arguments)) => control::plan(&arguments).map(|()| ExitCode::SUCCESS),
        Some(Command::Set(arguments)) => control::set(&arguments).map(|()| ExitCode::SUCCESS),
        Some(Command::Reset(arguments)) => control::reset(&arguments).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|failure| {
        terminal::complain(&format!("polymeter: {failure}\n"));
        failure.exit_code()
    })
}
