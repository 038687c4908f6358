//! `polymeter set`: samples metrics of a running job at other periods for a limited time.

use std::collections::BTreeMap;

use polymeter_proto::control::{Answer, LeaseAnswer, Request, SetRequest};
use polymeter_service::clock;

use crate::client::agent::unexpected;
use crate::client::job_choice::JobChoice;
use crate::client::target::{ControlTarget, TargetAnswer};
use crate::control_view::nodes;
use crate::control_view::plan::cost_text;
use crate::failure::Failure;
use crate::output::table::table;
use crate::output::{terminal, units};

#[derive(Debug, clap::Args)]
pub(crate) struct SetArguments {
    /// Metrics and their periods: 'cpu.*=10ms' perf.page_faults=1ms.
    #[arg(required = true, value_name = "SELECTOR=PERIOD")]
    periods: Vec<String>,

    /// The duration of the change. Default: the maximum that is allowed.
    #[arg(long = "for", value_name = "TIME")]
    duration: Option<String>,

    #[command(flatten)]
    job: JobChoice,

    #[command(flatten)]
    target: ControlTarget,
}

impl SetArguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.target.json
    }

    /// Returns the requested periods by selector.
    fn plan(&self) -> Result<BTreeMap<String, String>, Failure> {
        let parts = |text: &String| {
            let (selector, period) = text.split_once('=').ok_or_else(|| {
                Failure::Usage(format!("cannot read `{text}`: it has no period; write {text}=10ms"))
            })?;
            Ok((selector.to_owned(), period.to_owned()))
        };
        self.periods.iter().map(parts).collect()
    }

    /// Returns true if a metric was named in full, and not selected by a pattern.
    fn names(&self, metric: &str) -> bool {
        self.periods.iter().any(|text| text.split('=').next() == Some(metric))
    }
}

pub(crate) fn execute(arguments: &SetArguments) -> Result<(), Failure> {
    let plan = arguments.plan()?;
    let job = arguments.job.id(arguments.target.socket())?;
    let verb = Request::Set(SetRequest { job, plan, duration: arguments.duration.clone() });
    let answer = match arguments.target.ask(&verb, arguments.job.is_job())? {
        TargetAnswer::Nodes(answer) => return nodes::print(&answer, arguments.is_json()),
        TargetAnswer::Agent(answer) => answer,
    };
    let Answer::Granted(LeaseAnswer { metrics, unavailable, cost, until_us }) = &answer else {
        return Err(unexpected(answer));
    };
    if arguments.is_json() {
        return terminal::print_json(&answer);
    }
    let rows: Vec<_> = metrics.iter().map(|(metric, period)| vec![metric.clone(), period.clone()]).collect();
    terminal::print(&table(&rows))?;
    let (cost, remaining) = (cost_text(cost), units::remaining(clock::realtime_us(), *until_us));
    terminal::print(&format!("all sampling of the job costs {cost}; ends in {remaining}\n"))?;
    // A pattern may select unavailable metrics without a message.
    for (metric, reason) in unavailable.iter().filter(|(metric, _)| arguments.names(metric)) {
        terminal::print_error(&format!("polymeter: {metric} is not available: {reason}\n"));
    }
    Ok(())
}
