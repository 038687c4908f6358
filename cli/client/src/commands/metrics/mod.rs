//! `polymeter metrics`: the metrics of the catalogue, or the availability of metrics for a job or the node.

mod available;
mod catalogue;

use clap_complete::engine::ArgValueCompleter;
use polymeter_proto::catalogue::derived::{self, Derived};
use polymeter_proto::catalogue::{Metric, nearest, select};
use polymeter_proto::name::Selector;

use crate::completion::{jobs, metrics};
use crate::connection::agent::AgentOptions;
use crate::failure::Failure;
use crate::output::terminal;

#[derive(Debug, clap::Args)]
pub struct MetricsArguments {
    /// The metrics to list, such as 'memory.*'.
    #[arg(default_value = "*", add = ArgValueCompleter::new(metrics::metric))]
    selector: Selector,

    /// Show which metrics this job has, why others are unavailable, their origins and their read costs.
    #[arg(long, value_name = "ID", add = ArgValueCompleter::new(jobs::running))]
    job: Option<String>,

    /// Show the same for the node.
    #[arg(long, conflicts_with = "job")]
    node: bool,

    /// Print the page docs/reference/metrics.md.
    #[arg(long, conflicts_with_all = ["json", "job", "node"])]
    markdown: bool,

    #[command(flatten)]
    agent: AgentOptions,
}

pub(crate) fn execute(arguments: &MetricsArguments) -> Result<(), Failure> {
    if arguments.job.is_some() || arguments.node {
        return available::execute(&arguments.agent, arguments.job.clone(), &arguments.selector);
    }
    let selector = &arguments.selector;
    let chosen: Vec<&Metric> = select(selector).into_iter().map(|definition| definition.metric).collect();
    let derived =
        derived::all().filter(|derived| selector.matches(derived.name) || derived.is_selected(selector));
    let derived: Vec<&Derived> = derived.collect();
    if chosen.is_empty() && derived.is_empty() {
        let suggestion =
            nearest(selector.as_str()).map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
        return Err(Failure::Failed(format!("unknown metric `{selector}`{suggestion}")));
    }
    match (arguments.agent.json, arguments.markdown) {
        (true, _) => terminal::print_json(&catalogue::json(&chosen, &derived)),
        (_, true) => terminal::print(&catalogue::markdown()),
        _ => terminal::print(&catalogue::text(&chosen, &derived)),
    }
}
