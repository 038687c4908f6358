//! The commands of `polymeter`: one file or directory each.

#[cfg(feature = "local")]
mod bundle;
#[cfg(feature = "local")]
mod compare;
mod completions;
#[cfg(feature = "local")]
mod doctor;
#[cfg(feature = "local")]
mod export;
mod job;
mod jobs;
#[cfg(feature = "local")]
mod keep;
#[cfg(feature = "local")]
mod keygen;
#[cfg(not(feature = "local"))]
mod left_out;
mod man;
mod mark;
mod metrics;
mod plan;
mod push;
#[cfg(feature = "local")]
mod report;
mod reset;
#[cfg(feature = "local")]
mod run;
mod set;
#[cfg(feature = "local")]
mod setup;
mod status;
#[cfg(feature = "local")]
mod store;
mod token;
mod version;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::{ErrorFormat, Failure};

/// Monitor and profile HPC jobs, each metric at its own sampling period.
#[derive(Debug, Parser)]
#[command(name = "polymeter", arg_required_else_help = true, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Exit status: 0 success, 1 refused or failed, 2 wrong usage, 3 agent or collector not reachable."
)]
pub(crate) struct CommandLine {
    /// Print the version.
    #[arg(short = 'V', long)]
    version: bool,

    /// With --version: print JSON with the origin of the build.
    #[arg(long, requires = "version")]
    json: bool,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a command, sample it, and report its resource usage.
    #[cfg(feature = "local")]
    Run(run::RunArguments),
    /// Report the resource usage of a stored job.
    #[cfg(feature = "local")]
    Report(report::ReportArguments),
    /// Export a job to a directory: samples, plan, losses, machine information and instructions to repeat the run.
    #[cfg(feature = "local")]
    Bundle(bundle::BundleArguments),
    /// Write the samples of a stored job into a file: Parquet, CSV or JSON lines.
    #[cfg(feature = "local")]
    Export(export::ExportArguments),
    /// Compare two stored jobs, or two groups of jobs, by metric and phase.
    #[cfg(feature = "local")]
    Compare(compare::CompareArguments),
    /// List the metrics and their origins.
    Metrics(metrics::MetricsArguments),
    /// Show the status of this node's agent: samples due, taken, late and missed, and their cost.
    Status(status::StatusArguments),
    /// List the jobs that this node's agent tracks, that run on all nodes, or that have ended.
    Jobs(jobs::JobsArguments),
    /// Show the sampled metrics of a job, their periods and the reasons.
    Plan(plan::PlanArguments),
    /// Sample metrics of a running job at other periods for a limited time.
    Set(set::SetArguments),
    /// End your changes to a job's periods.
    Reset(reset::ResetArguments),
    /// Record an instant, or the begin or end of a phase, in a job's data.
    Mark(mark::MarkArguments),
    /// Record a value of your own in a job's data.
    Push(push::PushArguments),
    /// Show samples as they are taken.
    Watch(watch::WatchArguments),
    /// Create, list and revoke tokens of the HTTP API.
    Token(token::TokenArguments),
    /// Set up a collector, a node or a login node: configuration, keys, database.
    #[cfg(feature = "local")]
    Setup(setup::SetupArguments),
    /// Examine this machine's installation, and state a remedy for each problem.
    #[cfg(feature = "local")]
    Doctor(doctor::DoctorArguments),
    /// Print the completion script for a shell.
    Completions(completions::CompletionsArguments),
    /// Print the manual page of this command, or write the pages of all commands.
    Man(man::ManArguments),
    /// Show the size of a store, its growth, and what retention removes next.
    #[cfg(feature = "local")]
    Store(store::StoreArguments),
    /// Exempt a stored job from retention.
    #[cfg(feature = "local")]
    Keep(keep::KeepArguments),
    /// Create a key pair for the encryption and authentication of an agent or a collector.
    #[cfg(feature = "local")]
    Keygen(keygen::KeygenArguments),
    /// Notify Polymeter of the start or end of a job, from the scripts of a scheduler.
    Job(job::JobArguments),
    #[cfg(not(feature = "local"))]
    #[command(flatten)]
    LeftOut(left_out::LeftOutCommand),
}

/// The result of a command: its exit status, or the failure and the format in which it is reported.
type CommandResult = Result<ExitCode, (Failure, ErrorFormat)>;

impl CommandLine {
    /// Executes the command.
    pub(crate) fn execute(self) -> CommandResult {
        let (format, result) = match self.command {
            None => (ErrorFormat::of(self.json), version::execute(self.json).map(|()| ExitCode::SUCCESS)),
            Some(command) => (command.error_format(), command.execute()),
        };
        result.map_err(|failure| (failure, format))
    }
}

