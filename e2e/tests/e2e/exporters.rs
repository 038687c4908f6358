//! A real exporter, polled by the agent: its values in the store are those of the kernel.

use std::collections::BTreeMap;
use std::fs;

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Plan, collector};
use polymeter_e2e::node_exporter::NodeExporter;
use polymeter_e2e::stored::{self, Series};
use polymeter_e2e::{Need, TestEnvironment, program, require, tests, wait_until};
use polymeter_store::reader::SeriesScope;
use rustix::process::Signal;

tests![
    values_of_a_real_exporter_are_those_of_the_kernel,
    series_of_a_real_exporter_belong_to_the_job_that_runs,
];

const METRICS: [(&str, &str); 5] = [
    ("memory.total", "node_memory_MemTotal_bytes"),
    ("boot_time", "node_boot_time_seconds"),
    ("cpu.idle", "node_cpu_seconds_total{mode=\\\"idle\\\"}"),
    ("forks", "node_forks_total"),
    ("missing", "node_load1"),
];

fn tables(exporter: &NodeExporter) -> String {
    let metrics = METRICS.map(|(name, address)| {
        format!("{{ name = \"{name}\", address = \"{address}\", period = \"200ms\" }},\n")
    });
    format!(
        "[[device]]\nname = \"node1\"\nurl = \"http://{}\"\ntimeout = \"30s\"\nmetric = [\n{}]\n",
        exporter.address,
        metrics.concat()
    )
}

/// A field of `/proc/stat`.
fn stat(name: &str) -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Idle time of the first CPU, in nanoseconds.
fn idle_ns() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap();
    let line = text.lines().find(|line| line.starts_with("cpu0 ")).unwrap();
    let ticks: f64 = line.split_whitespace().nth(4).unwrap().parse().unwrap();
    ticks * 1e7
}

fn memory_bytes() -> f64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let kib: f64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024.0
}

/// Series of the node, by metric below its device and labels.
fn of_device(env: &TestEnvironment) -> BTreeMap<String, Series> {
    let samples = stored::samples(&mut env.reader(), SeriesScope::Node(&env.node));
    let of_device = samples.into_iter().filter(|((metric, _), _)| metric.starts_with("device.node1."));
    of_device
        .map(|((metric, labels), series)| {
            (format!("{}{{{labels}}}", metric.strip_prefix("device.node1.").unwrap()), series)
        })
        .collect()
}

fn values_of_a_real_exporter_are_those_of_the_kernel() {
    require(&[Need::NodeExporter]);
    let env = TestEnvironment::new();
    let exporter = NodeExporter::start(&env);
    let address = exporter.address;
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let plan = Plan { collector: &endpoint, jobs: &[], baseline: &[("agent.cpu.time", "1s")] };
    let before = (idle_ns(), stat("processes"));
    let agent = Agent::start_with(&env, &plan, "", &tables(&exporter));
    let idle = "cpu.idle{cpu=0,device=node1,mode=idle}";
    wait_until("the values are stored", || {
        of_device(&env).get(idle).is_some_and(|series| series.points.len() > 2)
    });
    let stored = of_device(&env);
    let after = (idle_ns(), stat("processes"));
    let of = |key: &str| stored.get(key).unwrap_or_else(|| panic!("no {key} in {stored:#?}"));
    let last = |key: &str| of(key).points.last().unwrap().1;
    assert_eq!(last("memory.total{device=node1}"), memory_bytes());
    assert_eq!(last("boot_time{device=node1}"), stat("btime") * 1e9);
    // The kernel counts ticks of 10 ms, and the exporter a value behind the decimal point.
    let (first_ns, last_ns) = (of(idle).points[0].1, last(idle));
    assert!(before.0 - 2e7 <= first_ns && first_ns <= last_ns && last_ns <= after.0 + 2e7, "{stored:#?}");
    let forks = last("forks{device=node1}");
    assert!(before.1 <= forks && forks <= after.1, "{forks} {before:?} {after:?}");
    assert_eq!(
        (of(idle).kind.as_str(), of("memory.total{device=node1}").kind.as_str()),
        ("counter", "gauge")
    );
    assert!(stored.keys().all(|key| !key.starts_with("missing")));

    exporter.daemon.end(Signal::KILL);
    wait_until("the log says that it is gone", || {
        agent.daemon.log().contains("cannot read device node1: cannot reach it")
    });
    let gap = of_device(&env)[idle].points.len();
    let again = NodeExporter::start_at(&env, address);
    wait_until("it is sampled again", || of_device(&env)[idle].points.len() > gap);
    again.daemon.end(Signal::KILL);
    agent.daemon.terminate();
    collector.terminate();
}

