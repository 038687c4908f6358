//! `polymeter pmu`: releases the hardware's counters to other programs, and takes them again.

use clap::Subcommand;
use clap_complete::engine::ArgValueCompleter;
use polymeter_proto::control::{Answer, PmuReleaseRequest, PmuResumeRequest, Request, ResetAnswer};
use polymeter_service::clock;

use crate::completion::periods;
use crate::connection::agent::unexpected;
use crate::connection::target::{ControlTarget, TargetAnswer};
use crate::control_view::nodes;
use crate::control_view::plan::released_text;
use crate::failure::Failure;
use crate::job_choice::JobChoice;
use crate::output::{terminal, units};

#[derive(Debug, clap::Args)]
pub struct PmuArguments {
    #[command(subcommand)]
    command: PmuCommand,
}

#[derive(Debug, Subcommand)]
enum PmuCommand {
    /// Close the hardware events of a job, or of a node with all its jobs, for a limited time.
    Release(ReleaseArguments),
    /// Open the hardware events again that you released.
    Resume(ResumeArguments),
}

#[derive(Debug, clap::Args)]
struct ReleaseArguments {
    /// The time after which they are opened again. Default: the maximum that is allowed.
    #[arg(long = "for", value_name = "TIME", add = ArgValueCompleter::new(periods::duration))]
    duration: Option<String>,

    #[command(flatten)]
    job: JobChoice,

    #[command(flatten)]
    target: ControlTarget,
}

#[derive(Debug, clap::Args)]
struct ResumeArguments {
    #[command(flatten)]
    job: JobChoice,

    #[command(flatten)]
    target: ControlTarget,
}

pub(crate) fn execute(arguments: &PmuArguments) -> Result<(), Failure> {
    let (verb, job, target) = match &arguments.command {
        PmuCommand::Release(ReleaseArguments { duration, job, target }) => {
            let id = job.id(&target.socket())?;
            let request = PmuReleaseRequest { job: id, duration: duration.clone() };
            (Request::PmuRelease(request), job, target)
        }
        PmuCommand::Resume(ResumeArguments { job, target }) => {
            let id = job.id(&target.socket())?;
            (Request::PmuResume(PmuResumeRequest { job: id }), job, target)
        }
    };
    let answer = match target.ask(&verb, job.is_job())? {
        TargetAnswer::Nodes(answer) => return nodes::print(&answer, target.json),
        TargetAnswer::Agent(answer) => answer,
    };
    let text = if let Answer::PmuReleased(released) = &answer {
        released_text(released, clock::realtime_us())
    } else if let Answer::Reset(ResetAnswer { ended }) = &answer {
        format!("{} ended", units::counted(ended, "release"))
    } else {
        return Err(unexpected(answer));
    };
    if target.json { terminal::print_json(&answer) } else { terminal::print(&format!("{text}\n")) }
}
