//! Commands of `polymeter`: one file or directory each, and those of the client.

mod advise;
mod bundle;
mod calibrate;
mod check;
mod compare;
mod device;
mod doctor;
mod export;
mod flame;
mod jobs;
mod keygen;
mod notices;
mod overhead;
mod report;
mod run;
mod setup;
mod store;
mod trend;
mod usage;
pub(crate) mod watch;
pub(crate) mod watch_functions;

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
    /// Show the functions in which a stored job spent its time: text, flame graph, pprof.
    Flame(flame::FlameArguments),
    /// Compare two stored jobs, or two groups of jobs, by metric and phase.
    Compare(compare::CompareArguments),
    #[command(flatten)]
    Client(ClientCommand),
    /// List the jobs that this node's agent tracks, that run on all nodes, or that have ended.
    #[command(display_order = 20)]
    Jobs(jobs::JobsArguments),
    /// Show how well users, accounts, queues, arrays or jobs used what was requested.
    #[command(display_order = 28)]
    Usage(usage::UsageArguments),
    /// Show what the runs of one name used over time, where that changed, and what else changed there.
    #[command(display_order = 33)]
    Trend(trend::TrendArguments),
    /// Propose the time, memory, cores and GPUs of a job script from what earlier jobs like it needed.
    #[command(display_order = 29)]
    Advise(advise::AdviseArguments),
    /// List the notices that were sent about your jobs, or get none.
    #[command(display_order = 32)]
    Notices(notices::NoticesArguments),
    /// Set up a collector, a node or a login node: configuration, keys, database.
    #[command(display_order = 30)]
    Setup(setup::SetupArguments),
    /// Examine this machine's installation, and state a remedy for each problem.
    #[command(display_order = 31)]
    Doctor(doctor::DoctorArguments),
    /// Report the state of an agent or a collector to Nagios or Icinga, with performance data.
    #[command(display_order = 32)]
    Check(check::CheckArguments),
    /// Show the size of a store, its growth, and what retention removes next.
    #[command(display_order = 50)]
    Store(store::StoreArguments),
    /// Create a key pair for the encryption and authentication of an agent or a collector.
    #[command(display_order = 52)]
    Keygen(keygen::KeygenArguments),
    /// Measure how much sampling slows a running job, by its own measure of progress.
    #[command(display_order = 35)]
    Overhead(overhead::OverheadArguments),
    /// Try a device outside the nodes, which an agent could poll: power distribution unit, switch, wattmeter.
    #[command(display_order = 36)]
    Device(device::DeviceArguments),
    /// Measure the roofs of this node: bandwidth of its memory, peaks of floating-point operations.
    #[command(display_order = 34)]
    Calibrate(calibrate::CalibrateArguments),
}

impl Command {
    pub(crate) fn execute(self, program: &Program) -> Result<ExitCode, Failure> {
        if !matches!(self, Self::Run(_)) {
            run::ignore_file_size_signal();
        }
        match self {
            // The first group has exit statuses of its own.
            Self::Run(arguments) => return run::execute(&arguments),
            Self::Doctor(arguments) => return doctor::execute(&arguments),
            Self::Check(arguments) => return check::execute(&arguments),
            Self::Client(command) => return command.execute(program),
            Self::Report(arguments) => report::execute(&arguments)?,
            Self::Bundle(arguments) => bundle::execute(&arguments)?,
            Self::Export(arguments) => export::execute(&arguments)?,
            Self::Flame(arguments) => flame::execute(&arguments)?,
            Self::Compare(arguments) => compare::execute(&arguments)?,
            Self::Jobs(arguments) => jobs::execute(&arguments)?,
            Self::Usage(arguments) => usage::execute(&arguments)?,
            Self::Trend(arguments) => trend::execute(&arguments)?,
            Self::Advise(arguments) => advise::execute(&arguments)?,
            Self::Notices(arguments) => notices::execute(&arguments)?,
            Self::Setup(arguments) => setup::execute(&arguments)?,
            Self::Store(arguments) => store::execute(&arguments)?,
            Self::Keygen(arguments) => keygen::execute(&arguments)?,
            Self::Overhead(arguments) => overhead::execute(&arguments)?,
            Self::Device(arguments) => device::execute(&arguments)?,
            Self::Calibrate(arguments) => calibrate::execute(&arguments)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