/// Job 1 runs, job 2 does not.
const OF_JOBS: &str = "\
# TYPE gpu_power_watts gauge
gpu_power_watts{gpu=\"0\",hpc_job=\"1\"} 250
gpu_power_watts{gpu=\"1\",hpc_job=\"2\"} 90
gpu_power_watts{gpu=\"2\"} 30
# TYPE cgroup_memory_bytes gauge
cgroup_memory_bytes{cgroup=\"/slurm/uid_1000/job_1\"} 4096
cgroup_memory_bytes{cgroup=\"/slurm/uid_1000/job_2\"} 8192
cgroup_memory_bytes{cgroup=\"/system.slice\"} 512
";

fn series_of_a_real_exporter_belong_to_the_job_that_runs() {
    require(&[Need::NodeExporter, Need::Root, Need::Cgroup1, Need::Cgroup2]);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let exporter = NodeExporter::start(&env);
    NodeExporter::state(&env, OF_JOBS);
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let device = |name: &str, label: &str, metric: &str, address: &str| {
        format!(
            "[[device]]\nname = \"{name}\"\nurl = \"http://{}\"\nnode = \"{}\"\n{label}\n\
             metric = [{{ name = \"{metric}\", address = \"{address}\", period = \"200ms\" }}]\n",
            exporter.address, env.node
        )
    };
    let of_gpus = device("gpus", "job_label = \"hpc_job\"", "power", "gpu_power_watts");
    let label = "job_label = \"cgroup\"\njob_pattern = \"slurm/uid_{uid}/job_{job}\"";
    let of_cgroups = device("cgroups", label, "memory", "cgroup_memory_bytes");
    let plan = Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &[("cpu.*", "100ms")] };
    let job = cgroups.job("1");
    let agent = Agent::start_with(&env, &plan, "", &(of_gpus + &of_cgroups));
    agent.wait_until_tracked("1", &["v2/cpu.stat"]);
    let of_job = || -> BTreeMap<String, Vec<f64>> {
        let mut reader = env.reader();
        let Some(job) = stored::job(&mut reader, "1") else { return BTreeMap::new() };
        let series = stored::samples_on(&mut reader, job.job_key, &env.node);
        let of_devices = series.into_iter().filter(|((metric, _), _)| metric.starts_with("device."));
        of_devices
            .map(|((metric, labels), series)| {
                (format!("{metric}{{{labels}}}"), series.points.iter().map(|point| point.1).collect())
            })
            .collect()
    };
    wait_until("both devices have values of the job", || {
        let series = of_job();
        series.len() == 2 && series.values().all(|values| values.len() > 5)
    });
    job.remove();
    stored::wait_for_end(&env, "1");
    let node = &env.node;
    let of_gpu = format!("device.gpus.power{{device=gpus,gpu=0,job_id=1,node={node}}}");
    let of_cgroup = format!("device.cgroups.memory{{device=cgroups,job_id=1,node={node}}}");
    for (key, value) in [(of_gpu, 250.0), (of_cgroup, 4096.0)] {
        assert!(of_job()[&key].iter().all(|stored| *stored == value), "{key}: {:?}", of_job());
    }
    // All others stay with the node; that without a job is the node's own.
    let samples = stored::samples(&mut env.reader(), SeriesScope::Node(node));
    let of_node = samples.keys().filter(|(metric, _)| metric.starts_with("device."));
    let of_node: Vec<&str> = of_node.map(|(_, labels)| labels.as_str()).collect();
    let expected = [
        "cgroup=/system.slice,device=cgroups".to_owned(),
        format!("device=cgroups,job_id=2,node={node}"),
        format!("device=gpus,gpu=1,job_id=2,node={node}"),
        format!("device=gpus,gpu=2,node={node}"),
    ];
    assert_eq!(of_node, expected);
    let report =
        program("polymeter").args(["report", "1", "--show", "all", "--store", &env.store()]).output();
    let report = String::from_utf8(report.unwrap().stdout).unwrap();
    let has = |labels: &str| report.contains(&format!("{{device=gpus,{labels},node={node}}}"));
    assert_eq!(
        (has("gpu=0,job_id=1"), has("gpu=2"), report.contains("job_id=2")),
        (true, true, false),
        "{report}"
    );
    exporter.daemon.end(Signal::KILL);
    agent.daemon.terminate();
    collector.terminate();
}
