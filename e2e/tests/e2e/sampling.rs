//! From the kernel to the database: every value equals the kernel's, and every deadline is accounted for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Plan, collector};
use polymeter_e2e::reference::{Snapshot, assert_between};
use polymeter_e2e::stored::{self, Key};
use polymeter_e2e::tests;
use polymeter_e2e::workload::{Sleeper, Workload};
use polymeter_e2e::{Need, TestEnvironment, pause, require, skip, wait_until};
use polymeter_proto::catalogue::{self, Origin};
use polymeter_proto::ledger::Tally;
use polymeter_store::reader::SeriesScope;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::json;

tests![
    stored_values_match_the_kernel_on_sqlite,
    stored_values_match_the_kernel_on_postgresql,
    exclusive every_deadline_is_stored_or_counted,
    exclusive removed_job_does_not_disturb_others,
    sampler_keeps_up_on_busy_cpus,
    ended_jobs_leave_no_resources,
];

/// Names of a job's sources when all of them are open.
const SOURCES: [&str; 5] =
    ["v1/memory.stat", "v1/cpuacct.usage_all", "v1/pids.current", "v2/cpu.stat", "perf/0"];

/// Attempts to compare the values of a stopped job: the kernel updates memory.stat every 2 s.
const ATTEMPTS: u32 = 5;

fn stored_values_match_the_kernel_on_sqlite() {
    values(TestEnvironment::new);
}

fn stored_values_match_the_kernel_on_postgresql() {
    values(TestEnvironment::postgres);
}

fn values(env: impl Fn() -> TestEnvironment) {
    require(&[Need::Root, Need::Cgroup1, Need::Cgroup2, Need::Perf]);
    let env = env();
    let cgroups = TestCgroups::new();
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let baseline = [("memory.*", "20ms"), ("cpu.*", "20ms"), ("pids.*", "20ms"), ("perf.*", "20ms")];
    let agent =
        Agent::start(&env, &Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &baseline });
    let job = cgroups.job("1");
    let mut workload = Workload::start();
    agent.wait_until_tracked("1", &SOURCES);
    // Two processes, one in the job's cgroup and one in a step's: version 1 counts with and without the child
    // cgroups differ.
    let (step, mut other) = (job.step("step_0"), Workload::start());
    step.enter(workload.pid());
    job.enter(other.pid());
    other.execute("touch 300");
    other.execute("burn 20");
    other.stop();

    let faults_before = stored_now(&env, "1", "perf.page_faults");
    workload.execute("touch 2000");
    let mut snapshots = Vec::new();
    for step in 0..60 {
        snapshots.push(Snapshot::take(&job));
        workload.execute(["touch 100", "burn 5", "rest 10"][step % 3]);
    }
    workload.execute("touch 500");
    workload.stop();
    assert_matches_stopped_job(&env, &job);
    snapshots.push(Snapshot::take(&job));
    let pid = workload.pid();
    let before_us = polymeter_e2e::now_us();
    wait_until("the last faults are stored", || newest(&env, "1", "perf.page_faults").0 > before_us);
    let faults = newest(&env, "1", "perf.page_faults").1 - faults_before;
    // 20 times 100 pages in addition to 2000 and 500, and some of the workload's own.
    assert!((4500.0..4700.0).contains(&faults), "process {pid} made {faults} page faults");
    drop(workload);
    job.remove();
    let ended = stored::wait_for_end(&env, "1");
    let samples = stored::samples(&mut env.reader(), SeriesScope::Job(ended.job_key));
    assert_between(&samples, &snapshots);
    agent.daemon.terminate();
    collector.terminate();
}

fn newest(env: &TestEnvironment, job: &str, metric: &str) -> (i64, f64) {
    let mut reader = env.reader();
    let Some(job) = stored::job(&mut reader, job) else { return (0, 0.0) };
    let samples = stored::samples(&mut reader, SeriesScope::Job(job.job_key));
    samples
        .get(&(metric.to_owned(), String::new()))
        .and_then(|series| series.points.last().copied())
        .unwrap_or_default()
}

/// A value of a metric of the job that was read after this call began.
fn stored_now(env: &TestEnvironment, job: &str, metric: &str) -> f64 {
    let began_us = polymeter_e2e::now_us();
    wait_until("a newer value is stored", || newest(env, job, metric).0 > began_us);
    newest(env, job, metric).1
}

