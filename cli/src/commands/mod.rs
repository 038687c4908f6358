//! The commands of `polymeter`: one file or directory each, and those of the client.

mod bundle;
mod compare;
mod doctor;
mod export;
mod jobs;
mod keep;
mod keygen;
mod report;
mod run;
mod setup;
mod store;
pub(crate) mod watch;

use std::process::ExitCode;

use clap::Subcommand;
use polymeter_client::commands::ClientCommand;
use polymeter_client::local::Program;

use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command, sample it, and report its resource usage.
    Run(run::RunArguments),
    /// Report the resource usage of a stored job.
    Report(report::ReportArguments),
    /// Export a job to a directory: samples, plan, losses, machine information and instructions to repeat the
    /// run.
    Bundle(bundle::BundleArguments),
    /// Write the samples of a stored job into a file: Parquet, CSV or JSON lines.
    Export(export::ExportArguments),
    /// Compare two stored jobs, or two groups of jobs, by metric and phase.
    Compare(compare::CompareArguments),
    #[command(flatten)]
    Client(ClientCommand),
    /// List the jobs that this node's agent tracks, that run on all nodes, or that have ended.
    #[command(display_order = 20)]
    Jobs(jobs::JobsArguments),
    /// Set up a collector, a node or a login node: configuration, keys, database.
    #[command(display_order = 30)]
    Setup(setup::SetupArguments),
    /// Examine this machine's installation, and state a remedy for each problem.
    #[command(display_order = 31)]
    Doctor(doctor::DoctorArguments),
    /// Show the size of a store, its growth, and what retention removes next.
    #[command(display_order = 50)]
    Store(store::StoreArguments),
    /// Exempt a stored job from retention.
    #[command(display_order = 51)]
    Keep(keep::KeepArguments),
    /// Create a key pair for the encryption and authentication of an agent or a collector.
    #[command(display_order = 52)]
    Keygen(keygen::KeygenArguments),
}

impl Command {
    pub(crate) fn execute(self, program: &Program) -> Result<ExitCode, Failure> {
        match self {
            // The first group has exit statuses of its own.
            Self::Run(arguments) => return run::execute(&arguments),
            Self::Doctor(arguments) => return doctor::execute(&arguments),
            Self::Client(command) => return command.execute(program),
            Self::Report(arguments) => report::execute(&arguments)?,
            Self::Bundle(arguments) => bundle::execute(&arguments)?,
            Self::Export(arguments) => export::execute(&arguments)?,
            Self::Compare(arguments) => compare::execute(&arguments)?,
            Self::Jobs(arguments) => jobs::execute(&arguments)?,
            Self::Setup(arguments) => setup::execute(&arguments)?,
            Self::Store(arguments) => store::execute(&arguments)?,
            Self::Keep(arguments) => keep::execute(&arguments)?,
            Self::Keygen(arguments) => keygen::execute(&arguments)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
