//! The plan of a job or a node as text, and the predicted cost of sampling.

use polymeter_agent::control::{PlanLine, Predicted, RefusedLine};
use polymeter_service::clock;

use crate::output::table::{head, table};
use crate::output::units;

/// Lays out a plan as a table, and below it the refused requests of the submission.
pub(crate) fn plan_text(plan: &[PlanLine], refused: &[RefusedLine]) -> String {
    let now_us = clock::realtime_us();
    let row = |line: &PlanLine| {
        let ends =
            line.until_us.map_or_else(|| "-".to_owned(), |until_us| units::remaining(now_us, until_us));
        vec![line.metric.clone(), line.period.clone(), reason(line), ends]
    };
    let rows: Vec<_> = std::iter::once(head(["METRIC", "PERIOD", "REASON", "ENDS IN"]))
        .chain(plan.iter().map(row))
        .collect();
    let mut text = table(&rows);
    for RefusedLine { request, period, reason } in refused {
        let period = period.as_ref().map_or_else(String::new, |period| format!("={period}"));
        text.push_str(&format!("refused request {request}{period}: {reason}\n"));
    }
    text
}

/// Formats the reason for a metric's period: the layer of the plan, and the owner of a lease.
pub(crate) fn reason(line: &PlanLine) -> String {
    let actor = line.by.as_ref().map_or_else(String::new, |actor| format!(" of {actor}"));
    format!("{}{actor}", line.cause)
}

/// Formats the predicted cost of sampling a job.
pub(crate) fn cost_text(cost: &Predicted) -> String {
    let samples = units::number(cost.samples_per_s);
    format!("{:.2} % of a CPU, {samples} samples/s, {:.0} bytes/s", cost.cpu_percent, cost.bytes_per_s)
}

/// Formats the time until a lease ends.
pub(crate) fn remaining(until_us: i64) -> String {
    units::remaining(clock::realtime_us(), until_us)
}
