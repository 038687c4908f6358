//! Commands of the client: one file or directory each.

pub(crate) mod completions;
pub(crate) mod job;
pub mod jobs;
mod keep;
mod man;
mod mark;
mod metrics;
mod plan;
mod pmu;
mod push;
mod reset;
mod set;
mod status;
mod token;
mod trigger;
pub(crate) mod version;
mod watch;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Failure;
use crate::local::Program;
pub use job::{InvalidField, quantity, time_limit_s};
pub use man::{SUPPLEMENTS, Supplement, USER_COMMANDS, page, with_subcommands};
pub use set::plan_of;

/// The commands that both programs have. Their order in the help is explicit, since the full program lists
/// others in between.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// List the metrics and their origins.
    #[command(display_order = 10)]
    Metrics(metrics::MetricsArguments),
    /// Show the status of this node's agent: samples due, taken, late and missed, and their cost.
    #[command(display_order = 11)]
    Status(status::StatusArguments),
    /// Show the sampled metrics of a job, their periods and the reasons.
    #[command(display_order = 21)]
    Plan(plan::PlanArguments),
    /// Sample metrics of a running job at other periods for a limited time.
    #[command(display_order = 22)]
    Set(set::SetArguments),
    /// End your changes to a job's periods.
    #[command(display_order = 23)]
    Reset(reset::ResetArguments),
    /// Record an instant, or the begin or end of a phase, in a job's data.
    #[command(display_order = 24)]
    Mark(mark::MarkArguments),
    /// Keep the samples that a job's ring holds of the last time.
    #[command(display_order = 24)]
    Keep(keep::KeepArguments),
    /// Release the hardware's counters to other programs, and take them again.
    #[command(display_order = 24)]
    Pmu(pmu::PmuArguments),
    /// Record a value of your own in a job's data.
    #[command(display_order = 25)]
    Push(push::PushArguments),
    /// Let something happen when a condition becomes true: keep the ring, raise periods, mark.
    #[command(display_order = 25)]
    Trigger(trigger::TriggerArguments),
    /// Show samples as they are taken.
    #[command(display_order = 26)]
    Watch(watch::WatchArguments),
    /// Create, list and revoke tokens of the HTTP API.
    #[command(display_order = 27)]
    Token(token::TokenArguments),
    /// Print the completion script for a shell.
    #[command(display_order = 40)]
    Completions(completions::CompletionsArguments),
    /// Print the manual page of this command, or write the pages of all commands.
    #[command(display_order = 41)]
    Man(man::ManArguments),
    /// Notify Polymeter of the start or end of a job, from the scripts of a scheduler.
    #[command(display_order = 60)]
    Job(job::JobArguments),
}

impl ClientCommand {
    pub fn execute(self, program: &Program) -> Result<ExitCode, Failure> {
        match self {
            // The first group has exit statuses of its own.
            Self::Watch(arguments) => return watch::execute(&arguments, program.local),
            Self::Job(arguments) => return Ok(job::execute(&arguments)),
            Self::Metrics(arguments) => metrics::execute(&arguments)?,
            Self::Status(arguments) => status::execute(&arguments)?,
            Self::Plan(arguments) => plan::execute(&arguments)?,
            Self::Set(arguments) => set::execute(&arguments)?,
            Self::Reset(arguments) => reset::execute(&arguments)?,
            Self::Mark(arguments) => mark::execute(&arguments)?,
            Self::Keep(arguments) => keep::execute(&arguments)?,
            Self::Pmu(arguments) => pmu::execute(&arguments)?,
            Self::Push(arguments) => push::execute(&arguments)?,
            Self::Trigger(arguments) => trigger::execute(&arguments, program.local)?,
            Self::Token(arguments) => token::execute(&arguments)?,
            Self::Completions(arguments) => completions::execute(&arguments)?,
            Self::Man(arguments) => man::execute(&arguments, program)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