/// Checks that the stored values of a stopped job equal the values in the kernel's files, and that none is
/// missing.
fn assert_matches_stopped_job(env: &TestEnvironment, job: &polymeter_e2e::cgroup::Job) {
    let mut wrong = Vec::new();
    for _ in 0..ATTEMPTS {
        let before = Snapshot::take(job);
        wait_until("newer values of all series are stored", || {
            let last = last_values(env, &job.id, i64::MAX);
            before.values.keys().all(|key| last.get(key).is_none_or(|(time_us, _)| *time_us > before.end_us))
        });
        let after = Snapshot::take(job);
        let last = last_values(env, &job.id, after.begin_us);
        if before.values != after.values {
            wrong.push(format!("the files changed: {before:?} {after:?}"));
            continue;
        }
        let stored: BTreeMap<Key, f64> = last.into_iter().map(|(key, (_, value))| (key, value)).collect();
        if stored == after.values {
            assert!(stored.len() > 60, "only {stored:?}");
            return;
        }
        let keys =
            stored.keys().chain(after.values.keys()).filter(|key| stored.get(*key) != after.values.get(*key));
        wrong.extend(keys.map(|key| {
            format!("{key:?}: stored {:?}, in the file {:?}", stored.get(key), after.values.get(key))
        }));
    }
    panic!("{wrong:#?}");
}

/// Last value before `before_us` of each series that a kernel file has.
fn last_values(env: &TestEnvironment, job: &str, before_us: i64) -> BTreeMap<Key, (i64, f64)> {
    let mut reader = env.reader();
    let job = stored::job(&mut reader, job).unwrap();
    let samples = stored::samples(&mut reader, SeriesScope::Job(job.job_key));
    let of_files = samples.into_iter().filter(|((metric, _), _)| {
        let origins = catalogue::find(metric).unwrap().metric.origins;
        origins.iter().any(|origin| matches!(origin, Origin::Text { .. }))
    });
    of_files
        .filter_map(|(key, series)| {
            Some((key, series.points.into_iter().rfind(|(time_us, _)| *time_us < before_us)?))
        })
        .collect()
}

/// Metrics whose deadlines are counted, each with a source of its own: name, period in microseconds, source.
const DEADLINE_METRICS: [(&str, i64, &str); 4] = [
    ("memory.events.max", 100, "v1/memory.failcnt"),
    ("memory.current", 1_000, "v1/memory.usage_in_bytes"),
    ("cpu.usage", 100_000, "v2/cpu.stat"),
    ("pids.current", 1_000_000, "v1/pids.current"),
];

fn every_deadline_is_stored_or_counted() {
    require(&[Need::Root, Need::Cgroup1, Need::Cgroup2]);
    // Beside other programs the agent may lose its CPU between the begin of its grid and the first sample.
    assert!((0..3).any(|_| sample_a_job()), "deadlines are counted as missed where no sample was due");
}

/// Checks the deadlines of a job. Returns false if more of them were missed before the first sample and after
/// the last than pass while these are taken.
fn sample_a_job() -> bool {
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let job = cgroups.job("1");
    let sleeper = Sleeper::start();
    job.enter(sleeper.pid());
    let baseline = [
        ("memory.events.max", "100us"),
        ("memory.current", "1ms"),
        ("cpu.usage", "100ms"),
        ("pids.current", "1s"),
    ];
    let agent = Agent::start(&env, &Plan { collector: &endpoint, jobs: &[], baseline: &baseline });
    // A registered job has its first and its last sample off the grid, and all its cgroups from the
    // beginning.
    let answer = agent.ask(&json!({"verb": "register", "job": "1", "cgroups": job.directories}));
    assert_eq!(answer["answer"], "registered", "{answer}");
    pause(4_000);
    assert_eq!(agent.ask(&json!({"verb": "unregister", "job": "1"}))["answer"], "done");
    let ended = stored::wait_for_end(&env, "1");
    let tracked_us = ended.started_ns / 1000..ended.ended_ns.unwrap() / 1000;
    let mut reader = env.reader();
    let samples = stored::samples(&mut reader, SeriesScope::Job(ended.job_key));
    let ledger = stored::ledger(&mut reader, ended.job_key);
    let mut are_edges_short = true;
    for (metric, period_us, source) in DEADLINE_METRICS {
        let times: Vec<i64> =
            samples[&(metric.to_owned(), String::new())].points.iter().map(|point| point.0).collect();
        are_edges_short &= assert_on_grid(metric, &times, period_us, &ledger[source], &tracked_us);
    }
    assert_eq!((samples.len(), ledger.len()), (DEADLINE_METRICS.len(), DEADLINE_METRICS.len()));
    let sum = stored::sum(&ledger);
    assert_eq!((sum.taken, sum.dropped, sum.absent), (stored::rows(&mut reader, ended.job_key), 0, 0));
    assert_eq!(agent.count("taken"), sum.taken);
    assert!(reader.last_losses(u32::MAX).unwrap().is_empty());
    agent.daemon.terminate();
    collector.terminate();
    are_edges_short
}

