//! Texts of the first screen of a report, for a terminal and for a page: the job, meters, completeness.
//! Pure.

mod distributions;
mod energy;
mod figures;
mod headline;
pub(crate) mod plan_changes;
mod regions;
mod roofline;
mod stacks;
mod traffic;

use polymeter_analysis::advice::facts::Facts;
use polymeter_analysis::model::{MeasuringCost, Report};
use polymeter_proto::run::Run;
use polymeter_proto::units;
use polymeter_service::time_text::to_the_second;

use crate::output::printable::printable_name;

pub(crate) use crate::output::table::figure;
pub(crate) use distributions::{DISTRIBUTION_HEAD, distribution_remark, distribution_row};
pub(crate) use energy::energy;
pub(crate) use figures::{Imbalance, bytes, cores, joules, periods, phase_totals};
pub(crate) use headline::{NODES_MAX, headline};
pub(crate) use polymeter_analysis::meters::{Level, Meter, meters};
pub(crate) use regions::{REGION_HEAD, REGION_NAMES_FROM, region_remarks, region_row};
pub(crate) use roofline::{ROOFLINE_HEAD, roofline_remarks, roofline_row};
pub(crate) use stacks::{
    FUNCTION_HEAD, flame_remarks, function_row, part_functions, stack_activities, stack_sums,
};
pub(crate) use traffic::{file_systems, network};

