//! Computation of the facts of a report. Pure.

use std::collections::BTreeMap;

use polymeter_proto::units::{self, to_f64};

use super::cores::Cores;
use super::values::{Facts, MetricFacts, ratio};
use super::{balance, course, gpus, stacks};
use crate::expression::Value;
use crate::model::{LossReport, NodeReport, Report, SeriesReport};
use crate::resources::{of_metric, oom_kills};

const UNUSED_GPU_PERCENT: f64 = 1.0;

pub(super) fn facts(report: &Report) -> Facts {
    let mut facts = Facts::default();
    let of_job = report.series.iter().filter(|series| !series.is_of_step && !series.is_contained);
    let series: Vec<&SeriesReport> = of_job.collect();
    let cores = Cores::of(report, &series);
    add_job(&mut facts, report, &cores);
    add_cpu(&mut facts, report, &series, &cores);
    add_memory(&mut facts, report, &series);
    add_pressure(&mut facts, &series);
    add_gpus(&mut facts, report, &series);
    balance::add(&mut facts, report, |place, node| cores.used_s(place, node, &series));
    course::add(&mut facts, report, &series);
    add_io(&mut facts, &series);
    add_completeness(&mut facts, report);
    add_waste(&mut facts);
    stacks::add(&mut facts, report);
    for (metric, statistics) in statistics(&series) {
        facts.set_metric(metric, statistics);
    }
    facts
}

fn add_job(facts: &mut Facts, report: &Report, cores: &Cores) {
    let submission = &report.submission;
    let nodes = to_f64(report.nodes.len() as u64);
    let time_limit = submission.time_limit_s.map(to_f64).filter(|limit| *limit > 0.0);
    let elapsed = Some(report.wall_s).filter(|elapsed| *elapsed > 0.0);
    facts.set_number("elapsed", elapsed);
    facts.set_number("time_limit", time_limit);
    facts.set_number("time_limit_used", ratio(elapsed, time_limit));
    facts.set("ended", Some(Value::Truth(report.ended)));
    facts.set_text("state", report.outcome.state.clone());
    facts.set_number("exit_code", report.outcome.exit_code.map(signed));
    facts.set_number("exit_signal", report.outcome.exit_signal.map(signed));
    facts.set_number("nodes", (nodes > 0.0).then_some(nodes));
    facts.set_number("cores", cores.count);
    facts.set_number("cpus", cores.count.map(|count| count * cores.cpus_per_core));
    facts.set_number("cpus_per_core", cores.count.map(|_| cores.cpus_per_core));
    facts.set_number("cores_per_node", ratio(cores.count, Some(nodes)));
    facts.set_number("memory_request", available_memory(report).filter(|_| !submission.is_run()));
    let smallest = |count: fn(&NodeReport) -> Option<u64>| {
        let counts: Option<Vec<u64>> = report.by_node.iter().map(count).collect();
        counts.and_then(|counts| counts.into_iter().min()).map(to_f64)
    };
    facts.set_number("node_cpus", smallest(|node| node.cpus));
    facts.set_number("node_cores", smallest(|node| node.cores.or(node.cpus)));
}

/// Memory that a job had on each node: what it requested, or that of the machine of a run, which requests
/// nothing.
fn available_memory(report: &Report) -> Option<f64> {
    report.submission.memory_bytes.map(to_f64).filter(|bytes| *bytes > 0.0)
}

