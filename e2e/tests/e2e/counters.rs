//! Counters: they never decrease, include ended processes, and agree with one another.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use polymeter_e2e::cgroup::{self, TestCgroups, V2};
use polymeter_e2e::daemons::{Agent, Daemon, Plan, collector};
use polymeter_e2e::stored::{self, Key, Series};
use polymeter_e2e::tests;
use polymeter_e2e::workload::{self, Workload};
use polymeter_e2e::{Need, TestEnvironment, require, skip, wait_until};
use polymeter_store::reader::SeriesScope;

tests![
    cpu_counters_continue_when_the_cgroup_version_changes,
    user_and_system_time_sum_to_cpu_time,
    oom_kills_of_a_step_count_for_the_job,
    io_falls_back_to_process_counters,
];

const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];

struct Node {
    collector: Daemon,
    agent: Agent,
    cgroups: TestCgroups,
    env: TestEnvironment,
}

impl Node {
    fn start(baseline: &[(&str, &str)]) -> Self {
        let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
        let (collector, endpoint) = collector(&env, &env.endpoint());
        let jobs = [cgroups.pattern()];
        let agent = Agent::start(&env, &Plan { collector: &endpoint, jobs: &jobs, baseline });
        Self { collector, agent, cgroups, env }
    }

    fn samples(&self, job: &str) -> BTreeMap<Key, Series> {
        let mut reader = self.env.reader();
        stored::job(&mut reader, job)
            .map_or_else(BTreeMap::new, |row| stored::samples(&mut reader, SeriesScope::Job(row.job_key)))
    }

    /// Stored values of one metric of a job, of all its series one after the other.
    fn values(&self, job: &str, metric: &str) -> Vec<f64> {
        let of_metric = self.samples(job).into_iter().filter(|((name, _), _)| name == metric);
        of_metric.flat_map(|(_, series)| series.points.into_iter().map(|(_, value)| value)).collect()
    }

    fn last(&self, job: &str, metric: &str) -> f64 {
        self.values(job, metric).last().copied().unwrap_or_default()
    }

    fn end(self) {
        self.agent.daemon.terminate();
        self.collector.terminate();
    }
}

fn assert_monotonic(values: &[f64]) {
    assert!(values.is_sorted(), "a counter decreases: {values:?}");
}

/// A cgroup that is removed when the test ends.
struct ExtraCgroup(PathBuf);

impl ExtraCgroup {
    fn new(controller: &str, cgroups: &TestCgroups, job: &str) -> Self {
        let top = cgroup::root(controller).unwrap().join(&cgroups.name);
        fs::create_dir_all(top.join(format!("job_{job}"))).unwrap();
        Self(top)
    }

    fn enter(&self, job: &str, pid: u32) {
        fs::write(self.0.join(format!("job_{job}/cgroup.procs")), pid.to_string()).unwrap();
    }
}

impl Drop for ExtraCgroup {
    fn drop(&mut self) {
        cgroup::remove(&self.0).ok();
    }
}

fn shell_in(directories: &[PathBuf], script: &str) -> Child {
    let enter: String = directories
        .iter()
        .map(|directory| format!("echo $$ >{}/cgroup.procs; ", directory.display()))
        .collect();
    let shell = Command::new("sh").args(["-c", &format!("{enter}{script}")]).stdin(Stdio::piped()).spawn();
    shell.unwrap()
}

fn cpu_counters_continue_when_the_cgroup_version_changes() {
    require(&NEEDS);
    let node = Node::start(&[("cpu.usage", "20ms")]);
    let (job, mut workload) = (node.cgroups.job_under("1", "cpuacct"), Workload::start());
    job.enter(workload.pid());
    workload.execute("burn 200");
    wait_until("version 1 has counted it", || node.last("1", "cpu.usage") >= 200e6);
    let later = ExtraCgroup::new(V2, &node.cgroups, "1");
    later.enter("1", workload.pid());
    node.agent.wait_until_tracked("1", &["v2/cpu.stat"]);
    let before = node.last("1", "cpu.usage");
    workload.execute("burn 100");
    wait_until("version 2 continues from there", || node.last("1", "cpu.usage") >= before + 90e6);
    assert_monotonic(&node.values("1", "cpu.usage"));
    drop((workload, job, later));
    node.end();
}

