//! The texts of the first screen of a report, for a terminal and for a page: the job, meters, completeness.
//! Pure.

mod energy;
mod figures;
mod headline;
mod outcome;
pub(crate) mod plan_changes;
mod traffic;

use polymeter_analysis::advice::facts::Facts;
use polymeter_analysis::model::{MeasuringCost, Report};
use polymeter_proto::units;
use polymeter_service::time_text::rfc3339;

use crate::output::printable::printable_name;

pub(crate) use crate::output::table::figure;
pub(crate) use energy::energy;
pub(crate) use figures::{Imbalance, bytes, cores, joules, periods, phase_totals};
pub(crate) use headline::{NODES_MAX, headline, state};
pub(crate) use polymeter_analysis::meters::{Level, Meter, meters};
pub(crate) use traffic::{file_systems, network};

/// The name of the job, its account and its queue.
pub(crate) fn names(report: &Report) -> String {
    let submission = &report.submission;
    let display = display_id(report).map_or_else(String::new, |id| format!(", shown as {id}"));
    let text = |value: &Option<String>| value.clone().unwrap_or_else(unknown);
    format!(
        "{}{display}, account {}, queue {}",
        text(&submission.name),
        text(&submission.account),
        text(&submission.queue)
    )
}

/// The id as the scheduler displays it, if it differs from the job's own.
pub(crate) fn display_id(report: &Report) -> Option<&str> {
    report.submission.display_id.as_deref().filter(|id| *id != report.job)
}

pub(crate) fn unknown() -> String {
    "unknown".to_owned()
}

/// The nodes with their cores and GPUs.
pub(crate) fn resources(report: &Report) -> String {
    let nodes = report.nodes.len() as u64;
    let are_threads = Facts::of(report).number("cpus_per_core").is_some_and(|threads| threads > 1.0);
    let unit = if are_threads { "hardware thread" } else { "core" };
    let cores = match report.submission.cores {
        None => "unknown cores".to_owned(),
        Some(cores) if nodes == 1 => units::counted(cores, unit),
        Some(cores) if nodes > 0 && cores % nodes == 0 => {
            format!("{} each", units::counted(cores / nodes, unit))
        }
        Some(cores) => format!("{} in all", units::counted(cores, unit)),
    };
    let gpus =
        report.submission.gpus.map_or_else(|| "unknown GPUs".to_owned(), |gpus| units::counted(gpus, "GPU"));
    format!("{} with {cores}, {gpus}", units::counted(nodes, "node"))
}

/// The elapsed time and the limit.
pub(crate) fn elapsed(report: &Report) -> String {
    let limit = report.submission.time_limit_s.map(units::to_f64).map_or_else(unknown, units::elapsed);
    format!("{} of {limit}", units::elapsed(report.wall_s))
}

/// The start, the end and the elapsed time.
pub(crate) fn times(report: &Report) -> String {
    let end = report.ended_us.map_or_else(|| "now".to_owned(), time);
    format!("{} to {end} UTC, {}", time(report.started_us), elapsed(report))
}

/// Formats a time in UTC, to the second.
pub(crate) fn time(time_us: i64) -> String {
    let text = rfc3339(time_us);
    text.get(..19).unwrap_or(&text).replace('T', " ")
}

/// Formats a share as percent.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let digits = usize::from(percent < 9.95);
    format!("{percent:.digits$} %")
}

/// Describes the completeness of the data and the cost of measuring.
pub(crate) fn completeness(report: &Report, facts: &Facts) -> String {
    let stored = units::counted(units::number(units::to_f64(report.stored)), "sample");
    let lost = facts.number("lost_share").map(|lost| (lost * 1e4).round() / 100.0);
    let lost = lost.map_or_else(|| "losses unknown".to_owned(), |lost| format!("{lost} % lost"));
    let gap = facts.number("gap_share").filter(|gap| *gap > 0.0);
    let gap = gap.map_or_else(String::new, |gap| {
        format!(", no contact for {} of the time", units::value("percent", (gap * 1e4).round() / 100.0))
    });
    let cost = report.measuring.as_ref().map_or_else(
        || "cost of measuring unknown".to_owned(),
        |cost| {
            let each = if report.nodes.len() > 1 { " per node" } else { "" };
            let percent = cost.core_percent.map(|percent| units::value("percent", percent));
            percent.map_or_else(
                || format!("measuring: {:.3} s CPU time", cost.cpu_s),
                |percent| format!("measuring: {percent} of a core{each}"),
            )
        },
    );
    format!("{stored} stored, {lost}{gap}; {cost}")
}

/// Describes the cost of measuring a job on `nodes` nodes.
pub(crate) fn measuring_cost(cost: &MeasuringCost, nodes: usize) -> String {
    let MeasuringCost { cpu_s, core_percent, highest_core_percent, .. } = cost;
    let used = format!("{cpu_s:.3} s CPU time");
    let Some((core_percent, highest_core_percent)) = core_percent.zip(*highest_core_percent) else {
        return format!("{used}; the job was too short to state it as a share of its time");
    };
    let used = format!("{used}, {core_percent:.2} % of one core");
    match &cost.highest_node {
        Some(node) if nodes > 1 => {
            let of = if cost.nodes == nodes as u64 { String::new() } else { format!(" of {nodes}") };
            format!(
                "{used} on each of {}{of} nodes on average, {highest_core_percent:.2} % on {}",
                cost.nodes,
                printable_name(node)
            )
        }
        _ => used,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_names_the_nodes_that_report_it() {
        let of = |nodes: u64| MeasuringCost {
            cpu_s: 12.5,
            core_percent: Some(0.25),
            nodes,
            highest_node: Some("n2".to_owned()),
            highest_core_percent: Some(0.5),
        };
        assert_eq!(measuring_cost(&of(1), 1), "12.500 s CPU time, 0.25 % of one core");
        let short = MeasuringCost { core_percent: None, highest_core_percent: None, ..of(1) };
        let text = measuring_cost(&short, 1);
        assert_eq!(text, "12.500 s CPU time; the job was too short to state it as a share of its time");
        let each = "12.500 s CPU time, 0.25 % of one core on each of 2 nodes on average, 0.50 % on n2";
        assert_eq!(measuring_cost(&of(2), 2), each);
        assert_eq!(measuring_cost(&of(2), 3), each.replace("2 nodes", "2 of 3 nodes"));
    }
}
