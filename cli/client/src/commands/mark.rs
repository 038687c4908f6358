//! `polymeter mark`: records an instant or a phase in a job's data.

use polymeter_proto::control::{Answer, MarkRequest, Request};
use polymeter_proto::ledger::MarkKind;

use crate::connection::agent::unexpected;
use crate::connection::target::{ControlTarget, TargetAnswer};
use crate::control_view::nodes;
use crate::failure::Failure;
use crate::job_choice::JobChoice;
use crate::output::terminal;

#[derive(Debug, clap::Args)]
pub struct MarkArguments {
    /// The name of the instant or phase, such as `solver` or 'checkpoint 3'.
    #[arg(value_name = "NAME")]
    name: String,

    /// Begin a phase of this name.
    #[arg(long)]
    begin: bool,

    /// End the phase of this name.
    #[arg(long, conflicts_with = "begin")]
    end: bool,

    #[command(flatten)]
    job: JobChoice,

    #[command(flatten)]
    target: ControlTarget,
}

pub(crate) fn execute(arguments: &MarkArguments) -> Result<(), Failure> {
    let kind = match (arguments.begin, arguments.end) {
        (true, _) => MarkKind::Begin,
        (_, true) => MarkKind::End,
        _ => MarkKind::Instant,
    };
    let verb = Request::Mark(MarkRequest {
        job: arguments.job.id(&arguments.target.socket())?,
        name: arguments.name.clone(),
        kind: Some(kind.as_str().to_owned()),
    });
    match arguments.target.ask(&verb, arguments.job.is_job())? {
        TargetAnswer::Nodes(answer) => nodes::print(&answer, arguments.target.json),
        // Success is silent: scripts mark in loops.
        TargetAnswer::Agent(Answer::Done {}) if !arguments.target.json => Ok(()),
        TargetAnswer::Agent(answer @ Answer::Done {}) => terminal::print_json(&answer),
        TargetAnswer::Agent(answer) => Err(unexpected(answer)),
    }
}
