//! `polymeter plan`: the sampled metrics of a job, their periods and the reasons.

use polymeter_proto::control::{Answer, PlanAnswer, PlanRequest, Request};
use polymeter_service::clock;

use crate::client::agent::unexpected;
use crate::client::job_choice::JobChoice;
use crate::client::target::{ControlTarget, TargetAnswer};
use crate::control_view::nodes;
use crate::control_view::plan::plan_text;
use crate::failure::Failure;
use crate::output::terminal;

#[derive(Debug, clap::Args)]
pub(crate) struct PlanArguments {
    #[command(flatten)]
    job: JobChoice,

    #[command(flatten)]
    target: ControlTarget,
}

impl PlanArguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.target.json
    }
}

pub(crate) fn execute(arguments: &PlanArguments) -> Result<(), Failure> {
    let verb = Request::Plan(PlanRequest { job: arguments.job.id(arguments.target.socket())? });
    let answer = match arguments.target.ask(&verb, arguments.job.is_job())? {
        TargetAnswer::Nodes(answer) => return nodes::print(&answer, arguments.is_json()),
        TargetAnswer::Agent(answer) => answer,
    };
    let Answer::Plan(PlanAnswer { plan, refused, .. }) = &answer else { return Err(unexpected(answer)) };
    if arguments.is_json() {
        terminal::print_json(&answer)
    } else {
        let limit = terminal::width_limit(&std::io::stdout());
        terminal::print(&plan_text(plan, refused, clock::realtime_us(), limit))
    }
}