/// Also the account, queue and cluster; none if nothing is known.
pub(crate) fn names(report: &Report) -> Option<String> {
    let submission = &report.submission;
    let known = |label: &str, value: Option<&str>| {
        let value = value.filter(|value| !value.trim().is_empty());
        value.map(|value| format!("{label}{value}"))
    };
    let parts = [
        known("", submission.name.as_deref()),
        known("shown as ", display_id(report)),
        known("account ", submission.account.as_deref()),
        known("queue ", submission.queue.as_deref()),
        known("cluster ", submission.cluster.as_deref()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// None if it is the job's own id.
pub(crate) fn display_id(report: &Report) -> Option<&str> {
    report.submission.display_id.as_deref().filter(|id| *id != report.job)
}

pub(crate) fn command(run: &Run) -> Option<String> {
    let more = if run.is_cut { " …" } else { "" };
    run.command_line().map(|line| line + more)
}

/// Working directory, and host.
pub(crate) fn place(run: &Run) -> Option<String> {
    let host = run.host.as_ref().map_or_else(String::new, |host| format!(" on {host}"));
    run.directory.as_ref().map(|directory| format!("{directory}{host}"))
}

/// Nodes with their cores, GPUs and memory, where known.
pub(crate) fn resources(report: &Report) -> String {
    let submission = &report.submission;
    let nodes = report.nodes.len() as u64;
    let are_threads = Facts::of(report).number("cpus_per_core").is_some_and(|threads| threads > 1.0);
    let unit = if are_threads { "hardware thread" } else { "core" };
    let cores = submission.cores.map(|cores| match nodes {
        1 => units::counted(cores, unit),
        2.. if cores % nodes == 0 => format!("{} each", units::counted(cores / nodes, unit)),
        _ => format!("{} in all", units::counted(cores, unit)),
    });
    let gpus = submission.gpus.filter(|gpus| *gpus > 0).map(|gpus| units::counted(gpus, "GPU"));
    let memory = submission.memory_bytes.map(|bytes| {
        let each = if nodes > 1 { " a node" } else { "" };
        format!("{}{each}", units::value("bytes", units::to_f64(bytes)))
    });
    let known: Vec<String> = [cores, gpus, memory].into_iter().flatten().collect();
    let with = if known.is_empty() { "" } else { " with " };
    format!("{}{with}{}", units::counted(nodes, "node"), known.join(", "))
}

/// Text with the limit if it is known.
pub(crate) fn elapsed(report: &Report) -> String {
    let limit = report.submission.time_limit_s.map(units::to_f64).map(units::elapsed);
    let limit = limit.map_or_else(String::new, |limit| format!(" of {limit}"));
    format!("{}{limit}", units::elapsed(report.wall_s))
}

pub(crate) fn times(report: &Report) -> String {
    let end = report.ended_us.map_or_else(|| "now".to_owned(), to_the_second);
    format!("{} to {end} UTC, {}", to_the_second(report.started_us), elapsed(report))
}

pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let digits = match percent {
        9.95.. => 0,
        0.095.. | ..=0.0 => 1,
        _ => 2,
    };
    format!("{percent:.digits$} %")
}

/// Describes the kept intervals, the latest first, at most `limit` of them.
pub(crate) fn kept(report: &Report, limit: usize) -> Vec<String> {
    let mut texts: Vec<String> =
        report.kept.iter().rev().take(limit).map(|kept| format!("{}: {}", kept.text, kept.reason)).collect();
    let more = report.kept.len().saturating_sub(limit);
    if more > 0 {
        texts.push(format!("and {}", units::counted(more, "more interval")));
    }
    texts
}

/// Times of the triggers that fired, with what happened, the latest first, at most `limit` of them.
pub(crate) fn firings(report: &Report, limit: usize) -> Vec<String> {
    let latest = report.firings.iter().rev().take(limit);
    latest.map(|fired| format!("{} {}", to_the_second(fired.at_us), fired.text)).collect()
}

/// Describes what became of the samples of rings; none without a ring.
pub(crate) fn ring(report: &Report) -> Option<String> {
    let ring = report.ring.as_ref()?;
    let others = [
        (ring.lost, "lost"),
        (ring.unknown, if report.ended { "lost with an agent that was killed" } else { "in rings" }),
    ];
    let others: String = others
        .iter()
        .filter(|(samples, _)| *samples > 0)
        .map(|(samples, fate)| format!(", {samples} {fate}"))
        .collect();
    Some(format!(
        "{} taken, {} missed, {} kept, {} not wanted{others}",
        ring.taken, ring.missed, ring.kept, ring.not_kept
    ))
}

/// Says that the data are complete, or what is missing.
pub(crate) fn completeness(report: &Report, facts: &Facts) -> String {
    if report.stored == 0 && report.ledger.due == 0 {
        return "no samples".to_owned();
    }
    let count = |name: &str| facts.number(name).filter(|count| *count > 0.0);
    let share = |name: &str| {
        count(name).map(|share| if share < 0.000_1 { "less than 0.01 %".to_owned() } else { percent(share) })
    };
    let missing = [
        share("lost_share").map(|share| format!("{share} of the samples are lost")),
        share("gap_share").map(|share| format!("no contact for {share} of the time")),
        count("silent_nodes")
            .map(|silent| format!("no samples of {}", units::counted(format!("{silent:.0}"), "node"))),
    ];
    let missing: Vec<String> = missing.into_iter().flatten().collect();
    if missing.is_empty() { "complete".to_owned() } else { missing.join(", ") }
}

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

    fn cost(nodes: u64) -> MeasuringCost {
        MeasuringCost {
            cpu_s: 12.5,
            core_percent: Some(0.25),
            nodes,
            highest_node: Some("n2".to_owned()),
            highest_core_percent: Some(0.5),
        }
    }

    #[test]
    fn the_cost_names_the_nodes_that_report_it() {
        assert_eq!(measuring_cost(&cost(1), 1), "12.500 s CPU time, 0.25 % of one core");
        let short = MeasuringCost { core_percent: None, highest_core_percent: None, ..cost(1) };
        let text = measuring_cost(&short, 1);
        assert_eq!(text, "12.500 s CPU time; the job was too short to state it as a share of its time");
        let each = "12.500 s CPU time, 0.25 % of one core on each of 2 nodes on average, 0.50 % on n2";
        assert_eq!(measuring_cost(&cost(2), 2), each);
        assert_eq!(measuring_cost(&cost(2), 3), each.replace("2 nodes", "2 of 3 nodes"));
    }
}
