//! Plan of a job or a node as text, and the predicted cost of sampling. Pure.

use polymeter_proto::control::{LeaseAnswer, PlanLine, PmuReleaseAnswer, PredictedCost, RefusedLine};
use polymeter_proto::step_level::StepLevel;

use crate::output::layout::wrapped_lines;
use crate::output::table::{figure, head, table_within};
use crate::output::units;

/// Adds the reasons for periods that are longer than requested, and the refused requests of the submission.
pub(crate) fn plan_text(
    plan: &[PlanLine],
    refused: &[RefusedLine],
    now_us: i64,
    limit: Option<usize>,
) -> String {
    let has_levels = plan.iter().any(|line| line.level.is_some());
    let with_level = |mut cells: Vec<String>, level: &str| {
        if has_levels {
            cells.insert(1, level.to_owned());
        }
        cells
    };
    let head = with_level(head(["METRIC", "PERIOD", "REASON", "ENDS IN"]), "OF");
    let rows: Vec<_> = std::iter::once(head)
        .chain(plan.iter().map(|line| {
            let ends = figure(line.until_us, |until_us| units::remaining(now_us, until_us));
            with_level(
                vec![line.metric.clone(), line.period.clone(), reason(line), ends],
                level_name(line.level),
            )
        }))
        .collect();
    let mut text = table_within(&rows, limit);
    for (line, reason) in plan.iter().filter_map(|line| Some((line, line.reason.as_ref()?))) {
        let level = line.level.map_or_else(String::new, |level| format!(" of {}", level_name(Some(level))));
        text.push_str(&wrapped_lines(&format!("{}{level}: {reason}\n", line.metric), limit));
    }
    for RefusedLine { request, period, reason } in refused {
        let period = period.as_ref().map_or_else(String::new, |period| format!("={period}"));
        text.push_str(&wrapped_lines(&format!("refused request {request}{period}: {reason}\n"), limit));
    }
    text
}

const fn level_name(level: Option<StepLevel>) -> &'static str {
    match level {
        None => "job",
        Some(StepLevel::Step) => "steps",
        Some(StepLevel::Task) => "tasks",
    }
}

/// Steps or tasks that a lease concerns now; none for a lease of the job as a whole.
pub(crate) fn targets_text(granted: &LeaseAnswer) -> Option<String> {
    let (level, targets) = (granted.level?, granted.targets?);
    let later = level_name(Some(level));
    Some(format!("applies to {} now, and to {later} that begin later", level.counted(targets)))
}

/// Reason for a metric's period: the layer of the plan, and the owner of a lease.
pub(crate) fn reason(line: &PlanLine) -> String {
    let actor = line.actor.as_deref().map_or_else(String::new, |actor| format!(" of {}", person(actor)));
    let derived =
        if line.input_of.is_empty() { String::new() } else { format!(" for {}", line.input_of.join(", ")) };
    format!("{}{actor}{derived}", line.cause)
}

/// Name of an actor for the reader: `you`, or the name that agents give to others.
pub fn person(actor: &str) -> &str {
    if is_user(actor, rustix::process::geteuid().as_raw()) { "you" } else { actor }
}

/// True for the name that agents give to the actor with this numeric id.
pub(crate) fn is_user(actor: &str, uid: u32) -> bool {
    actor.strip_prefix("uid ").and_then(|id| id.parse().ok()) == Some(uid)
}

pub(crate) fn cost_text(cost: &PredictedCost) -> String {
    let samples = units::number(cost.samples_per_s);
    format!("{:.2} % of a CPU, {samples} samples/s, {:.0} bytes/s", cost.cpu_percent, cost.bytes_per_s)
}

pub(crate) fn released_text(released: &PmuReleaseAnswer, now_us: i64) -> String {
    let PmuReleaseAnswer { until_us, metrics } = released;
    let remaining = units::remaining(now_us, *until_us);
    match metrics.len() {
        0 => format!("released; no hardware event was open; ends in {remaining}"),
        count => {
            format!("released; {} closed; ends in {remaining}", units::counted(count, "hardware metric"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot;

    #[test]
    fn a_plan_is_laid_out_as_recorded() {
        let plan = serde_json::json!([
            {"metric": "cpu.usage", "period": "10ms", "cause": "lease", "actor": "uid 4242", "until_us": 600_000_000},
            {"metric": "memory.current", "period": "1s", "cause": "baseline"},
            {"metric": "node.hwmon.power", "period": "1s", "cause": "baseline", "requested": "10ms",
             "reason": "it changes every 1s: granted 1s instead of 10ms"},
            {"metric": "perf.instructions", "period": "100ms", "cause": "registration", "input_of": ["perf.ipc"]},
        ]);
        let refused = serde_json::json!([
            {"request": "io.*", "period": "100us", "reason": "the shortest period allowed for io.read.bytes is 10ms"},
            {"request": "faster", "reason": "`faster` has no period; write faster=10ms"},
        ]);
        let plan: Vec<PlanLine> = serde_json::from_value(plan).unwrap();
        let refused: Vec<RefusedLine> = serde_json::from_value(refused).unwrap();
        snapshot::check("plan", &plan_text(&plan, &refused, 0, Some(80)));
    }

    #[test]
    fn periods_of_steps_and_tasks_are_told_from_those_of_the_job() {
        let plan = serde_json::json!([
            {"metric": "cpu.usage", "period": "1s", "cause": "baseline"},
            {"metric": "cpu.usage", "level": "step", "period": "20ms", "cause": "lease", "actor": "uid 4242", "until_us": 600_000_000,
             "requested": "10ms", "reason": "the governor lengthens it: granted 20ms instead of 10ms"},
            {"metric": "memory.current", "level": "task", "period": "5s", "cause": "baseline"},
        ]);
        let plan: Vec<PlanLine> = serde_json::from_value(plan).unwrap();
        snapshot::check("plan_of_steps", &plan_text(&plan, &[], 0, Some(80)));
    }

    #[test]
    fn own_leases_are_told_from_those_of_others() {
        assert!(is_user("uid 7", 7) && !is_user("uid 77", 7) && !is_user("zoe", 7));
        let own = format!("uid {}", rustix::process::geteuid().as_raw());
        let line = serde_json::json!({"metric": "cpu.usage", "period": "1s", "cause": "lease", "actor": own});
        assert_eq!(reason(&serde_json::from_value(line).unwrap()), "lease of you");
    }

    fn granted(more: serde_json::Value) -> LeaseAnswer {
        let mut answer = serde_json::json!({
            "metrics": {}, "unavailable": [], "until_us": 0,
            "cost": {"cpu_percent": 0.0, "samples_per_s": 0.0, "bytes_per_s": 0.0},
        });
        answer.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value::<LeaseAnswer>(answer).unwrap()
    }

    #[test]
    fn a_lease_of_steps_states_how_many_there_are() {
        assert_eq!(targets_text(&granted(serde_json::json!({}))), None);
        let text = targets_text(&granted(serde_json::json!({"level": "step", "targets": 1})));
        assert_eq!(text.as_deref(), Some("applies to 1 step now, and to steps that begin later"));
        let text = targets_text(&granted(serde_json::json!({"level": "task", "targets": 0})));
        assert_eq!(text.as_deref(), Some("applies to 0 tasks now, and to tasks that begin later"));
    }
}