fn user_and_system_time_sum_to_cpu_time() {
    require(&NEEDS);
    let node = Node::start(&[("cpu.usage", "20ms"), ("cpu.user", "20ms"), ("cpu.system", "20ms")]);
    let (job, mut workload) = (node.cgroups.job_under("1", "cpuacct"), Workload::start());
    job.enter(workload.pid());
    // Work that ends before the tick which would count it, and work that is counted as a whole tick.
    for _ in 0..40 {
        workload.execute("burn 5");
        workload.execute("touch 300");
    }
    workload.stop();
    let directory = job.directory("cpuacct");
    let usage: f64 = fs::read_to_string(directory.join("cpuacct.usage")).unwrap().trim().parse().unwrap();
    wait_until("all of it has arrived", || node.last("1", "cpu.usage") >= usage);
    let stat = fs::read_to_string(directory.join("cpuacct.stat")).unwrap();
    let ticks: f64 = stat.split_whitespace().filter_map(|word| word.parse::<f64>().ok()).sum();
    let sum = || node.last("1", "cpu.user") + node.last("1", "cpu.system");
    wait_until("its parts have arrived", || sum() >= ticks * 1e7);
    assert!(sum() <= usage + 1e7, "user and system {} of {usage}", sum());
    assert!(sum() >= usage - 2e7, "user and system {} of {usage}", sum());
    drop((workload, job));
    node.end();
}

fn oom_kills_of_a_step_count_for_the_job() {
    require(&NEEDS);
    // The period is so long that only the reads triggered by an ended step show the value.
    let node = Node::start(&[("memory.events.oom_kill", "1d"), ("cpu.usage", "20ms")]);
    let job = node.cgroups.job("1");
    node.agent.wait_until_tracked("1", &["v1/memory.oom_control"]);
    for kills in 1..=2_u32 {
        let step = job.step(&format!("step_{kills}"));
        let task = step.step("task_0");
        let limit = step.directory_below("memory");
        fs::write(limit.join("memory.limit_in_bytes"), "16M").unwrap();
        fs::write(limit.join("memory.memsw.limit_in_bytes"), "16M").ok();
        let script = format!("{} 'touch 16384'; :", workload::program().display());
        let mut shell = shell_in(&task.directories, &script);
        shell.wait().unwrap();
        let killed = fs::read_to_string(task.directory_below("memory").join("memory.oom_control")).unwrap();
        if !killed.contains("oom_kill 1") {
            skip("cgroup1", &format!("the kernel did not count a kill: {killed}"));
        }
        wait_until("the kill is counted", || node.last("1", "memory.events.oom_kill") >= f64::from(kills));
        step.remove();
    }
    // Kills in removed cgroups stay counted.
    job.remove();
    stored::wait_for_end(&node.env, "1");
    let values = node.values("1", "memory.events.oom_kill");
    assert_monotonic(&values);
    assert_eq!((values[0], values.last()), (0.0, Some(&2.0)), "{values:?}");
    node.end();
}

/// Bytes that a process and the children it has waited for have written to storage.
fn written(pid: u32) -> f64 {
    let io = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("io")).unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
    line.parse().unwrap()
}

fn io_falls_back_to_process_counters() {
    require(&NEEDS);
    require(&[Need::Blkio]);
    let node = Node::start(&[("io.*", "20ms")]);
    let blkio = ExtraCgroup::new("blkio", &node.cgroups, "1");
    let job = node.cgroups.job("1");
    node.agent.wait_until_tracked("1", &["processes"]);
    let mut directories = job.directories.clone();
    directories.push(blkio.0.join("job_1"));
    let file = node.env.path("written");
    let write =
        |count: u32| format!("dd if=/dev/zero of={} bs=1M count={count} conv=fsync 2>&-; ", file.display());
    // The shell waits for two children, and then for a line.
    let mut shell = shell_in(&directories, &format!("{}{}read line; {}", write(3), write(4), write(5)));
    wait_until("the shell waits", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", shell.id())).unwrap();
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", shell.id())).unwrap();
        file.exists()
            && stat.contains(") S")
            && children.is_empty()
            && file.metadata().unwrap().len() == 4 << 20
    });
    let first = written(shell.id());
    if first < f64::from(7 << 20) {
        drop(shell.stdin.take());
        shell.wait().unwrap();
        skip("root", "writes to the temporary directory are no I/O");
    }
    wait_until("what was written has arrived", || node.last("1", "io.write.bytes") >= first);
    drop(shell.stdin.take());
    shell.wait().unwrap();
    drop(blkio);
    job.remove();
    stored::wait_for_end(&node.env, "1");
    let values = node.values("1", "io.write.bytes");
    assert_monotonic(&values);
    assert!(values.last() <= Some(&(first + f64::from(6 << 20))), "nothing is counted twice: {values:?}");
    assert!(values.last() >= Some(&first), "{values:?}");
    node.end();
}
