//! The plan of a job or a node as text, and the predicted cost of sampling. Pure.

use polymeter_proto::control::{PlanLine, PredictedCost, RefusedLine};

use crate::output::table::{head, table_within};
use crate::output::units;

/// Lays out a plan as a table, and below it the refused requests of the submission.
pub(crate) fn plan_text(
    plan: &[PlanLine],
    refused: &[RefusedLine],
    now_us: i64,
    limit: Option<usize>,
) -> String {
    let row = |line: &PlanLine| {
        let ends =
            line.until_us.map_or_else(|| "-".to_owned(), |until_us| units::remaining(now_us, until_us));
        vec![line.metric.clone(), line.period.clone(), reason(line), ends]
    };
    let rows: Vec<_> = std::iter::once(head(["METRIC", "PERIOD", "REASON", "ENDS IN"]))
        .chain(plan.iter().map(row))
        .collect();
    let mut text = table_within(&rows, limit);
    for RefusedLine { request, period, reason } in refused {
        let period = period.as_ref().map_or_else(String::new, |period| format!("={period}"));
        text.push_str(&format!("refused request {request}{period}: {reason}\n"));
    }
    text
}

/// Formats the reason for a metric's period: the layer of the plan, and the owner of a lease.
pub(crate) fn reason(line: &PlanLine) -> String {
    let actor = line.actor.as_ref().map_or_else(String::new, |actor| format!(" of {actor}"));
    format!("{}{actor}", line.cause)
}

/// Formats the predicted cost of sampling a job.
pub(crate) fn cost_text(cost: &PredictedCost) -> String {
    let samples = units::number(cost.samples_per_s);
    format!("{:.2} % of a CPU, {samples} samples/s, {:.0} bytes/s", cost.cpu_percent, cost.bytes_per_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot;

    #[test]
    fn a_plan_is_laid_out_as_recorded() {
        let plan = serde_json::json!([
            {"metric": "cpu.usage", "period": "10ms", "cause": "lease", "actor": "uid 1000", "until_us": 600_000_000},
            {"metric": "memory.current", "period": "1s", "cause": "baseline"},
            {"metric": "perf.instructions", "period": "100ms", "cause": "registration"},
        ]);
        let refused = serde_json::json!([
            {"request": "io.*", "period": "100us", "reason": "the shortest period allowed for io.read.bytes is 10ms"},
            {"request": "faster", "reason": "`faster` has no period; write faster=10ms"},
        ]);
        let plan: Vec<PlanLine> = serde_json::from_value(plan).unwrap();
        let refused: Vec<RefusedLine> = serde_json::from_value(refused).unwrap();
        snapshot::check("plan", &plan_text(&plan, &refused, 0, Some(80)));
    }
}
