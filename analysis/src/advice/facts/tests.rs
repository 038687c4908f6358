use super::*;
use crate::advice::Advice;
use crate::model::{LossReport, SeriesReport};
use crate::testing::{busy, counter, gauge, labelled, on, report};

/// Returns the ids of the findings about a report.
fn ids(report: &Report) -> Vec<String> {
    Advice::built_in().findings(&Facts::of(report)).into_iter().map(|finding| finding.id).collect()
}

fn number(report: &Report, name: &str) -> Option<f64> {
    assert!(definition(name).is_some(), "no fact {name}");
    Facts::of(report).number(name)
}

/// An hour of a number of cores.
fn hour(cores: f64) -> Vec<f64> {
    vec![cores; 60]
}

#[test]
fn each_fact_has_one_definition() {
    let mut names: Vec<&str> = FACTS.iter().map(|definition| definition.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(FACTS.iter().all(|definition| definition.help.ends_with('.')));
}

#[test]
fn healthy_jobs_have_no_findings() {
    let mut healthy = report(60, 16, vec![busy("n1", &hour(7.9)), busy("n2", &hour(7.8))]);
    healthy.submission.time_limit_s = Some(4000);
    healthy.series.push(gauge("memory.anon", &hour(1e9)));
    assert_eq!(ids(&healthy), [""; 0]);
    // Nothing is known of a job of 50 ms, or of one without a cgroup.
    let short = Report { wall_s: 0.05, ended: true, ..Report::default() };
    assert_eq!(ids(&short), [""; 0]);
    assert_eq!(ids(&Report::default()), [""; 0]);
}

#[test]
fn an_idle_node_is_found() {
    let idle = report(60, 16, vec![busy("n1", &hour(5.2)), busy("n2", &hour(0.0))]);
    assert_eq!(ids(&idle), ["idle-node"]);
    let findings = Advice::built_in().findings(&Facts::of(&idle));
    assert_eq!(findings[0].sentence, "1 of 2 nodes did next to nothing.");
    assert_eq!(findings[0].evidence, "n2 used 0 cores, n1 5.2 (0 % and 65 % of a node's cores)");
    // A node without samples is silent, not idle.
    let mut silent = report(60, 8, vec![busy("n1", &hour(7.9))]);
    silent.nodes.push("n2".to_owned());
    silent.by_node.push(crate::model::NodeReport { node: "n2".to_owned(), ..Default::default() });
    silent.submission.cores = None;
    assert_eq!(ids(&silent), ["silent-nodes"]);
}

#[test]
fn serial_code_and_idle_cores_are_told_apart() {
    assert_eq!(ids(&report(60, 16, vec![busy("n1", &hour(0.99))])), ["serial-code"]);
    assert_eq!(ids(&report(60, 16, vec![busy("n1", &hour(4.0))])), ["idle-cores"]);
    let partly: Vec<f64> = (0..60).map(|minute| if minute % 2 == 0 { 16.0 } else { 1.0 }).collect();
    assert_eq!(ids(&report(60, 16, vec![busy("n1", &partly)])), ["low-cpu-efficiency"]);
    assert_eq!(ids(&report(4, 16, vec![busy("n1", &[0.99; 4])])), [""; 0], "too short");
}

#[test]
fn the_course_shows_collapse_and_stragglers() {
    let course = |cores: &dyn Fn(usize) -> f64| {
        report(60, 8, vec![busy("n1", &(0..60).map(cores).collect::<Vec<f64>>())])
    };
    let collapse = course(&|minute| if minute < 30 { 8.0 } else { 0.1 });
    assert_eq!(ids(&collapse), ["collapse"]);
    assert_eq!(number(&collapse, "collapse_time"), Some(1800.0));
    let straggler = course(&|minute| if minute < 54 { 8.0 } else { 1.0 });
    assert_eq!(ids(&straggler), ["stragglers"]);
    assert_eq!(number(&straggler, "tail_ratio"), Some(0.125));
    let mut gap = course(&|_| 8.0);
    gap.ended_us = gap.ended_us.map(|end_us| end_us + 3_600_000_000);
    assert_eq!(number(&gap, "tail_ratio"), None, "a part of the time has no sample");
}

#[test]
fn memory_excludes_the_cache() {
    let gib = 1_073_741_824.0;
    let mut series = vec![busy("n1", &hour(8.0))];
    series.extend([
        gauge("memory.anon", &hour(10.0 * gib)),
        gauge("memory.shmem", &hour(1.0 * gib)),
        gauge("memory.file", &hour(51.0 * gib)),
        gauge("memory.peak", &hour(64.0 * gib)),
        gauge("memory.limit", &hour(64.0 * gib)),
    ]);
    let mut cached = report(60, 8, series);
    cached.submission.memory_bytes = Some(64 * 1_073_741_824);
    assert_eq!(number(&cached, "memory_used"), Some(11.0 * gib));
    assert_eq!(number(&cached, "memory_cache"), Some(50.0 * gib));
    assert_eq!(number(&cached, "cgroup_memory_peak"), Some(64.0 * gib));
    assert_eq!(ids(&cached), ["memory-below-request"]);
    let finding = &Advice::built_in().findings(&Facts::of(&cached))[0];
    assert_eq!(finding.remedies[&crate::model::Scheduler::Slurm], "#SBATCH --mem=14G");
    // A site's default memory per core is not the user's choice.
    cached.submission.memory_bytes = Some(32 * 1_073_741_824);
    assert_eq!(ids(&cached), [""; 0]);
}

#[test]
fn a_leak_and_oom_kills_are_found() {
    let rising: Vec<f64> = (0..60).map(|minute| 1e9 + 5e8 * f64::from(minute)).collect();
    let leak = report(60, 8, vec![busy("n1", &hour(8.0)), gauge("memory.anon", &rising)]);
    assert_eq!(ids(&leak), ["memory-growth"]);
    let kill = SeriesReport { growth: Some(1.0), ..counter("memory.events.oom_kill", &[0.0, 0.0]) };
    let step = report(60, 8, vec![busy("n1", &hour(8.0)), labelled(kill, "step=0")]);
    assert_eq!(ids(&step), ["out-of-memory"]);
}

#[test]
fn ranks_of_the_largest_step_are_compared() {
    let rank = |task: u32, cores: f64| labelled(busy("n1", &hour(cores)), &format!("step=0,task={task}"));
    let mut series = vec![busy("n1", &hour(8.0)), labelled(busy("n1", &hour(0.1)), "step=1,task=0")];
    series.extend((0..8).map(|task| rank(task, if task == 3 { 3.0 } else { 0.7 })));
    let unbalanced = report(60, 8, series);
    assert_eq!(
        (number(&unbalanced, "ranks"), ids(&unbalanced)),
        (Some(8.0), vec!["rank-imbalance".to_owned()])
    );
    assert_eq!(Facts::of(&unbalanced).text("busiest_rank"), Some("3"));
}

#[test]
fn pressure_throttling_and_io_are_shares_and_sizes() {
    let share = |metric: &str, mean: f64| SeriesReport { mean: Some(mean), ..counter(metric, &[0.0, 0.0]) };
    let count =
        |metric: &str, growth: f64| SeriesReport { growth: Some(growth), ..counter(metric, &[0.0, 0.0]) };
    let report = report(
        60,
        8,
        vec![
            share("io.pressure.full.total", 0.25),
            on("n2", share("io.pressure.full.total", 0.01)),
            count("cpu.periods", 1000.0),
            count("cpu.throttled.periods", 50.0),
            count("io.write.operations", 1e6),
            count("io.write.bytes", 4.096e9),
            count("nfs.metadata.operations", 7.2e6),
        ],
    );
    let facts = Facts::of(&report);
    assert_eq!((facts.number("io_pressure"), facts.number("throttled")), (Some(0.25), Some(0.05)));
    assert_eq!(
        (facts.number("write_size_mean"), facts.number("metadata_rate")),
        (Some(4096.0), Some(2000.0))
    );
    assert_eq!(ids(&report), ["cpu-throttled", "io-pressure", "small-writes", "many-metadata-operations"]);
}

#[test]
fn gpus_are_judged_by_their_series() {
    let gpu = |number: u32, percent: f64| SeriesReport {
        labels: format!("gpu={number}"),
        ..gauge("gpu.utilization", &hour(percent))
    };
    let mut used = report(60, 8, vec![gpu(0, 90.0), gpu(1, 0.5), gauge("gpu.temperature", &[93.0])]);
    used.submission.gpus = Some(2);
    assert_eq!(ids(&used), ["unused-gpu", "thermal-throttling"]);
    assert_eq!(number(&used, "gpu_utilization"), Some(0.4525));
}

#[test]
fn missing_data_is_a_finding() {
    let mut incomplete = report(60, 8, vec![busy("n1", &hour(8.0))]);
    let (first_s, last_s) = (100.0, 460.0);
    incomplete.losses.push(LossReport {
        reason: "unknown".to_owned(),
        first_s,
        last_s,
        ..LossReport::default()
    });
    assert_eq!(
        (number(&incomplete, "gap_share"), ids(&incomplete)),
        (Some(0.1), vec!["data-gaps".to_owned()])
    );
    incomplete.losses.clear();
    (incomplete.ledger.due, incomplete.ledger.absent, incomplete.ledger.missed) = (1100, 100, 40);
    assert_eq!((number(&incomplete, "lost_share"), ids(&incomplete)), (Some(0.04), vec![]));
}
