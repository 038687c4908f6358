//! `polymeter push`: records a value of the user's own in a job's data.

use std::collections::BTreeMap;

use polymeter_proto::control::{Answer, PushRequest, Request};

use crate::connection::agent::unexpected;
use crate::connection::target::{ControlTarget, TargetAnswer};
use crate::control_view::nodes;
use crate::failure::Failure;
use crate::job_choice::JobChoice;
use crate::output::terminal;

#[derive(Debug, clap::Args)]
pub struct PushArguments {
    /// The metric, to whose name `user.` is prepended, and its current value: loss=0.25.
    #[arg(value_name = "METRIC=VALUE")]
    value: String,

    /// The unit of the value, such as images/s.
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,

    /// A label of the series: --label rank=3. May be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,

    #[command(flatten)]
    job: JobChoice,

    #[command(flatten)]
    target: ControlTarget,
}

pub(crate) fn execute(arguments: &PushArguments) -> Result<(), Failure> {
    let (metric, value) = pair(&arguments.value, "loss=0.25")?;
    let number = value.parse().ok().filter(|number: &f64| number.is_finite());
    let value = number.ok_or_else(|| {
        Failure::Usage(format!(
            "cannot read `{value}`: it is not a number; write {metric}=0.25 or {metric}=1e-3"
        ))
    })?;
    let labels: Result<BTreeMap<String, String>, Failure> =
        arguments.labels.iter().map(|label| pair(label, "rank=3")).collect();
    let push = PushRequest {
        labels: labels?,
        job: arguments.job.id(&arguments.target.socket())?,
        metric,
        value,
        unit: arguments.unit.clone(),
    };
    // Success is silent: scripts push in loops.
    match arguments.target.ask(&Request::Push(push), arguments.job.is_job())? {
        TargetAnswer::Nodes(answer) if !arguments.target.json && nodes::have_succeeded(&answer) => Ok(()),
        TargetAnswer::Nodes(answer) => nodes::print(&answer, arguments.target.json),
        TargetAnswer::Agent(Answer::Done {}) if !arguments.target.json => Ok(()),
        TargetAnswer::Agent(answer @ Answer::Done {}) => terminal::print_json(&answer),
        TargetAnswer::Agent(answer) => Err(unexpected(answer)),
    }
}

fn pair(text: &str, example: &str) -> Result<(String, String), Failure> {
    let (key, value) = text.split_once('=').ok_or_else(|| {
        Failure::Usage(format!("cannot read `{text}`: it has no value; write it as {example}"))
    })?;
    Ok((key.to_owned(), value.to_owned()))
}
