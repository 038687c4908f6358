use super::*;
use crate::advice::Advice;
use crate::model::{
    ActivityReport, FunctionImbalance, FunctionShare, LossReport, RegionReport, RegionSpread, SeriesReport,
    StackReport,
};
use crate::testing::{busy, counter, gauge, labelled, on, report};

const GIB: f64 = 1_073_741_824.0;

fn ids(report: &Report) -> Vec<String> {
    Advice::built_in().findings(&Facts::of(report)).into_iter().map(|finding| finding.id).collect()
}

fn number(report: &Report, name: &str) -> Option<f64> {
    assert!(definition(name).is_some(), "no fact {name}");
    Facts::of(report).number(name)
}

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

fn by_minute(cores: &dyn Fn(usize) -> f64) -> Report {
    report(60, 8, vec![busy("n1", &(0..60).map(cores).collect::<Vec<f64>>())])
}

#[test]
fn the_course_shows_collapse_and_stragglers() {
    let collapse = by_minute(&|minute| if minute < 30 { 8.0 } else { 0.1 });
    assert_eq!(ids(&collapse), ["collapse"]);
    assert_eq!(number(&collapse, "collapse_time"), Some(1800.0));
    let straggler = by_minute(&|minute| if minute < 54 { 8.0 } else { 1.0 });
    assert_eq!(ids(&straggler), ["stragglers"]);
    assert_eq!(number(&straggler, "tail_ratio"), Some(0.125));
    let mut gap = by_minute(&|_| 8.0);
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

fn memory_remedy(gauges: &[(&str, f64)]) -> Option<String> {
    let mut series = vec![busy("n1", &hour(8.0))];
    series.extend(gauges.iter().map(|(metric, value)| gauge(metric, &hour(*value * GIB))));
    let mut job = report(60, 8, series);
    job.submission.memory_bytes = Some(200 << 30);
    let findings = Advice::built_in().findings(&Facts::of(&job));
    findings.first().map(|finding| finding.remedies[&crate::model::Scheduler::Slurm].clone())
}

#[test]
fn a_smaller_request_has_room_for_all_that_was_used() {
    let anonymous = ("memory.anon", 0.5);
    assert_eq!(memory_remedy(&[anonymous]).as_deref(), Some("#SBATCH --mem=615M"));
    for huge in ["hugetlb.current", "memory.hugetlb"] {
        assert_eq!(memory_remedy(&[anonymous, (huge, 80.0)]).as_deref(), Some("#SBATCH --mem=97G"), "{huge}");
        assert_eq!(memory_remedy(&[anonymous, (huge, 150.0)]), None, "{huge}");
    }
    // Used between two samples: with the cache that is known, and without.
    let cache = ("memory.file", 10.0);
    assert_eq!(
        memory_remedy(&[anonymous, cache, ("memory.peak", 50.0)]).as_deref(),
        Some("#SBATCH --mem=40G")
    );
    assert_eq!(memory_remedy(&[anonymous, cache, ("memory.peak", 190.0)]), None);
    // Huge pages beyond a limit that does not count them are no reason to raise it.
    let limited = [anonymous, ("hugetlb.current", 190.0), ("memory.limit", 16.0), ("memory.peak", 1.0)];
    assert_eq!(memory_remedy(&limited), None);
}

#[test]
fn a_leak_and_oom_kills_are_found() {
    let rising: Vec<f64> = (0..60).map(|minute| 1e9 + 5e8 * f64::from(minute)).collect();
    let leak = report(60, 8, vec![busy("n1", &hour(8.0)), gauge("memory.anon", &rising)]);
    assert_eq!(ids(&leak), ["memory-growth"]);
    // The last sample is taken after the processes ended.
    let empty_at_the_end: Vec<f64> = rising.iter().take(59).copied().chain([0.0]).collect();
    let slow: Vec<f64> =
        empty_at_the_end.iter().map(|bytes| 3e10_f64.mul_add(f64::from(*bytes > 0.0), *bytes)).collect();
    for (used, growth) in [(empty_at_the_end, 30e9 / 6.5e9), (slow, 60e9 / 36.5e9)] {
        let leak = report(60, 8, vec![busy("n1", &hour(8.0)), gauge("memory.anon", &used)]);
        assert!((number(&leak, "memory_growth").unwrap() - growth).abs() < 1e-9, "{growth}");
    }
    // The results are written in the last tenth; memory that does not grow before it is no leak.
    for (minutes, found) in [(53, &["memory-growth"][..]), (47, &[][..])] {
        let rest = vec![rising[minutes]; 60 - minutes];
        let used: Vec<f64> = rising.iter().copied().take(minutes).chain(rest).collect();
        let writes = report(60, 8, vec![busy("n1", &hour(8.0)), gauge("memory.anon", &used)]);
        assert_eq!(ids(&writes), found, "{minutes}");
    }
    let kill = SeriesReport { growth: Some(1.0), ..counter("memory.events.oom_kill", &[0.0, 0.0]) };
    let step = report(60, 8, vec![busy("n1", &hour(8.0)), labelled(kill, "step=0")]);
    assert_eq!(ids(&step), ["out-of-memory"]);
}

fn bound_to(cpus: f64, threads: f64) -> Report {
    let of_threads = [("cpu.allowed", 16.0), ("cpu.bound", cpus), ("cpu.threads.busy", threads)];
    let gauges = of_threads.map(|(metric, value)| on("n1", gauge(metric, &hour(value))));
    let mut series = vec![busy("n1", &hour(0.99))];
    series.extend(gauges);
    report(60, 16, series)
}

#[test]
fn threads_that_share_few_cpus_are_no_serial_code() {
    assert_eq!(ids(&bound_to(1.0, 16.0)), ["narrow-binding"]);
    assert_eq!(ids(&bound_to(16.0, 16.0)), ["serial-code"]);
    assert_eq!(ids(&bound_to(1.0, 1.0)), ["serial-code"]);
}

#[test]
fn ranks_of_the_largest_step_are_compared() {
    let mut series = vec![busy("n1", &hour(8.0)), labelled(busy("n1", &hour(0.1)), "step=1,task=0")];
    series.extend((0..8).map(|task| {
        labelled(busy("n1", &hour(if task == 3 { 3.0 } else { 0.7 })), &format!("step=0,task={task}"))
    }));
    let unbalanced = report(60, 8, series);
    assert_eq!(
        (number(&unbalanced, "ranks"), ids(&unbalanced)),
        (Some(8.0), vec!["rank-imbalance".to_owned()])
    );
    assert_eq!(Facts::of(&unbalanced).text("busiest_rank"), Some("3"));
}

fn region(name: &str, most_s: f64) -> RegionReport {
    RegionReport {
        region: name.to_owned(),
        ranks: Some(RegionSpread { count: 4, least_s: 0.0, mean_s: 60.0, most_s, most: "rank 3".to_owned() }),
        ..RegionReport::default()
    }
}

fn with_regions(most_s: f64) -> Report {
    Report {
        regions: vec![region("solve", 60.0), region("io", most_s)],
        ..report(60, 8, vec![busy("n1", &hour(8.0))])
    }
}

#[test]
fn the_region_in_which_one_rank_stays_longest_beyond_the_mean_is_found() {
    let uneven = with_regions(300.0);
    assert_eq!(ids(&uneven), ["region-imbalance"]);
    assert_eq!(Facts::of(&uneven).text("uneven_region"), Some("io"));
    assert_eq!(
        (number(&uneven, "region_imbalance"), number(&uneven, "region_excess")),
        (Some(5.0), Some(4.0 / 60.0))
    );
    assert_eq!(ids(&with_regions(90.0)), [""; 0]);
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
            share("pressure.io.full.total", 0.25),
            on("n2", share("pressure.io.full.total", 0.01)),
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

fn used_gpu(number: u32, percent: f64) -> SeriesReport {
    SeriesReport { labels: format!("gpu={number}"), ..gauge("gpu.utilization", &hour(percent)) }
}

fn throttled(reason: &str, share: f64) -> SeriesReport {
    SeriesReport {
        labels: format!("gpu=0,reason={reason},uuid=GPU-a"),
        mean: Some(share),
        ..gauge("gpu.throttled.time", &[share])
    }
}

#[test]
fn gpus_are_judged_by_their_series() {
    let mut used =
        report(60, 8, vec![used_gpu(0, 90.0), used_gpu(1, 0.5), gauge("gpu.temperature", &[93.0])]);
    used.submission.gpus = Some(2);
    assert_eq!(ids(&used), ["unused-gpu", "thermal-throttling"]);
    assert_eq!(number(&used, "gpu_utilization"), Some(0.4525));
    let slow = report(60, 8, vec![throttled("power", 0.5), throttled("thermal", 0.02)]);
    assert_eq!(
        (number(&slow, "thermal_throttling"), ids(&slow)),
        (Some(0.02), vec!["thermal-throttling".to_owned()])
    );
}

fn gpu(metric: &str, node: &str, labels: &str, percent: &[f64]) -> SeriesReport {
    SeriesReport { labels: labels.to_owned(), ..on(node, gauge(metric, percent)) }
}

fn until(minutes: usize, last: f64) -> Vec<f64> {
    (0..60).map(|minute: usize| if minute < minutes { 7.9 } else { last }).collect::<Vec<f64>>()
}

/// Cores in use, of 8, by minute: few all the time, few after some minutes, at the end, on a node, by a task.
fn few_cores() -> [(&'static str, Vec<SeriesReport>); 6] {
    let task = |number: u32, cores: f64| labelled(busy("n1", &hour(cores)), &format!("step=0,task={number}"));
    [
        ("serial-code", vec![busy("n1", &hour(1.0))]),
        ("idle-cores", vec![busy("n1", &hour(3.0))]),
        ("collapse", vec![busy("n1", &until(20, 0.05))]),
        ("stragglers", vec![busy("n1", &until(54, 0.5))]),
        ("idle-node", vec![busy("n1", &hour(3.9)), busy("n2", &hour(0.0))]),
        ("rank-imbalance", vec![busy("n1", &hour(7.9)), task(0, 6.0), task(1, 1.5)]),
    ]
}

#[test]
fn a_job_that_works_on_gpus_needs_few_cores() {
    for (rule, series) in few_cores() {
        let without = report(60, 8, series.clone());
        assert_eq!(ids(&without), [rule]);
        let mut requested = report(60, 8, series.clone());
        requested.submission.gpus = Some(2);
        assert_eq!(ids(&requested), [""; 0], "{rule}: GPUs are known from the request");
        let of_gpus = ["gpu=0,uuid=GPU-a", "gpu=1,uuid=GPU-b"]
            .map(|labels| gpu("gpu.utilization", "n1", labels, &hour(95.0)));
        let sampled = report(60, 8, series.into_iter().chain(of_gpus).collect());
        assert_eq!((number(&sampled, "gpus"), ids(&sampled)), (Some(2.0), vec![]), "{rule}");
    }
}

fn two_parts(full: f64, rest: f64) -> Vec<f64> {
    (0..60).map(|minute| if minute < 24 { full } else { rest }).collect()
}

fn hangs(percent: f64) -> Report {
    let of_gpu = gpu("gpu.utilization", "n1", "gpu=3,uuid=GPU-d", &two_parts(90.0, percent));
    report(60, 8, vec![busy("n1", &two_parts(2.0, 0.01)), of_gpu])
}

#[test]
fn gpus_that_stop_with_the_cores_are_no_excuse() {
    assert_eq!(ids(&hangs(2.0)), ["collapse"]);
    assert!((number(&hangs(2.0), "collapse_ratio").unwrap() - 2.0 / 90.0).abs() < 1e-9);
    assert_eq!(ids(&hangs(85.0)), [""; 0]);
}

fn slice(number: u32, percent: f64) -> SeriesReport {
    gpu("gpu.gpm.sm.active", "n1", &format!("gpu=0,mig={number},uuid=MIG-{number}"), &hour(percent))
}

#[test]
fn devices_of_a_gpu_are_told_apart() {
    let whole = |metric: &str, percent: f64| gpu(metric, "n2", "gpu=0,uuid=GPU-a", &hour(percent));
    // The activity of the multiprocessors of a whole GPU is another quantity than its utilization.
    let series = vec![
        slice(1, 80.0),
        slice(2, 40.0),
        whole("gpu.utilization", 90.0),
        whole("gpu.gpm.sm.active", 10.0),
        gpu("gpu.memory.used", "n2", "gpu=4,uuid=GPU-e", &hour(1e9)),
        gpu("gpu.drm.clients", "n2", "gpu=5", &hour(0.0)),
    ];
    let mixed = report(60, 8, series);
    assert_eq!((number(&mixed, "gpus"), number(&mixed, "gpus_sampled")), (Some(4.0), Some(3.0)));
    assert!((number(&mixed, "gpu_utilization").unwrap() - 0.7).abs() < 1e-9);
}

/// Six samples a minute for an hour: 12 cores in use but for the stretches.
fn standing_still(is_still: &dyn Fn(usize) -> bool) -> Vec<f64> {
    (0..360).map(|sample| if is_still(sample) { 0.0001 } else { 11.9 }).collect()
}

#[test]
fn suspended_time_is_not_idle() {
    let job = |cores: &[f64]| {
        let mut series = busy("n1", cores);
        let points =
            (0..).zip(cores).map(|(sample, cores)| (1_000_000_000_000_000 + sample * 10_000_000_000, *cores));
        series.curve = crate::curve::Curve::of(&points.collect::<Vec<(i64, f64)>>());
        series.growth = Some(cores.iter().sum::<f64>() * 10.0 * 1e9);
        report(60, 12, vec![series])
    };
    let at_once = job(&standing_still(&|sample| (60..240).contains(&sample)));
    assert!((number(&at_once, "standstill_share").unwrap() - 0.5).abs() < 0.02);
    assert!((number(&at_once, "cores_active").unwrap() - 11.9).abs() < 0.5);
    assert_eq!(ids(&at_once), ["standstill"]);
    let in_slices = job(&standing_still(&|sample| sample % 24 >= 12));
    assert!((number(&in_slices, "active_efficiency").unwrap() - 1.0).abs() < 0.1);
    assert_eq!(ids(&in_slices), ["standstill"]);
    // A program that waits now and then needs fewer cores.
    let waits = job(&standing_still(&|sample| sample % 2 == 1));
    assert_eq!(
        (number(&waits, "standstill_share"), ids(&waits)),
        (Some(0.0), vec!["low-cpu-efficiency".to_owned()])
    );
    let sleeps = job(&[0.0; 360]);
    assert_eq!(number(&sleeps, "standstill_share"), Some(0.0));
    assert_eq!(ids(&sleeps), ["idle-cores"]);
}

#[test]
fn more_cores_than_requested_are_found() {
    let over = report(60, 3, vec![busy("n1", &hour(5.7))]);
    assert_eq!(ids(&over), ["more-cores-than-requested"]);
    let finding = &Advice::built_in().findings(&Facts::of(&over))[0];
    assert_eq!(finding.evidence, "CPUs in use on average: 5.7; requested: 3");
    assert_eq!(ids(&report(60, 6, vec![busy("n1", &hour(6.05))])), [""; 0]);
}

#[test]
fn advice_about_cores_is_no_more_precise_than_the_figures() {
    let slurm = crate::model::Scheduler::Slurm;
    for (used, cores) in [(8.03, 8), (8.3, 8), (4.0, 4), (5.5, 6)] {
        let idle = report(60, 16, vec![busy("n1", &hour(used))]);
        let remedy = Advice::built_in().findings(&Facts::of(&idle))[0].remedy(Some(slurm)).unwrap();
        assert_eq!(remedy, format!("#SBATCH --cpus-per-task={cores}"), "{used}");
    }
}

/// Job of Slurm on nodes with CPUs, cores, those of the job, and the cores in use each minute.
fn on_threads(nodes: &[(u64, u64, u64, Vec<f64>)]) -> Report {
    let series = nodes.iter().zip(1..).map(|((.., used), number)| busy(&format!("n{number}"), used));
    let all = nodes.iter().map(|(_, _, given, _)| given).sum();
    let mut report = report(60, all, series.collect());
    report.submission.scheduler = Some("slurm".to_owned());
    for (node, (cpus, cores, given, _)) in report.by_node.iter_mut().zip(nodes) {
        (node.cpus, node.cores, node.job_cores) = (Some(*cpus), Some(*cores), Some(*given));
    }
    report
}

fn first_remedy(report: &Report) -> Option<String> {
    let findings = Advice::built_in().findings(&Facts::of(report));
    findings.first().and_then(|finding| finding.remedy(report.likely_scheduler()))
}

fn assert_near(report: &Report, name: &str, expected: f64) {
    let found = number(report, name).unwrap();
    assert!((found - expected).abs() < 1e-9, "{name}: {found}, not {expected}");
}

#[test]
fn hardware_threads_count_as_their_cores() {
    // Each core has a busy thread: all of them are in use.
    let one_each = on_threads(&[(64, 32, 16, hour(8.0))]);
    assert_eq!(ids(&one_each), [""; 0]);
    assert_near(&one_each, "cores", 8.0);
    assert_near(&one_each, "cpus", 16.0);
    assert_near(&one_each, "cpu_efficiency", 1.0);
    // All threads are: not more than all cores, and nothing that was not requested.
    let both = on_threads(&[(64, 32, 16, hour(15.9))]);
    assert_eq!(ids(&both), [""; 0]);
    assert_near(&both, "cpu_efficiency", 1.0);
    assert_near(&both, "cpus_used", 15.9);
    assert_eq!(ids(&on_threads(&[(64, 32, 16, hour(19.0))])), ["more-cores-than-requested"]);
    // A part of the cores: advice is in the unit of the scheduler.
    let few = on_threads(&[(64, 32, 16, hour(5.0))]);
    assert_eq!(
        (ids(&few), first_remedy(&few).as_deref()),
        (vec!["idle-cores".to_owned()], Some("#SBATCH --cpus-per-task=10"))
    );
    let four = on_threads(&[(256, 64, 16, hour(2.0))]);
    assert_eq!(first_remedy(&four).as_deref(), Some("#SBATCH --cpus-per-task=8"), "four threads per core");
    // Full threads for a part of the time do not make up for idle cores in the rest.
    let course: Vec<f64> = (0..60).map(|minute| if minute % 2 == 0 { 16.0 } else { 2.0 }).collect();
    let waves = on_threads(&[(64, 32, 16, course)]);
    assert_near(&waves, "cores_used", (8.0 + 2.0) / 2.0);
    assert_near(&waves, "cores_peak", 8.0);
    assert_near(&waves, "wasted_core_hours", 8.0 - 5.0);
    assert_eq!(ids(&waves), ["low-cpu-efficiency"]);
}

#[test]
fn each_node_has_its_own_threads_per_core() {
    // 8 threads of 4 cores, and 4 cores without threads.
    let job = |first: f64, second: f64| on_threads(&[(16, 8, 8, hour(first)), (8, 8, 4, hour(second))]);
    let full = job(7.8, 4.0);
    assert_eq!((number(&full, "cores"), number(&full, "cpus")), (Some(8.0), Some(12.0)));
    assert!((number(&full, "cores_used").unwrap() - 8.0).abs() < 1e-9);
    assert_eq!(ids(&full), [""; 0]);
    assert_eq!(ids(&job(4.0, 0.0)), ["idle-node"]);
    assert!((number(&job(7.9, 2.0), "busiest_node_efficiency").unwrap() - 1.0).abs() < 1e-9);
    // Hybrid processors: 8 cores with two threads and 16 with one.
    let hybrid = on_threads(&[(32, 24, 32, hour(23.0))]);
    assert_eq!((number(&hybrid, "cores"), ids(&hybrid)), (Some(24.0), vec![]));
}

fn counted_cores(scheduler: Option<&str>, given: u64, allowed: Option<f64>) -> f64 {
    let mut job = on_threads(&[(64, 32, given, hour(4.0))]);
    job.submission.scheduler = scheduler.map(str::to_owned);
    job.series.extend(allowed.map(|allowed| gauge("cpu.allowed", &hour(allowed))));
    number(&job, "cores").unwrap()
}

#[test]
fn what_a_scheduler_counts_is_told_by_what_the_job_may_use() {
    assert_eq!(counted_cores(Some("slurm"), 8, None), 4.0, "as it is configured by default");
    assert_eq!(counted_cores(Some("slurm"), 8, Some(8.0)), 4.0);
    assert_eq!(counted_cores(Some("slurm"), 8, Some(16.0)), 8.0, "configured with CPUs that are cores");
    assert_eq!(counted_cores(Some("slurm"), 8, Some(64.0)), 4.0, "not confined");
    assert_eq!((counted_cores(Some("oar"), 8, None), counted_cores(None, 8, None)), (8.0, 8.0));
    assert_eq!((counted_cores(None, 8, Some(8.0)), counted_cores(None, 64, None)), (4.0, 32.0));
}

fn advised(minutes: u32, cores: f64) -> (usize, String) {
    let mut report = report(minutes, 16, vec![busy("n1", &vec![cores; minutes as usize])]);
    Advice::built_in().advise(&mut report);
    (report.findings.len(), report.no_findings())
}

#[test]
fn a_job_that_is_too_short_for_advice_says_so() {
    let short = "none: too short for advice, which needs 5 min or more".to_owned();
    assert_eq!(advised(3, 1.9), (0, short));
    assert_eq!(advised(3, 15.9), (0, "none".to_owned()));
    assert_eq!(advised(60, 1.9).0, 1);
}

#[test]
fn remedies_are_directives_for_jobs_of_slurm() {
    type Change = fn(&mut Report);
    let changes: [(&str, Change); 4] = [
        ("restarts", |job| job.submission.restarts = Some(0)),
        ("state", |job| job.outcome.state = Some("OUT_OF_MEMORY".to_owned())),
        ("signal", |job| job.outcome.exit_signal = Some(125)),
        ("other state", |job| job.outcome.state = Some("NODE_FAIL".to_owned())),
    ];
    for (name, change) in changes {
        let mut job = report(60, 16, vec![busy("n1", &hour(1.0))]);
        job.submission.memory_bytes = Some(2 << 30);
        change(&mut job);
        Advice::built_in().advise(&mut job);
        assert!(!job.findings.is_empty() && job.steps.is_empty());
        for finding in &job.findings {
            let remedy = finding.remedy(job.scheduler).unwrap();
            assert!(remedy.starts_with("#SBATCH --"), "{name}: {remedy}");
        }
    }
    let mut other = report(60, 16, vec![busy("n1", &hour(1.0))]);
    Advice::built_in().advise(&mut other);
    assert_eq!(other.scheduler, None);
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

#[test]
fn the_slowest_of_two_nodes_is_compared_with_their_mean() {
    let uneven = report(60, 2, vec![busy("n1", &hour(1.0)), busy("n2", &hour(0.5))]);
    assert!((number(&uneven, "slowest_node_ratio").unwrap() - 4.0 / 3.0).abs() < 1e-9);
    assert_eq!(ids(&uneven), ["node-imbalance"]);
    let three = report(60, 3, vec![busy("n1", &hour(1.0)), busy("n2", &hour(0.9)), busy("n3", &hour(1.0))]);
    assert_eq!(number(&three, "slowest_node_ratio"), Some(1.0));
}

#[test]
fn the_efficiency_is_unknown_where_a_part_of_the_cpu_time_is() {
    let mut silent = report(60, 8, vec![busy("n1", &hour(7.0))]);
    assert_eq!(number(&silent, "cores_used"), Some(7.0));
    silent.by_node.push(crate::model::NodeReport { node: "n2".to_owned(), ..Default::default() });
    silent.nodes.push("n2".to_owned());
    assert_eq!((number(&silent, "cores_used"), ids(&silent)), (None, vec!["silent-nodes".to_owned()]));
    let mut lost = report(60, 8, vec![busy("n1", &hour(4.0)), busy("n2", &hour(1.0))]);
    lost.by_node[1].is_lost = true;
    assert_eq!((number(&lost, "cpu_efficiency"), ids(&lost)), (None, Vec::<String>::new()));
}

/// Metrics that the sources of the facts name.
fn names_of_metrics() -> Vec<&'static str> {
    let sources = [
        include_str!("compute.rs"),
        include_str!("course.rs"),
        include_str!("balance.rs"),
        include_str!("gpus.rs"),
        include_str!("../../resources.rs"),
        include_str!("../../gather.rs"),
    ];
    let strings = sources.into_iter().flat_map(|source| source.split('"').skip(1).step_by(2));
    strings
        .filter(|text| {
            text.contains('.')
                && !text.starts_with('.')
                && !text.ends_with('.')
                && text.chars().all(|letter| letter.is_ascii_lowercase() || "._".contains(letter))
        })
        .collect()
}

#[test]
fn the_facts_read_metrics_of_the_catalogue() {
    let names = names_of_metrics();
    assert!(names.contains(&"pressure.io.full.total") && names.contains(&"memory.shmem"), "{names:?}");
    assert!(names.contains(&"gpu.utilization"), "{names:?}");
    for name in names {
        assert!(polymeter_proto::catalogue::find(name).is_some(), "no metric {name}");
    }
}

#[test]
fn the_packaged_plan_has_the_metrics_of_the_facts() {
    let config: toml::Table = toml::from_str(include_str!("../../../../deploy/agent.toml")).unwrap();
    let baseline = config["baseline"].as_table().unwrap();
    let is_sampled = |name: &str| {
        baseline.keys().any(|selector| match selector.split_once('*') {
            Some((before, after)) => name.starts_with(before) && name.ends_with(after),
            None => selector == name,
        })
    };
    // The driver of GPUs is loaded only where an administrator wants it.
    let alternatives = ["memory.pgfault", "gpu."];
    // These are read from each thread, which an administrator decides.
    let of_threads = ["cpu.allowed", "cpu.bound", "cpu.threads.busy"];
    for name in names_of_metrics() {
        // Metrics of processes are used where there is no cgroup.
        let is_optional = name.starts_with("process.")
            || name.starts_with("perf.")
            || of_threads.contains(&name)
            || alternatives.iter().any(|start| name.starts_with(start));
        assert!(is_optional || is_sampled(name), "{name} is not in the baseline");
    }
}

fn notices(report: &Report, owner_wasted: Option<f64>) -> Vec<String> {
    let (rules, faults) = Advice::notices(std::path::Path::new("/no/such/directory"));
    assert!(faults.0.is_empty(), "{faults}");
    let mut facts = Facts::of(report);
    facts.set("owner_wasted_core_hours", owner_wasted.map(crate::expression::Value::Number));
    rules.findings(&facts).into_iter().map(|finding| finding.id).collect()
}

fn gpu_until(number: u32, busy_minutes: usize) -> SeriesReport {
    let values: Vec<f64> = (0..240).map(|minute| if minute < busy_minutes { 80.0 } else { 0.0 }).collect();
    SeriesReport { labels: format!("gpu={number}"), ..gauge("gpu.utilization", &values) }
}

#[test]
fn notices_are_about_what_a_user_can_still_change() {
    let running = |series| Report { ended: false, ..report(240, 8, series) };
    for (busy, idle_s) in [(0, 239.0 * 60.0), (100, 139.0 * 60.0), (181, 58.0 * 60.0), (240, 0.0)] {
        let report = running(vec![gpu_until(0, 240), gpu_until(1, busy)]);
        assert_eq!(number(&report, "gpu_idle_time"), Some(idle_s), "{busy}");
        let expected: &[&str] = if idle_s >= 3600.0 { &["idle-gpu"] } else { &[] };
        assert_eq!(notices(&report, None), expected, "{busy}");
        assert_eq!(notices(&Report { ended: true, ..report }, None), [""; 0], "it is over");
    }
    let memory = |used: f64| running(vec![gauge("memory.anon", &[used]), gauge("memory.limit", &[100.0])]);
    assert_eq!(notices(&memory(96.0), None), ["memory-near-limit"]);
    assert_eq!(notices(&memory(94.0), None), [""; 0]);
    let nodes = |idlest: f64| running(vec![busy("n1", &[4.0; 240]), busy("n2", &[idlest; 240])]);
    assert_eq!(notices(&nodes(0.7), None), ["node-below-others"]);
    assert_eq!(notices(&nodes(0.9), None), [""; 0]);
    let ended = Report { ended: true, ..report(240, 8, vec![busy("n1", &[1.0; 240])]) };
    assert_eq!(number(&ended, "wasted_core_hours"), Some(28.0));
    assert_eq!(notices(&ended, Some(1500.0)), ["wasted-core-hours"]);
    assert_eq!((notices(&ended, Some(900.0)), notices(&ended, None)), (Vec::new(), Vec::new()));
}

/// Job with samples of call stacks, of which an activity has a percentage.
fn with_activity(activity: &str, percent: f64, samples: u64) -> Report {
    let share = FunctionShare { function: "f".to_owned(), module: "a.out".to_owned(), self_percent: percent };
    let of = ActivityReport { activity: activity.to_owned(), percent, functions: vec![share] };
    let stacks = StackReport {
        metric: "stacks.cpu".to_owned(),
        samples,
        activities: vec![of],
        ..StackReport::default()
    };
    Report { call_stacks: vec![stacks], wall_s: 10.0, ..Report::default() }
}

#[test]
fn activities_with_much_time_are_found() {
    for (activity, rule) in [
        ("locks", "waiting-for-locks"),
        ("openmp", "waiting-in-openmp"),
        ("mpi", "waiting-in-mpi"),
        ("page-faults", "page-faults"),
        ("io", "calls-of-io"),
        ("interpreter", "interpreted-code"),
        ("no-symbol", "functions-without-symbol"),
    ] {
        assert_eq!(ids(&with_activity(activity, 60.0, 10_000)), [rule]);
        assert_eq!(ids(&with_activity(activity, 3.0, 10_000)), [""; 0]);
        assert_eq!(ids(&with_activity(activity, 60.0, 100)), [""; 0], "few samples");
    }
    let report = with_activity("locks", 60.0, 10_000);
    let finding = &Advice::built_in().findings(&Facts::of(&report))[0];
    assert_eq!(finding.sentence, "Threads spent 60 % of the CPU time waiting for locks.");
    assert_eq!(finding.evidence, "f 60.0 %; 10000 samples, at most 1 % more or less");
    for (activity, rules) in
        [("locks", &["sleeping-for-locks"][..]), ("io", &["sleeping-for-io"]), ("threads", &[])]
    {
        let mut waiting = with_activity(activity, 60.0, 10_000);
        waiting.call_stacks[0].metric = "stacks.wait".to_owned();
        assert_eq!(ids(&waiting), rules);
    }
}

#[test]
fn processes_that_differ_in_a_function_are_found_where_others_wait() {
    let mut report = with_activity("mpi", 40.0, 10_000);
    assert_eq!(ids(&report), ["waiting-in-mpi"]);
    report.call_stacks[0].imbalance = Some(FunctionImbalance {
        function: "solve".to_owned(),
        processes: 4,
        most_s: 10.0,
        mean_s: 6.0,
        percent: 40.0,
        node: "n1".to_owned(),
        process: 42,
        ..FunctionImbalance::default()
    });
    assert_eq!(ids(&report), ["function-imbalance"]);
    let finding = &Advice::built_in().findings(&Facts::of(&report))[0];
    let expected =
        "process 42 on n1: 10 s, mean of 4 processes: 6 s; 40 % of the CPU time in MPI communication";
    assert_eq!(finding.evidence, expected);
    report.call_stacks[0].activities.clear();
    assert_eq!(ids(&report), [""; 0], "processes that do not wait for each other");
}