/// Checks that every sample except the first and the last has a deadline of its own, that the missed
/// deadlines between these two were counted, and none was that is outside of the time in which the job was
/// tracked. Returns whether only those between the two were counted.
fn assert_on_grid(
    metric: &str,
    times_us: &[i64],
    period_us: i64,
    tally: &Tally,
    tracked_us: &Range<i64>,
) -> bool {
    /// Permitted difference between the grid, which is set once, and the wall clock, in microseconds.
    const SKEW_US: i64 = 20;
    assert_eq!(tally.taken, times_us.len() as u64, "{metric}: {tally:?}");
    let missed = tally.missed as i64;
    let (mut kept, mut out_of_turn) = (i64::MIN, 0);
    for time_us in times_us {
        // A sample that is read late within its tick may carry a time after the next deadline.
        let earliest = (time_us / period_us - 1).max(kept.saturating_add(1));
        if earliest <= (time_us + SKEW_US) / period_us {
            kept = earliest;
        } else {
            out_of_turn += 1;
        }
    }
    assert!(
        out_of_turn <= 2 + missed,
        "{metric}: {out_of_turn} of {} samples keep no deadline",
        times_us.len()
    );
    let deadlines = |begin_us: i64, end_us: i64| end_us / period_us - begin_us / period_us;
    let between = deadlines(times_us[0], times_us[times_us.len() - 1]);
    let accounted = times_us.len() as i64 - 2 + missed;
    // The first and the last sample are dated shortly after the deadlines begin and end to count.
    let edges = if period_us < 1_000 { 5 } else { 1 };
    let most = deadlines(tracked_us.start, tracked_us.end) + edges;
    assert!(
        (between - edges..=most).contains(&accounted),
        "{metric}: {accounted} of {between} to {most} deadlines are accounted for, {tally:?}"
    );
    accounted <= between + edges
}

fn removed_job_does_not_disturb_others() {
    require(&[Need::Root, Need::Cgroup1, Need::Cgroup2]);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let baseline = [("memory.*", "1ms"), ("cpu.*", "1ms"), ("pids.*", "1ms"), ("perf.page_faults", "1ms")];
    let mut agent =
        Agent::start(&env, &Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &baseline });
    let (stays, goes) = (cgroups.job("stays"), cgroups.job("goes"));
    let sleepers = [Sleeper::start(), Sleeper::start()];
    stays.enter(sleepers[0].pid());
    goes.enter(sleepers[1].pid());
    let sources = &SOURCES[..4];
    agent.wait_until_tracked("stays", sources);
    agent.wait_until_tracked("goes", sources);
    pause(300);
    // The job is sampled every millisecond while its process is killed and its directories are removed one
    // after the other.
    goes.remove();
    let gone = stored::wait_for_end(&env, "goes");
    let gone_us = gone.ended_ns.unwrap() / 1000;
    assert!((stored_now(&env, "stays", "pids.current") - 1.0).abs() < f64::EPSILON);
    assert!(agent.daemon.runs());
    assert_eq!(agent.jobs(), ["stays"]);
    let mut reader = env.reader();
    let samples = stored::samples(&mut reader, SeriesScope::Job(gone.job_key));
    let last_us =
        samples.values().filter_map(|series| series.points.last()).map(|point| point.0).max().unwrap();
    assert!(last_us <= gone_us, "a sample of {last_us} after the end at {gone_us}");
    let sum = stored::sum(&stored::ledger(&mut reader, gone.job_key));
    assert_eq!(sum.taken - sum.dropped, stored::rows(&mut reader, gone.job_key), "{sum:?}");
    stays.remove();
    let stayed = stored::wait_for_end(&env, "stays");
    assert!(stayed.ended_ns.unwrap() / 1000 > gone_us);
    let sum = stored::sum(&stored::ledger(&mut reader, stayed.job_key));
    assert_eq!(sum.taken - sum.dropped, stored::rows(&mut reader, stayed.job_key), "{sum:?}");
    assert_silent(&agent.daemon.terminate());
    collector.terminate();
}

