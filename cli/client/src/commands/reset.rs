//! `polymeter reset`: ends the user's changes to a job's periods.

use polymeter_proto::control::{Answer, Request, ResetAnswer, ResetRequest};

use crate::connection::agent::unexpected;
use crate::connection::target::{ControlTarget, TargetAnswer};
use crate::control_view::nodes;
use crate::failure::Failure;
use crate::job_choice::JobChoice;
use crate::job_choice::LevelChoice;
use crate::output::{terminal, units};

#[derive(Debug, clap::Args)]
pub struct ResetArguments {
    #[command(flatten)]
    level: LevelChoice,

    #[command(flatten)]
    job: JobChoice,

    #[command(flatten)]
    target: ControlTarget,
}

pub(crate) fn execute(arguments: &ResetArguments) -> Result<(), Failure> {
    let (job, level) =
        (arguments.job.id(&arguments.target.socket())?, arguments.level.level(&arguments.job)?);
    let verb = Request::Reset(ResetRequest { job, level });
    let answer = match arguments.target.ask(&verb, arguments.job.is_job())? {
        TargetAnswer::Nodes(answer) => return nodes::print(&answer, arguments.target.json),
        TargetAnswer::Agent(answer) => answer,
    };
    let Answer::Reset(ResetAnswer { ended }) = &answer else { return Err(unexpected(answer)) };
    if arguments.target.json {
        terminal::print_json(&answer)
    } else {
        terminal::print(&format!("{} ended\n", units::counted(ended, "lease")))
    }
}