fn add_cpu(facts: &mut Facts, report: &Report, series: &[&SeriesReport], cores: &Cores) {
    // A sum without all nodes would be too small.
    let on_all = |values: Vec<Option<f64>>| -> Option<f64> { values.into_iter().sum() };
    let nodes = || report.by_node.iter().enumerate();
    // The CPU time of a job is unknown if that of a node is, and if a lost agent may have missed a part of
    // it.
    let has_nodes = report.by_node.iter().any(|node| node.used.cpu_s.is_some());
    let is_known =
        !(has_nodes && report.by_node.iter().any(|node| node.is_lost || node.used.cpu_s.is_none()));
    let cpu_s = report.used.cpu_s.filter(|_| is_known);
    let counted_s = on_all(nodes().map(|(place, node)| cores.used_s(place, node, series)).collect());
    let all_s = on_all(nodes().map(|(_, node)| node.used.cpu_s).collect());
    // The total is exact where those of the nodes are sampled.
    let share = ratio(counted_s, all_s.filter(|all_s| *all_s > 0.0)).unwrap_or(1.0);
    let cpus_used = ratio(cpu_s, facts.number("elapsed"));
    let cores_used = cpus_used.map(|used| used * share);
    facts.set_number("cpu_time", cpu_s);
    facts.set_number("cpus_used", cpus_used);
    facts.set_number("cores_used", cores_used);
    facts.set_number("cpu_efficiency", ratio(cores_used, facts.number("cores")));
    if !report.by_node.is_empty() {
        facts
            .set_number("cores_peak", on_all(nodes().map(|(place, node)| cores.peak(place, node)).collect()));
        facts.set_number("cpus_peak", on_all(nodes().map(|(_, node)| node.used.cores_max).collect()));
    }
    // The largest value of each node, so that CPUs count that any part of the program could use.
    let on_nodes = |metric: &str, value: fn(&SeriesReport) -> Option<f64>| {
        of_metric(series, metric).filter_map(value).reduce(|sum, of_node| sum + of_node)
    };
    facts.set_number("cpus_allowed", on_nodes("cpu.allowed", |series| series.max));
    facts.set_number("cpus_bound", on_nodes("cpu.bound", |series| series.max));
    facts.set_number("threads_busy", on_nodes("cpu.threads.busy", |series| series.mean));
    let threads: Vec<f64> = ["process.threads", "pids.current"]
        .iter()
        .map(|metric| of_metric(series, metric).filter_map(|series| series.max).collect::<Vec<f64>>())
        .find(|peaks| !peaks.is_empty())
        .unwrap_or_default();
    facts.set_number("threads_peak", threads.into_iter().reduce(|sum, peak| sum + peak));
}

fn add_memory(facts: &mut Facts, report: &Report, series: &[&SeriesReport]) {
    let nodes = || report.by_node.iter();
    let fullest = nodes().filter_map(|node| node.used.memory_bytes.map(|bytes| (bytes, node)));
    let fullest = fullest.max_by(|(one, _), (other, _)| one.total_cmp(other));
    facts.set_number("memory_used", fullest.map(|(bytes, _)| bytes));
    facts.set_text("memory_used_node", fullest.map(|(_, node)| node.node.clone()));
    facts
        .set_text("memory_kind", fullest.and_then(|(_, node)| node.used.memory_kind).map(|kind| kind.text()));
    let all: Option<Vec<f64>> = nodes().map(|node| node.used.memory_bytes).collect();
    let total = all.filter(|all| !all.is_empty()).map(|all| all.into_iter().sum());
    facts.set_number("memory_used_total", total);
    facts.set_number("memory_cache", most(nodes().map(|node| node.used.cache_bytes)));
    facts.set_number("cgroup_memory_peak", most(nodes().map(|node| node.used.cgroup_peak_bytes)));
    add_memory_limit(facts, report);
    let bound = most(nodes().map(|node| node.used.memory_bound_bytes()));
    facts.set_number("memory_bound", bound);
    facts.set_number(
        "memory_request_used",
        ratio(facts.number("memory_used"), facts.number("memory_request")),
    );
    // Version 1 counts a kill in the cgroup of the step only.
    let of_steps: Vec<&SeriesReport> = report.series.iter().filter(|series| series.is_of_step).collect();
    facts.set_number("oom_kills", most([series, of_steps.as_slice()].into_iter().map(oom_kills)));
    add_kept_growth(facts, report);
    let swap = ["memory.swap.current", "memory.swap"];
    facts.set_number("swap_peak", crate::resources::highest(series, &swap));
    let faults = report.used.page_faults_major;
    facts.set_number("major_faults_rate", ratio(faults, facts.number("elapsed")));
}

/// Adds the limit, and what it counts, of the node that came nearest to its limit. Without limits the request
/// stands for them.
fn add_memory_limit(facts: &mut Facts, report: &Report) {
    let share = |(counted, limit, _): &(f64, f64, String)| counted / limit;
    let limited = report.by_node.iter().filter_map(|node| {
        let limit = node.used.memory_limit_bytes.filter(|limit| *limit > 0.0)?;
        // Not all kernels count huge pages for the limit; the cgroup's peak has what they count.
        let counted = node.used.memory_bytes?.min(node.used.cgroup_peak_bytes.unwrap_or(f64::INFINITY));
        Some((counted, limit, node.node.clone()))
    });
    let nearest = limited.max_by(|one, other| share(one).total_cmp(&share(other)));
    let (counted, limit, node) = match nearest {
        Some((counted, limit, node)) => (Some(counted), Some(limit), Some(node)),
        None => {
            let lowest = report.by_node.iter().filter_map(|node| node.used.memory_limit_bytes);
            let limit = lowest.reduce(f64::min).or(available_memory(report));
            let (used, node) = facts
                .number("memory_used")
                .zip(facts.text("memory_used_node"))
                .map(|(used, node)| (used, node.to_owned()))
                .unzip();
            (used, limit, node)
        }
    };
    facts.set_number("memory_counted", counted);
    facts.set_text("memory_counted_node", node);
    facts.set_number("memory_limit", limit);
    facts.set_number("memory_used_share", ratio(counted, limit));
    add_steps_out_of_memory(facts, report);
}

