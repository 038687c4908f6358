//! Metrics of eBPF programs, from the kernel to the store, and the reasons for which they are unavailable.

use std::process::Command;

use polymeter_e2e::cgroup::{Job, TestCgroups};
use polymeter_e2e::daemons::{Agent, Daemon, Plan, collector};
use polymeter_e2e::workload::Workload;
use polymeter_e2e::{Need, TestEnvironment, require, stored, tests, wait_until};
use polymeter_store::reader::SeriesScope;
use polymeter_test_harness::skip;

tests![
    metrics_of_a_job_are_stored,
    without_rights_the_reason_names_the_capabilities,
    unless_permitted_the_reason_names_the_key,
];

const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];
const BASELINE: [(&str, &str); 3] = [("network.*", "50ms"), ("runqueue.*", "50ms"), ("vfs.*", "50ms")];
const PERMITTED: &str = "ebpf = true\n";
const NOT_PERMITTED: &str =
    "eBPF programs are off; the administrator permits them with `ebpf = true` in the agent's configuration";

struct Node {
    agent: Agent,
    collector: Daemon,
    workload: Workload,
    _job: Job,
    _cgroups: TestCgroups,
    env: TestEnvironment,
}

impl Node {
    fn start(keys: &str, within: impl FnOnce(Command) -> Command) -> Self {
        require(&NEEDS);
        let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
        let (collector, endpoint) = collector(&env, &env.endpoint());
        let jobs = [cgroups.pattern()];
        let plan = Plan { collector: &endpoint, jobs: &jobs, baseline: &BASELINE };
        let agent =
            Agent::start_within(&env, &plan, &format!("rescan_interval = \"100ms\"\n{keys}"), "", within);
        let workload = Workload::start();
        let job = cgroups.job("7");
        job.enter(workload.pid());
        let node = Self { agent, collector, workload, _job: job, _cgroups: cgroups, env };
        wait_until("the job is tracked", || node.agent.jobs() == ["7"]);
        node
    }

    fn reason(&self, metric: &str) -> Option<String> {
        let status = self.agent.status();
        let job = status["subjects"].as_array()?.iter().find(|subject| subject["job"] == "7")?;
        let missing = job["unavailable"].as_array()?.iter().find(|missing| missing[0] == metric)?;
        Some(missing[1].as_str()?.to_owned())
    }

    /// Skips the test if this kernel does not accept the programs.
    fn require_programs(&self) {
        let is_known =
            || !self.agent.sources("7").is_empty() || self.reason("network.receive.bytes").is_some();
        wait_until("the sources of the job are open", is_known);
        if let Some(reason) = self.reason("network.receive.bytes") {
            skip("ebpf", &reason);
        }
    }

    /// Last stored value of a series of the job, by `METRIC` or `METRIC{LABELS}`, or 0.
    fn last(&self, name: &str) -> f64 {
        let mut reader = self.env.reader();
        let Some(job) = stored::job(&mut reader, "7") else { return 0.0 };
        let samples = stored::samples(&mut reader, SeriesScope::Job(job.job_key));
        let (metric, labels) = name.split_once('{').unwrap_or((name, "}"));
        let series = samples.get(&(metric.to_owned(), labels.trim_end_matches('}').to_owned()));
        series.and_then(|series| series.points.last()).map_or(0.0, |point| point.1)
    }

    fn sum(&self, metric: &str) -> f64 {
        let mut reader = self.env.reader();
        let Some(job) = stored::job(&mut reader, "7") else { return 0.0 };
        let samples = stored::samples(&mut reader, SeriesScope::Job(job.job_key));
        let of_metric = samples.iter().filter(|((name, _), _)| name == metric);
        of_metric.filter_map(|(_, series)| series.points.last()).map(|point| point.1).sum()
    }

    fn end(self) {
        self.agent.daemon.terminate();
        self.collector.terminate();
    }
}

fn metrics_of_a_job_are_stored() {
    let mut node = Node::start(PERMITTED, |program| program);
    node.require_programs();
    node.agent.wait_until_tracked("7", &["ebpf/network", "ebpf/runqueue", "ebpf/vfs"]);
    node.workload.execute("send 100");
    // 100 datagrams of 1000 bytes with headers of 28.
    wait_until("the datagrams are stored", || node.last("network.transmit.packets") >= 100.0);
    assert!(node.last("network.transmit.bytes") >= 102_800.0);
    wait_until("the received ones are stored", || node.last("network.receive.packets") >= 100.0);
    node.workload.execute("burn 100");
    wait_until("the waits are stored", || {
        node.workload.execute("rest 1");
        node.last("runqueue.wait.count") > 0.0 && node.last("runqueue.wait.time") > 0.0
    });
    wait_until("the buckets are stored", || node.last("runqueue.wait.bucket{le=1}") > 0.0);
    assert!(node.last("runqueue.wait.bucket{le=0.000001}") <= node.last("runqueue.wait.bucket{le=1}"));
    node.workload.execute("write 5000");
    wait_until("the written bytes are stored", || node.sum("vfs.write.bytes") >= 5000.0);
    assert!(node.sum("vfs.open.count") >= 1.0);
    assert_eq!((node.reason("network.receive.bytes"), node.reason("runqueue.wait.time")), (None, None));
    node.end();
}

fn without_rights_the_reason_names_the_capabilities() {
    let node = Node::start(PERMITTED, |program| {
        let mut outer = Command::new("setpriv");
        outer.arg("--bounding-set=-bpf,-perfmon,-net_admin,-sys_admin").arg(program.get_program());
        outer.args(program.get_args());
        outer
    });
    wait_until("the reasons are stated", || {
        node.reason("network.receive.bytes").is_some() && node.reason("runqueue.wait.time").is_some()
    });
    for (metric, rights) in [
        ("network.receive.bytes", "CAP_BPF and CAP_NET_ADMIN"),
        ("runqueue.wait.time", "CAP_BPF and CAP_PERFMON"),
    ] {
        let reason = node.reason(metric).unwrap();
        assert!(reason.contains("permission denied; run the agent as root or with"), "{reason}");
        assert!(reason.contains(rights), "{reason}");
    }
    node.end();
}

fn unless_permitted_the_reason_names_the_key() {
    let node = Node::start("", |program| program);
    wait_until("the reasons are stated", || node.reason("vfs.read.bytes").is_some());
    for metric in ["network.receive.bytes", "runqueue.wait.time", "vfs.read.bytes"] {
        assert_eq!(node.reason(metric).as_deref(), Some(NOT_PERMITTED), "{metric}");
    }
    node.end();
}
