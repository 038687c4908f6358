//! `polymeter`: everything that a person types.

mod bundle;
mod catalogue;
mod control;
mod failure;
mod job;
mod keygen;
mod manual;
mod own;
mod report;
mod run;
mod terminal;
mod version;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use polymeter_agent::log::Priority;

use failure::Failure;

/// Looks at jobs closely and cheaply: each metric at its own period, from 100 µs to a day.
#[derive(Debug, Parser)]
#[command(name = "polymeter", about, arg_required_else_help = true, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Exit status: 0 done, 1 refused or failed, 2 wrong usage, 3 the agent cannot be reached."
)]
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
        None => version::run(arguments.json).map(|()| ExitCode::SUCCESS),
        Some(command) => command.obey(),
    };
    done.unwrap_or_else(|failure| {
        terminal::complain(&format!("polymeter: {failure}\n"));
        failure.exit_code()
    })
}

impl Command {
    fn obey(self) -> Result<ExitCode, Failure> {
        match self {
            // What these end with is not theirs alone to say.
            Self::Run(arguments) => return run::run(&arguments),
            Self::Watch(arguments) => return watch::run(&arguments),
            Self::Job(arguments) => return Ok(job::run(&arguments)),
            Self::Report(arguments) => report::run(&arguments)?,
            Self::Bundle(arguments) => bundle::run(&arguments)?,
            Self::Metrics(arguments) => catalogue::run(&arguments)?,
            Self::Status(arguments) => control::status(&arguments)?,
            Self::Jobs(arguments) => control::jobs(&arguments)?,
            Self::Plan(arguments) => control::plan(&arguments)?,
            Self::Set(arguments) => control::set(&arguments)?,
            Self::Reset(arguments) => control::reset(&arguments)?,
            Self::Mark(arguments) => control::mark(&arguments)?,
            Self::Push(arguments) => control::push(&arguments)?,
            Self::Completions(arguments) => manual::completions(&arguments, &mut Arguments::command())?,
            Self::Man(arguments) => manual::man(&arguments, Arguments::command())?,
            Self::Keygen(arguments) => keygen::run(&arguments)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
