//! `polymeter reset`: ends the user's changes to a job's periods.

use polymeter_proto::control::{Answer, Request, ResetAnswer, ResetRequest};

use crate::client::agent::unexpected;
use crate::client::job_choice::JobChoice;
use crate::client::level_choice::LevelChoice;
use crate::client::target::{ControlTarget, TargetAnswer};
use crate::control_view::nodes;
use crate::failure::Failure;
use crate::output::terminal;

#[derive(Debug, clap::Args)]
pub(crate) struct ResetArguments {
    #[command(flatten)]
    level: LevelChoice,

    #[command(flatten)]
    job: JobChoice,

    #[command(flatten)]
    target: ControlTarget,
}

impl ResetArguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.target.json
    }
}

pub(crate) fn execute(arguments: &ResetArguments) -> Result<(), Failure> {
    let (job, level) = (arguments.job.id(arguments.target.socket())?, arguments.level.level(&arguments.job)?);
    let verb = Request::Reset(ResetRequest { job, level });
    let answer = match arguments.target.ask(&verb, arguments.job.is_job())? {
        TargetAnswer::Nodes(answer) => return nodes::print(&answer, arguments.is_json()),
        TargetAnswer::Agent(answer) => answer,
    };
    let Answer::Reset(ResetAnswer { ended }) = &answer else { return Err(unexpected(answer)) };
    if arguments.is_json() {
        terminal::print_json(&answer)
    } else {
        terminal::print(&format!("{ended} leases ended\n"))
    }
}