/// Adds the step that ran out of memory within a limit of its own, below that of its job.
fn add_steps_out_of_memory(facts: &mut Facts, report: &Report) {
    let mut groups: BTreeMap<(&str, &str), Vec<&SeriesReport>> = BTreeMap::new();
    for series in report.series.iter().filter(|series| series.task.is_none()) {
        if let Some(step) = &series.step {
            groups.entry((step, &series.node)).or_default().push(series);
        }
    }
    for ((step, node), series) in groups {
        let of_job = report.by_node.iter().find(|of_job| of_job.node == node);
        let limit_of_job = of_job.and_then(|of_job| of_job.used.memory_limit_bytes).unwrap_or(f64::INFINITY);
        let limit = crate::resources::of(&series).memory_limit_bytes.filter(|limit| *limit < limit_of_job);
        if oom_kills(&series).is_some_and(|kills| kills > 0.0) && limit.is_some() {
            facts.set_number("oom_step_limit", limit);
            facts.set_text("oom_step", Some(format!("{step} on {node}")));
        }
    }
}

fn add_pressure(facts: &mut Facts, series: &[&SeriesReport]) {
    let share = |metric: &str| {
        // The mean of the rate of waiting time, in seconds per second.
        of_metric(series, metric).filter_map(|series| series.mean).reduce(f64::max)
    };
    facts.set_number("cpu_waiting", share("pressure.cpu.some.total"));
    facts.set_number("cpu_pressure", share("pressure.cpu.full.total"));
    facts.set_number("memory_pressure", share("pressure.memory.full.total"));
    facts.set_number("io_pressure", share("pressure.io.full.total"));
    let [throttled, periods]: [BTreeMap<String, f64>; 2] =
        ["cpu.throttled.periods", "cpu.periods"].map(|metric| {
            of_metric(series, metric)
                .filter_map(|series| Some((series.node.clone(), series.growth?)))
                .collect()
        });
    let throttled = throttled.iter().map(|(node, count)| ratio(Some(*count), periods.get(node).copied()));
    facts.set_number("throttled", most(throttled));
}

fn add_io(facts: &mut Facts, series: &[&SeriesReport]) {
    let growth = |metric: &str| {
        of_metric(series, metric).filter_map(|series| series.growth).reduce(|sum, growth| sum + growth)
    };
    let writes = growth("io.write.operations");
    facts.set_number("write_operations", writes);
    facts.set_number("write_rate", ratio(writes, facts.number("elapsed")));
    facts.set_number(
        "write_size_mean",
        ratio(growth("io.write.bytes"), writes.filter(|writes| *writes > 0.0)),
    );
    let metadata = series.iter().filter(|series| series.metric.ends_with(".metadata.operations"));
    let operations = metadata.filter_map(|series| series.growth).reduce(|sum, growth| sum + growth);
    facts.set_number("metadata_rate", ratio(operations, facts.number("elapsed")));
    let thermal = series.iter().filter(|series| {
        let of_gpu = series.metric == "gpu.throttled.time";
        let is_reason = of_gpu && series.labels.split(',').any(|label| label == "reason=thermal");
        is_reason || series.metric.ends_with(".throttled.thermal.time")
    });
    facts.set_number("thermal_throttling", thermal.filter_map(|series| series.mean).reduce(f64::max));
}

fn add_gpus(facts: &mut Facts, report: &Report, series: &[&SeriesReport]) {
    // A scheduler that does not count GPUs reports none, and those that a run sees were not requested.
    let sampled = gpus::count(series);
    let requested = report.submission.gpus.filter(|_| !report.submission.is_run());
    let gpus = requested.map_or(sampled, |requested| Some(sampled.unwrap_or(0).max(requested)));
    facts.set_number("gpus", gpus.map(to_f64));
    let utilization = gpus::utilization(series);
    if !utilization.is_empty() {
        facts.set_number("gpus_sampled", Some(to_f64(utilization.len() as u64)));
        let means: Vec<f64> = utilization.iter().filter_map(|series| series.mean).collect();
        let count = to_f64(means.len() as u64);
        facts.set_number("gpu_utilization", ratio(Some(means.iter().sum::<f64>() / 100.0), Some(count)));
        let unused = utilization
            .iter()
            .filter(|series| series.max.is_some_and(|max| max <= UNUSED_GPU_PERCENT))
            .count();
        facts.set_number("unused_gpus", Some(to_f64(unused as u64)));
        let idle = utilization.iter().filter_map(|series| gpus::idle_s(series, UNUSED_GPU_PERCENT));
        facts.set_number("gpu_idle_time", idle.reduce(f64::max));
    }
    let used = crate::resources::highest(series, &["gpu.memory.used"]);
    let total = of_metric(series, "gpu.memory.total").filter_map(|series| series.min).reduce(f64::min);
    facts.set_number("gpu_memory_used", used);
    facts.set_number("gpu_memory_share", ratio(used, total));
    facts.set_number("gpu_temperature", crate::resources::highest(series, &["gpu.temperature"]));
}

