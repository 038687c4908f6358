//! perf events of steps and tasks, and of jobs without a cgroup for perf.

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Daemon, Plan, collector};
use polymeter_e2e::workload::Workload;
use polymeter_e2e::{Need, TestEnvironment, require, stored, tests, wait_until};
use polymeter_store::reader::SeriesScope;

tests![
    perf_events_of_steps_and_tasks_are_counted,
    perf_events_of_a_job_and_its_steps_share_a_limit,
    processes_of_a_job_without_a_cgroup_for_perf_are_followed,
];

const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];
const CLOCK: &str = "perf.task_clock";
/// CPU time that `burn 200` uses at least, as perf counts it: between two processes a few microseconds belong
/// to neither, 0.02 ms of 200 on busy CPUs.
const BURNT_NS: f64 = 198e6;

struct Node {
    agent: Agent,
    collector: Daemon,
    cgroups: TestCgroups,
    env: TestEnvironment,
}

impl Node {
    fn start(keys: &str, tables: &str) -> Self {
        let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
        let (collector, endpoint) = collector(&env, &env.endpoint());
        let jobs = [cgroups.pattern()];
        let plan = Plan { collector: &endpoint, jobs: &jobs, baseline: &[(CLOCK, "50ms")] };
        let keys = format!("rescan_interval = \"100ms\"\n{keys}");
        let agent = Agent::start_with(&env, &plan, &keys, tables);
        Self { agent, collector, cgroups, env }
    }

    fn values(&self, metric: &str, labels: &str) -> Vec<f64> {
        let mut reader = self.env.reader();
        let Some(job) = stored::job(&mut reader, "7") else { return Vec::new() };
        let samples = stored::samples(&mut reader, SeriesScope::Job(job.job_key));
        let series = samples.get(&(metric.to_owned(), labels.to_owned()));
        series.map(|series| series.points.iter().map(|point| point.1).collect()).unwrap_or_default()
    }

    fn last(&self, metric: &str, labels: &str) -> f64 {
        self.values(metric, labels).last().copied().unwrap_or_default()
    }

    fn end(self) {
        self.agent.daemon.terminate();
        self.collector.terminate();
    }
}

fn perf_events_of_steps_and_tasks_are_counted() {
    require(&NEEDS);
    let tables = "[steps]\n\"perf.*clock\" = \"20ms\"\n[tasks]\n\"perf.task_clock\" = \"20ms\"\n";
    let node = Node::start("", tables);
    let (job, mut workload) = (node.cgroups.job("7"), Workload::start());
    let first = job.step("step_0");
    let task = first.step("task_3");
    task.enter(workload.pid());
    let counted = |labels| wait_until(labels, || !node.values(CLOCK, labels).is_empty());
    ["step=0", "step=0,task=3"].into_iter().for_each(counted);
    workload.execute("burn 200");
    for labels in ["step=0,task=3", "step=0", ""] {
        wait_until(&format!("the CPU time of `{labels}`"), || node.last(CLOCK, labels) >= BURNT_NS);
        assert!(node.values(CLOCK, labels).is_sorted(), "a counter decreases");
    }
    // A step that comes later begins at 0, and the former does not count its time.
    let before = node.last(CLOCK, "step=0");
    let (second, mut other) = (job.step("step_1"), Workload::start());
    second.enter(other.pid());
    counted("step=1");
    other.execute("burn 200");
    wait_until("the CPU time of the other step", || node.last(CLOCK, "step=1") >= BURNT_NS);
    wait_until("the CPU time of both steps", || node.last(CLOCK, "") >= 2.0 * BURNT_NS);
    assert!(node.last(CLOCK, "step=0") < before + BURNT_NS, "the steps are separate");
    drop((workload, other, task, first, second, job));
    node.end();
}

fn perf_events_of_a_job_and_its_steps_share_a_limit() {
    require(&NEEDS);
    let cpus = std::thread::available_parallelism().unwrap();
    let node = Node::start(&format!("perf_fd_limit = {cpus}\n"), "[steps]\n\"perf.*clock\" = \"20ms\"\n");
    let (job, workload) = (node.cgroups.job("7"), Workload::start());
    let step = job.step("step_0");
    step.enter(workload.pid());
    wait_until("the reason is stated", || reason_of_7(&node).is_some());
    let reason = reason_of_7(&node).unwrap();
    assert!(reason.starts_with("steps and tasks: limit of perf file descriptors per job"), "{reason}");
    wait_until("the job's own events are counted", || !node.values(CLOCK, "").is_empty());
    drop((workload, step, job));
    node.end();
}

fn reason_of_7(node: &Node) -> Option<String> {
    let status = node.agent.status();
    let job = status["subjects"].as_array()?.iter().find(|subject| subject["job"] == "7")?.clone();
    let missing = job["unavailable"].as_array()?.iter().find(|missing| missing[0] == CLOCK)?.clone();
    Some(missing[1].as_str()?.to_owned())
}

/// A job with a cgroup of version 1 alone, of a controller that is not `perf_event`.
fn processes_of_a_job_without_a_cgroup_for_perf_are_followed() {
    require(&NEEDS);
    let node = Node::start("", "");
    let (job, mut first) = (node.cgroups.job_under("7", "cpuacct"), Workload::start());
    job.enter(first.pid());
    wait_until("it is counted", || !node.values(CLOCK, "").is_empty());
    first.execute("burn 200");
    wait_until("its CPU time", || node.last(CLOCK, "") >= BURNT_NS);
    // A process that enters the job later, and ends. The events of the cgroup's own clock tell what both have
    // used.
    let mut second = Workload::start();
    job.enter(second.pid());
    let before = node.last(CLOCK, "");
    wait_until("it is followed, too", || {
        second.execute("burn 20");
        node.last(CLOCK, "") > before + 10e6
    });
    let before = node.last(CLOCK, "");
    second.execute("burn 200");
    wait_until("its CPU time", || node.last(CLOCK, "") >= before + 0.9 * BURNT_NS);
    drop(second);
    let samples = node.values(CLOCK, "").len();
    wait_until("further samples", || node.values(CLOCK, "").len() > samples + 3);
    assert!(node.values(CLOCK, "").is_sorted(), "the counts of an ended process are lost");
    let counted = node.last(CLOCK, "");
    let used = std::fs::read_to_string(job.directory("cpuacct").join("cpuacct.usage")).unwrap();
    assert!(counted <= used.trim().parse::<f64>().unwrap() * 1.05, "a process is counted twice");
    drop((first, job));
    node.end();
}
