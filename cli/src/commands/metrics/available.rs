//! `polymeter metrics --job` and `--node`: what of the catalogue can be had there now, and what a read of it takes.

use polymeter_agent::control::{Answer, MetricLine, Subject, Verb};
use polymeter_proto::name::Selector;

use super::{Place, ask, json, refused};
use crate::failure::Failure;
use crate::report::units;
use crate::terminal;

/// Prints the metrics that `selector` chooses, as `job` has them, or the node without one.
pub(crate) fn available(place: &Place, job: Option<String>, selector: &Selector) -> Result<(), Failure> {
    let answer = ask(&place.socket, &Verb::Metrics(Subject { job }))?;
    let Answer::Metrics { mut metrics } = answer else { return Err(refused(answer)) };
    metrics.retain(|line| selector.matches(&line.metric));
    if metrics.is_empty() {
        return Err(Failure::Refused(format!(
            "no metric that can be asked for there is called `{selector}`"
        )));
    }
    if place.json {
        terminal::print_json(&json(&Answer::Metrics { metrics }))
    } else {
        terminal::print(&text(&metrics))
    }
}

/// What can be had before what cannot, each in the order in which the agent tells it.
fn text(metrics: &[MetricLine]) -> String {
    let head = ["METRIC", "UNIT", "PERIOD", "A READ", "FROM"].map(str::to_owned).to_vec();
    let cell = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let row = |line: &MetricLine| {
        let read = line.read_ns.filter(|ns| *ns > 0.0).map(units::seconds_of_ns);
        let from = match &line.reason {
            None => cell(&line.source),
            Some(reason) => format!("not available: {reason}"),
        };
        vec![line.metric.clone(), cell(&line.unit), cell(&line.period), cell(&read), from]
    };
    let (there, missing): (Vec<_>, Vec<_>) = metrics.iter().partition(|line| line.available);
    let rows = there.into_iter().chain(missing).map(row);
    terminal::table(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}
