//! The cost of measuring: each job's share of the agent's CPU time is stored with the job.

use std::fs;

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Plan, collector};
use polymeter_e2e::workload::Sleeper;
use polymeter_e2e::{Need, TestEnvironment, program, require, stored, tests, wait_until};
use polymeter_store::reader::SeriesScope;
use serde_json::{Value, json};

tests![cost_is_divided_among_the_jobs_as_they_are_sampled];

fn cpu_s(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u32 = fields[11].parse::<u32>().unwrap() + fields[12].parse::<u32>().unwrap();
    f64::from(ticks) / 100.0
}

/// Values of the agent's CPU time for a job, in seconds.
fn costs_s(env: &TestEnvironment, job: &str) -> Vec<f64> {
    let mut reader = env.reader();
    let Some(row) = stored::job(&mut reader, job) else { return Vec::new() };
    let samples = stored::samples(&mut reader, SeriesScope::Job(row.job_key));
    let series = samples.get(&("agent.job.cpu.time".to_owned(), String::new()));
    series.map(|series| series.points.iter().map(|point| point.1 / 1e9).collect()).unwrap_or_default()
}

fn cost_is_divided_among_the_jobs_as_they_are_sampled() {
    require(&[Need::Root, Need::Cgroup1, Need::Cgroup2]);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let (collector, endpoint) = collector(&env, &env.endpoint());
    // The cost is read when a job begins and ends.
    let baseline = [("cpu.usage", "1s"), ("memory.current", "1s"), ("agent.*", "1d")];
    let plan = Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &baseline };
    let agent = Agent::start(&env, &plan);
    let (dear, cheap, sleepers) =
        (cgroups.job("dear"), cgroups.job("cheap"), [Sleeper::start(), Sleeper::start()]);
    dear.enter(sleepers[0].pid());
    cheap.enter(sleepers[1].pid());
    for job in ["dear", "cheap"] {
        agent.wait_until_tracked(job, &["v2/cpu.stat", "agent"]);
    }
    let set = json!({"verb": "set", "job": "dear", "plan": {"cpu.*": "1ms", "memory.*": "1ms"}});
    let answer = agent.ask(&set);
    assert_eq!(answer["answer"], "granted", "{answer}");
    wait_until("the dear job is sampled often", || {
        agent.sources("dear").iter().any(|(_, reads)| *reads > 2_000)
    });
    drop(sleepers);
    dear.remove();
    cheap.remove();
    for job in ["dear", "cheap"] {
        stored::wait_for_end(&env, job);
    }
    let (dear_s, cheap_s) = (costs_s(&env, "dear"), costs_s(&env, "cheap"));
    let used_s = cpu_s(agent.daemon.pid());
    assert!(dear_s.len() >= 2 && cheap_s.len() >= 2, "{dear_s:?} {cheap_s:?}");
    assert!(dear_s.is_sorted() && cheap_s.is_sorted(), "{dear_s:?} {cheap_s:?}");
    let (dear_s, cheap_s) = (dear_s.last().unwrap(), cheap_s.last().unwrap());
    assert!(dear_s > &(20.0 * cheap_s) && *cheap_s > 0.0, "{dear_s} s and {cheap_s} s");
    // The kernel rounds both parts of the agent's CPU time down to ticks of 10 ms.
    assert!(
        dear_s + cheap_s < used_s + 0.02 && *dear_s > used_s / 2.0,
        "{dear_s} s and {cheap_s} s of {used_s} s"
    );
    let output =
        program("polymeter").args(["report", "--json", "--store", &env.store(), "dear"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let measuring = &report["measuring"];
    assert!((measuring["cpu_s"].as_f64().unwrap() - dear_s).abs() < 1e-6, "{measuring}");
    assert_eq!((&measuring["nodes"], &measuring["highest_node"]), (&1.into(), &env.node.as_str().into()));
    agent.daemon.terminate();
    collector.terminate();
}