impl Command {
    /// Returns the format in which a failure is reported.
    fn error_format(&self) -> ErrorFormat {
        match self {
            #[cfg(feature = "local")]
            Self::Run(arguments) if arguments.is_json() => ErrorFormat::JsonOnStderr,
            #[cfg(feature = "local")]
            Self::Report(arguments) => ErrorFormat::of(arguments.is_json()),
            #[cfg(feature = "local")]
            Self::Compare(arguments) => ErrorFormat::of(arguments.is_json()),
            #[cfg(feature = "local")]
            Self::Export(arguments) if arguments.is_json() => ErrorFormat::Json,
            #[cfg(feature = "local")]
            Self::Keygen(arguments) => ErrorFormat::of(arguments.is_json()),
            #[cfg(feature = "local")]
            Self::Store(arguments) => ErrorFormat::of(arguments.is_json()),
            #[cfg(feature = "local")]
            Self::Keep(arguments) => ErrorFormat::of(arguments.is_json()),
            #[cfg(feature = "local")]
            Self::Doctor(arguments) => ErrorFormat::of(arguments.is_json()),
            #[cfg(feature = "local")]
            Self::Run(_) | Self::Bundle(_) | Self::Export(_) | Self::Setup(_) => ErrorFormat::Text,
            #[cfg(not(feature = "local"))]
            Self::LeftOut(command) => command.error_format(),
            Self::Metrics(arguments) => ErrorFormat::of(arguments.is_json()),
            Self::Status(arguments) => ErrorFormat::of(arguments.is_json()),
            Self::Jobs(arguments) => ErrorFormat::of(arguments.is_json()),
            Self::Plan(arguments) => ErrorFormat::of(arguments.is_json()),
            Self::Set(arguments) => ErrorFormat::of(arguments.is_json()),
            Self::Reset(arguments) => ErrorFormat::of(arguments.is_json()),
            Self::Mark(arguments) => ErrorFormat::of(arguments.is_json()),
            Self::Push(arguments) => ErrorFormat::of(arguments.is_json()),
            Self::Watch(arguments) => ErrorFormat::of(arguments.is_json()),
            Self::Token(arguments) => ErrorFormat::of(arguments.is_json()),
            Self::Completions(_) | Self::Man(_) | Self::Job(_) => ErrorFormat::Text,
        }
    }

    fn execute(self) -> Result<ExitCode, Failure> {
        match self {
            // The first group has exit statuses of its own.
            #[cfg(feature = "local")]
            Self::Run(arguments) => return run::execute(&arguments),
            Self::Watch(arguments) => return watch::execute(&arguments),
            #[cfg(feature = "local")]
            Self::Doctor(arguments) => return doctor::execute(&arguments),
            Self::Job(arguments) => return Ok(job::execute(&arguments)),
            #[cfg(feature = "local")]
            Self::Report(arguments) => report::execute(&arguments)?,
            #[cfg(feature = "local")]
            Self::Bundle(arguments) => bundle::execute(&arguments)?,
            #[cfg(feature = "local")]
            Self::Export(arguments) => export::execute(&arguments)?,
            #[cfg(feature = "local")]
            Self::Compare(arguments) => compare::execute(&arguments)?,
            #[cfg(feature = "local")]
            Self::Keygen(arguments) => keygen::execute(&arguments)?,
            #[cfg(feature = "local")]
            Self::Store(arguments) => store::execute(&arguments)?,
            #[cfg(feature = "local")]
            Self::Keep(arguments) => keep::execute(&arguments)?,
            #[cfg(feature = "local")]
            Self::Setup(arguments) => setup::execute(&arguments)?,
            #[cfg(not(feature = "local"))]
            Self::LeftOut(command) => return Err(command.failure()),
            Self::Metrics(arguments) => metrics::execute(&arguments)?,
            Self::Status(arguments) => status::execute(&arguments)?,
            Self::Jobs(arguments) => jobs::execute(&arguments)?,
            Self::Plan(arguments) => plan::execute(&arguments)?,
            Self::Set(arguments) => set::execute(&arguments)?,
            Self::Reset(arguments) => reset::execute(&arguments)?,
            Self::Mark(arguments) => mark::execute(&arguments)?,
            Self::Push(arguments) => push::execute(&arguments)?,
            Self::Token(arguments) => token::execute(&arguments)?,
            Self::Completions(arguments) => completions::execute(&arguments)?,
            Self::Man(arguments) => man::execute(&arguments, CommandLine::command())?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints the candidates for which the completion script of a shell asks. Returns false if none does.
pub(crate) fn answer_completion() -> bool {
    completions::answer(CommandLine::command)
}

/// Returns true if `arguments` belong to a scheduler's script, which wrong usage must not fail. It is only
/// reported.
pub(crate) fn tolerates_wrong_usage(arguments: impl Iterator<Item = OsString>) -> bool {
    job::tolerates_wrong_usage(arguments)
}

/// Reports wrong usage in a scheduler's script, on stderr and to syslog.
pub(crate) fn report_wrong_usage(message: &str) {
    job::report_error(message);
}
