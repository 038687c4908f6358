//! `polymeter keep`: sends what a job's ring holds of the last time.

use clap_complete::engine::ArgValueCompleter;
use polymeter_proto::control::{Answer, KeepLastRequest, Request};
use polymeter_proto::period::Period;
use polymeter_proto::text::Text;

use crate::completion::periods;
use crate::connection::agent::unexpected;
use crate::connection::target::{ControlTarget, TargetAnswer};
use crate::control_view::{keeps_text, nodes};
use crate::failure::Failure;
use crate::job_choice::JobChoice;
use crate::output::layout::wrapped_lines;
use crate::output::terminal;

#[derive(Debug, clap::Args)]
pub struct KeepArguments {
    /// The time before now of which the samples are kept.
    #[arg(long, value_name = "TIME", default_value = "30s", add = ArgValueCompleter::new(periods::duration))]
    last: Period,

    /// Why they are worth keeping; the report shows it.
    #[arg(long, value_name = "TEXT", default_value = "requested")]
    reason: String,

    #[command(flatten)]
    job: JobChoice,

    #[command(flatten)]
    target: ControlTarget,
}

pub(crate) fn execute(arguments: &KeepArguments) -> Result<(), Failure> {
    let Some(job) = arguments.job.id(&arguments.target.socket())? else {
        let message = "cannot keep samples of the node: only jobs have a ring; name one with --job";
        return Err(Failure::Usage(message.to_owned()));
    };
    let (last, reason) = (arguments.last.to_string(), Text::of(&arguments.reason));
    let verb = Request::KeepLast(KeepLastRequest { job, last, reason });
    match arguments.target.ask(&verb, true)? {
        TargetAnswer::Nodes(answer) => nodes::print(&answer, arguments.target.json),
        TargetAnswer::Agent(answer @ Answer::Keeps(_)) if arguments.target.json => {
            terminal::print_json(&answer)
        }
        TargetAnswer::Agent(Answer::Keeps(keeps)) => {
            let text = format!("keeps {}\n", keeps_text(&keeps));
            terminal::print(&wrapped_lines(&text, terminal::width_limit(&std::io::stdout())))
        }
        TargetAnswer::Agent(answer) => Err(unexpected(answer)),
    }
}
