//! `polymeter`: everything that a person types.

mod bundle;
mod catalogue;
mod control;
mod failure;
mod job;
mod keygen;
mod manual;
mod own;
mod printable;
mod report;
mod run;
mod terminal;
mod version;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use polymeter_agent::log::Priority;

use failure::{Failure, Form};

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
    polymeter_service::log::init("polymeter");
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return not_parsed(&error),
    };
    let (form, done) = match arguments.command {
        None => (Form::of(arguments.json), version::run(arguments.json).map(|()| ExitCode::SUCCESS)),
        Some(command) => (command.form(), command.obey()),
    };
    done.unwrap_or_else(|failure| told(&failure, form))
}

/// Says what failed, and with which exit status.
fn told(failure: &Failure, form: Form) -> ExitCode {
    failure.print(form);
    failure.exit_code()
}

/// What was typed is wrong, or asks for help.
fn not_parsed(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    if !error.use_stderr() {
        let printed = terminal::print(&text);
        return printed.map_or_else(|failure| told(&failure, Form::Text), |()| ExitCode::SUCCESS);
    }
    if job::spares(std::env::args_os()) {
        job::report(Priority::Error, text.trim_end());
        return ExitCode::SUCCESS;
    }
    let mut own = std::env::args_os().skip(1).take_while(|argument| argument != "--").peekable();
    let runs = own.peek().is_some_and(|verb| verb == "run");
    let failure = Failure::Usage(text.trim_start_matches("error: ").trim_end().to_owned());
    match (own.any(|argument| argument == "--json"), runs) {
        (true, true) => return told(&failure, Form::JsonOnStderr),
        (true, false) => return told(&failure, Form::Json),
        (false, _) => terminal::complain(&text),
    }
    failure.exit_code()
}

impl Command {
    /// How a failure is told.
    fn form(&self) -> Form {
        match self {
            Self::Run(arguments) if arguments.is_json() => Form::JsonOnStderr,
            Self::Report(arguments) => Form::of(arguments.is_json()),
            Self::Metrics(arguments) => Form::of(arguments.is_json()),
            Self::Status(arguments) => Form::of(arguments.is_json()),
            Self::Jobs(arguments) => Form::of(arguments.is_json()),
            Self::Plan(arguments) => Form::of(arguments.is_json()),
            Self::Set(arguments) => Form::of(arguments.is_json()),
            Self::Reset(arguments) => Form::of(arguments.is_json()),
            Self::Mark(arguments) => Form::of(arguments.is_json()),
            Self::Push(arguments) => Form::of(arguments.is_json()),
            Self::Watch(arguments) => Form::of(arguments.is_json()),
            Self::Keygen(arguments) => Form::of(arguments.is_json()),
            Self::Run(_) | Self::Bundle(_) | Self::Completions(_) | Self::Man(_) | Self::Job(_) => Form::Text,
        }
    }

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
