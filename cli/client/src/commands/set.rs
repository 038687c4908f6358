//! `polymeter set`: samples metrics of a running job at other periods for a limited time.

use std::collections::BTreeMap;

use clap_complete::engine::ArgValueCompleter;
use polymeter_proto::control::{Answer, LeaseAnswer, Request, SetRequest};
use polymeter_service::clock;

use crate::completion::{metrics, periods};
use crate::connection::agent::unexpected;
use crate::connection::target::{ControlTarget, TargetAnswer};
use crate::control_view::nodes;
use crate::control_view::plan::{cost_text, targets_text};
use crate::failure::Failure;
use crate::job_choice::JobChoice;
use crate::job_choice::LevelChoice;
use crate::output::layout::wrapped_lines;
use crate::output::table::table;
use crate::output::{terminal, units};

#[derive(Debug, clap::Args)]
pub struct SetArguments {
    /// Metrics and their periods: 'cpu.*=10ms' perf.page_faults=1ms. 'cpu.*=1ms/1s' takes a sample every
    /// millisecond, and sends last value, count, extremes and sum every second, 'cpu.*=1ms/1s/histogram' with
    /// a histogram of the samples.
    #[arg(required = true, value_name = "SELECTOR=PERIOD", add = ArgValueCompleter::new(metrics::metric_with_period))]
    periods: Vec<String>,

    /// Hold the samples in the ring of the job, in memory, until `polymeter keep` or a trigger wants them:
    /// reading costs the same, and nothing is sent.
    #[arg(long, conflicts_with_all = ["steps", "tasks", "node"])]
    ring: bool,

    #[command(flatten)]
    level: LevelChoice,

    /// The duration of the change. Default: the maximum that is allowed.
    #[arg(long = "for", value_name = "TIME", add = ArgValueCompleter::new(periods::duration))]
    duration: Option<String>,

    #[command(flatten)]
    job: JobChoice,

    #[command(flatten)]
    target: ControlTarget,
}

/// Periods by selector, from texts such as `cpu.*=10ms`.
pub fn plan_of(periods: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let mut plan = BTreeMap::new();
    for text in periods {
        let (selector, period) = text.split_once('=').ok_or_else(|| {
            Failure::Usage(format!("cannot read `{text}`: it has no period; write {text}=10ms"))
        })?;
        plan.insert(selector.to_owned(), period.to_owned());
    }
    Ok(plan)
}

impl SetArguments {
    /// True if a metric was named in full, and not selected by a pattern.
    fn names(&self, metric: &str) -> bool {
        self.periods.iter().any(|text| text.split('=').next() == Some(metric))
    }
}

fn rows(metrics: &BTreeMap<String, String>, reasons: &BTreeMap<String, String>) -> Vec<Vec<String>> {
    metrics
        .iter()
        .map(|(metric, period)| {
            let reason = (!reasons.is_empty()).then(|| reasons.get(metric).cloned().unwrap_or_default());
            [metric.clone(), period.clone()].into_iter().chain(reason).collect()
        })
        .collect()
}

pub(crate) fn execute(arguments: &SetArguments) -> Result<(), Failure> {
    let plan = plan_of(&arguments.periods)?;
    let job = arguments.job.id(&arguments.target.socket())?;
    let (level, duration) = (arguments.level.level(&arguments.job)?, arguments.duration.clone());
    let verb = Request::Set(SetRequest { job, level, ring: arguments.ring, plan, duration });
    let answer = match arguments.target.ask(&verb, arguments.job.is_job())? {
        TargetAnswer::Nodes(answer) => return nodes::print(&answer, arguments.target.json),
        TargetAnswer::Agent(answer) => answer,
    };
    let Answer::Granted(granted) = &answer else { return Err(unexpected(answer)) };
    let LeaseAnswer { metrics, reasons, unavailable, cost, until_us, .. } = granted;
    if arguments.target.json {
        return terminal::print_json(&answer);
    }
    terminal::print(&table(&rows(metrics, reasons)))?;
    let (cost, remaining) = (cost_text(cost), units::remaining(clock::realtime_us(), *until_us));
    let mut text = format!("all sampling of the job costs {cost}; ends in {remaining}\n");
    text.extend(targets_text(granted).map(|targets| targets + "\n"));
    if arguments.ring {
        text.push_str("the ring of the job holds the samples; `polymeter keep` sends what it has\n");
    }
    terminal::print(&wrapped_lines(&text, terminal::width_limit(&std::io::stdout())))?;
    // A pattern may select unavailable metrics without a message.
    for (metric, reason) in unavailable.iter().filter(|(metric, _)| arguments.names(metric)) {
        terminal::print_error(&format!("polymeter: {metric} is not available: {reason}\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot;

    #[test]
    fn periods_are_laid_out_with_the_reasons_why_they_are_longer() {
        let of = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(metric, text)| ((*metric).to_owned(), (*text).to_owned())).collect()
        };
        let metrics: BTreeMap<_, _> = of(&[("node.hwmon.power", "1s"), ("node.load1", "10ms")]);
        let reasons = of(&[("node.hwmon.power", "it changes every 1s: granted 1s instead of 10ms")]);
        snapshot::check("set", &table(&rows(&metrics, &reasons)));
        assert_eq!(rows(&metrics, &BTreeMap::new())[1], ["node.load1", "10ms"]);
    }
}
