//! `polymeter plan`: the sampled metrics of a job, their periods and the reasons.

use polymeter_proto::control::{Answer, PlanAnswer, PlanRequest, Request};
use polymeter_service::clock;

use crate::connection::agent::unexpected;
use crate::connection::target::{ControlTarget, TargetAnswer};
use crate::control_view::nodes;
use crate::control_view::plan::plan_text;
use crate::failure::Failure;
use crate::job_choice::JobChoice;
use crate::output::terminal;

#[derive(Debug, clap::Args)]
pub struct PlanArguments {
    #[command(flatten)]
    job: JobChoice,

    #[command(flatten)]
    target: ControlTarget,
}

pub(crate) fn execute(arguments: &PlanArguments) -> Result<(), Failure> {
    let verb = Request::Plan(PlanRequest { job: arguments.job.id(&arguments.target.socket())? });
    let answer = match arguments.target.ask(&verb, arguments.job.is_job())? {
        TargetAnswer::Nodes(answer) => return nodes::print(&answer, arguments.target.json),
        TargetAnswer::Agent(answer) => answer,
    };
    let Answer::Plan(PlanAnswer { plan, refused, .. }) = &answer else { return Err(unexpected(answer)) };
    if arguments.target.json {
        terminal::print_json(&answer)
    } else {
        let limit = terminal::width_limit(&std::io::stdout());
        terminal::print(&plan_text(plan, refused, clock::realtime_us(), limit))
    }
}