fn add_waste(facts: &mut Facts) {
    let of = |name: &str| facts.number(name);
    let unused = of("cores").zip(of("elapsed")).zip(of("cores_used"));
    let unused = unused.map(|((cores, elapsed), used)| (cores - used).max(0.0) * elapsed / 3600.0);
    let has_gpus = of("gpus").is_some_and(|gpus| gpus > 0.0);
    facts.set_number("wasted_core_hours", unused.filter(|_| !has_gpus));
}

fn add_kept_growth(facts: &mut Facts, report: &Report) {
    let Some(growth) = report.kept.last().and_then(|kept| kept.growth.as_ref()) else { return };
    facts.set_number("kept_growth", Some(growth.bytes()));
    facts.set_text("kept_growth_of", Some(growth.of()));
    facts.set_number("kept_growth_time", Some(growth.time_s));
    facts.set_number("kept_growth_first", Some(growth.first_bytes));
    facts.set_number("kept_growth_highest", Some(growth.highest_bytes));
    let others = growth.others_bytes.map_or_else(
        || "no other node kept an interval".to_owned(),
        |bytes| format!("the other nodes grew by {} in the middle", units::value("bytes", bytes)),
    );
    facts.set_text("kept_growth_others", Some(others));
}

fn add_completeness(facts: &mut Facts, report: &Report) {
    let nodes_s = facts.number("elapsed").zip(facts.number("nodes")).map(|(elapsed, nodes)| elapsed * nodes);
    let gaps = report.losses.iter().filter(|loss| loss.is_gap()).map(LossReport::duration_s);
    facts.set_number("gap_share", ratio(Some(gaps.sum()), nodes_s).map(|share| share.min(1.0)));
    let ledger = &report.ledger;
    let available = ledger.due.saturating_sub(ledger.absent);
    // Samples that were deleted later were not lost.
    let counts =
        [ledger.missed, ledger.dropped, report.skipped, report.rejected, report.quarantined, report.unknown];
    let lost: u64 = counts.iter().sum();
    facts.set_number("lost_share", ratio(Some(to_f64(lost)), (available > 0).then(|| to_f64(available))));
    let is_silent = |node: &&NodeReport| node.samples == 0;
    let silent = report.by_node.iter().filter(is_silent).count();
    facts.set_text("silent_node", report.by_node.iter().find(is_silent).map(|node| node.node.clone()));
    if !report.by_node.is_empty() {
        facts.set_number("silent_nodes", Some(to_f64(silent as u64)));
    }
    facts.set_number(
        "measuring_cores",
        report.measuring.as_ref().and_then(|cost| cost.core_percent).map(|percent| percent / 100.0),
    );
}

fn statistics<'a>(series: &[&'a SeriesReport]) -> BTreeMap<&'a str, MetricFacts> {
    let mut by_metric: BTreeMap<&str, Vec<&SeriesReport>> = BTreeMap::new();
    for series in series {
        by_metric.entry(&series.metric).or_default().push(series);
    }
    by_metric.into_iter().map(|(metric, series)| (metric, metric_facts(&series))).collect()
}

fn metric_facts(series: &[&SeriesReport]) -> MetricFacts {
    let means: Vec<f64> = series.iter().filter_map(|series| series.mean).collect();
    let growth = series.iter().filter_map(|series| series.growth).reduce(|sum, growth| sum + growth);
    MetricFacts {
        mean: ratio(Some(means.iter().sum()), Some(to_f64(means.len() as u64))),
        lowest: series.iter().filter_map(|series| series.min).reduce(f64::min),
        highest: series.iter().filter_map(|series| series.max).reduce(f64::max),
        growth,
        // The mean rate of a counter, in the unit of its rates.
        rate: growth.map(|_| means.iter().sum()),
    }
}

fn most(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.flatten().reduce(f64::max)
}

#[expect(clippy::cast_precision_loss, reason = "exit statuses and signals are small")]
const fn signed(value: i64) -> f64 {
    value as f64
}