/// The sampler moves between CPUs when all of them are busy, so that no CPU's programs are interrupted more
/// than the others.
fn sampler_keeps_up_on_busy_cpus() {
    const FIFO: &str = "1";
    require(&[Need::Root]);
    let members = |set: &CpuSet| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect::<Vec<_>>();
    let cpus = members(&sched_getaffinity(None).unwrap());
    if cpus.len() < 2 {
        skip("cpus", "there is one CPU only");
    }
    let env = TestEnvironment::new();
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let agent =
        Agent::start(&env, &Plan { collector: &endpoint, jobs: &[], baseline: &[("node.cpu.*", "1ms")] });
    let sampler = agent.daemon.thread("sampler");
    // The policy is the 41st field, after the name in the second; see proc_pid_stat(5).
    let stat = std::fs::read_to_string(sampler.join("stat")).unwrap();
    if stat.rsplit_once(") ").unwrap().1.split(' ').nth(38) != Some(FIFO) {
        skip("real-time", "this machine grants no real-time priority");
    }
    let thread = Pid::from_raw(sampler.file_name().unwrap().to_str().unwrap().parse().unwrap());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in &cpus {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let mut seen = BTreeSet::new();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until("the sampler has been on two CPUs", || {
                let at = members(&sched_getaffinity(thread).unwrap());
                seen.extend((at.len() == 1).then(|| at[0]));
                seen.len() > 1
            });
        }));
        // The agent keeps a CPU affinity that an administrator sets.
        let all = sched_getaffinity(None).unwrap();
        let unchanged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until("the agent logs that it keeps the affinity", || {
                sched_setaffinity(thread, &all).unwrap();
                agent.daemon.log().contains("leaving it unchanged")
            });
            pause(1_000);
            assert_eq!(members(&sched_getaffinity(thread).unwrap()), cpus);
        }));
        stop.store(true, Ordering::Relaxed);
        result.and(unchanged).unwrap();
    });
    assert_silent(&agent.daemon.terminate());
    collector.terminate();
}

fn assert_silent(text: &str) {
    let worse = text.lines().find(|line| !line.starts_with("polymeter-agent: info: "));
    assert!(worse.is_none(), "{text}");
}

fn ended_jobs_leave_no_resources() {
    /// How many jobs start and end, several at a time.
    const JOBS: usize = 20;
    require(&[Need::Root, Need::Cgroup1, Need::Cgroup2, Need::Perf]);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let (collector, endpoint) = collector(&env, &env.endpoint());
    // Every job is shorter than a minute: at that period only its first and last samples are stored.
    let baseline =
        [("memory.current", "1min"), ("pids.current", "1min"), ("cpu.*", "50ms"), ("perf.*", "50ms")];
    let agent =
        Agent::start(&env, &Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &baseline });
    // The first job opens the descriptors that stay open.
    run_short_job(&cgroups, "first");
    stored::wait_for_end(&env, "first");
    wait_until("the first job is forgotten", || agent.jobs().is_empty());
    let before = agent.daemon.settled_descriptors();
    std::thread::scope(|scope| {
        for number in 0..JOBS {
            let cgroups = &cgroups;
            scope.spawn(move || run_short_job(cgroups, &number.to_string()));
            pause(100);
        }
    });
    for number in 0..JOBS {
        let ended = stored::wait_for_end(&env, &number.to_string());
        let samples = stored::samples(&mut env.reader(), SeriesScope::Job(ended.job_key));
        for metric in ["memory.current", "pids.current", "cpu.usage", "perf.page_faults"] {
            let series = samples.get(&(metric.to_owned(), String::new()));
            assert!(series.is_some_and(|series| !series.points.is_empty()), "job {number} has no {metric}");
        }
    }
    assert!(agent.jobs().is_empty());
    assert_eq!(agent.daemon.settled_descriptors(), before);
    assert_silent(&agent.daemon.terminate());
    collector.terminate();
}

fn run_short_job(cgroups: &TestCgroups, id: &str) {
    let job = cgroups.job(id);
    let mut child = Command::new("sleep").arg("0.5").spawn().unwrap();
    job.enter(child.id());
    child.wait().unwrap();
    job.remove();
}
