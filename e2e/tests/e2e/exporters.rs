//! A real exporter, polled by the agent: its values in the store are those of the kernel.

use std::collections::BTreeMap;
use std::fs;

use polymeter_e2e::daemons::{Agent, Plan, collector};
use polymeter_e2e::node_exporter::NodeExporter;
use polymeter_e2e::stored::{self, Series};
use polymeter_e2e::{Need, TestEnvironment, require, tests, wait_until};
use polymeter_store::reader::SeriesScope;
use rustix::process::Signal;

tests![values_of_a_real_exporter_are_those_of_the_kernel];

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
