//! Texts about call stacks.

use polymeter_analysis::model::{FunctionReport, StackPart, StackReport};
use polymeter_analysis::stacks::activities::activity_text;
use polymeter_proto::units;

pub(crate) fn stack_sums(report: &StackReport) -> String {
    format!(
        "{}: {} in {} of {}; {}; {:.1} % without symbol",
        report.metric,
        units::elapsed(report.time_s),
        units::counted(report.samples, "sample"),
        units::duration_f64(report.period_s * 1e9),
        units::counted(report.processes, "process"),
        report.without_symbol_percent
    )
}

/// Remarks above a flame graph.
pub(crate) fn flame_remarks(report: &StackReport) -> Vec<String> {
    let activities = stack_activities(report).map(|activities| format!("activities: {activities}"));
    [stack_sums(report)].into_iter().chain(activities).chain(report.remarks()).collect()
}

/// Describes what the time was used for, as far as the names of functions tell it; none if they do not.
pub(crate) fn stack_activities(report: &StackReport) -> Option<String> {
    let shown = report.activities.iter().filter(|activity| activity.percent >= SHOWN_PERCENT);
    let shares: Vec<String> = shown
        .map(|activity| format!("{} {:.1} %", activity_text(&activity.activity), activity.percent))
        .collect();
    (!shares.is_empty()).then(|| shares.join(", "))
}

const SHOWN_PERCENT: f64 = 1.0;

pub(crate) const FUNCTION_HEAD: [&str; 6] =
    ["self", "total", "self time", "by process", "function", "module"];

pub(crate) fn function_row(function: &FunctionReport) -> [String; 6] {
    let percent = |percent: f64| format!("{percent:.1} %");
    let spread = function.processes.as_ref().map_or_else(
        || "-".to_owned(),
        |spread| format!("{} to {}", units::elapsed(spread.least_s), units::elapsed(spread.most_s)),
    );
    [
        percent(function.self_percent),
        percent(function.total_percent),
        units::elapsed(function.self_s),
        spread,
        function.function.clone(),
        function.module.clone(),
    ]
}

pub(crate) fn part_functions(part: &StackPart) -> String {
    part.functions
        .iter()
        .map(|share| format!("{} {:.1} %", share.function, share.self_percent))
        .collect::<Vec<_>>()
        .join(", ")
}
