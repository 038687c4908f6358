//! Agents that know several collectors of one store: they leave one that is killed or frozen, return to the
//! first, and every sample is stored once.

use std::fs;
use std::process::Command;

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Plan, collector};
use polymeter_e2e::tests;
use polymeter_e2e::{Need, TestEnvironment, require, wait_until};
use rustix::process::Signal;

tests![
    an_agent_leaves_a_killed_and_a_frozen_collector_and_returns,
    a_name_with_several_addresses_is_several_collectors,
];

const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];
/// No metric of the node: all samples belong to the job.
const BASELINE: [(&str, &str); 2] = [("memory.*", "20ms"), ("cpu.*", "20ms")];
const SOURCES: [&str; 2] = ["v1/memory.stat", "v2/cpu.stat"];
const JOB: &str = "1";

fn an_agent_leaves_a_killed_and_a_frozen_collector_and_returns() {
    require(&NEEDS);
    let (mut env, cgroups) = (TestEnvironment::best_postgres(), TestCgroups::new());
    let (first, first_endpoint) = collector(&env, "tcp://127.0.0.1:*");
    let (second, second_endpoint) = collector(&env, "tcp://127.0.0.1:*");
    let job = cgroups.job(JOB);
    let node = TestEnvironment::new();
    let both = format!("[\"{first_endpoint}\", \"{second_endpoint}\"]");
    let plan = Plan { collector: &both, jobs: &[cgroups.pattern()], baseline: &BASELINE };
    let agent = Agent::start_with(&node, &plan, "collector_return = \"2s\"\n", "");
    agent.wait_until_tracked(JOB, &SOURCES);
    wait_until_used(&agent, &first_endpoint);

    first.kill();
    wait_until_used(&agent, &second_endpoint);

    let first = collector(&env, &first_endpoint).0;
    wait_until_used(&agent, &first_endpoint);

    first.signal(Signal::STOP);
    wait_until_used(&agent, &second_endpoint);
    first.signal(Signal::CONT);
    wait_until_used(&agent, &first_endpoint);
    job.remove();
    check_samples(&mut env, &agent);
    let log = agent.daemon.log();
    for text in [
        format!("the collector at {first_endpoint} does not serve; delivering to {second_endpoint}"),
        format!("returning from the collector at {second_endpoint} to {first_endpoint}"),
    ] {
        assert!(log.matches(&text).count() >= 2, "no two `{text}` in:\n{log}");
    }
    agent.daemon.terminate();
    first.terminate();
    second.terminate();
}

fn a_name_with_several_addresses_is_several_collectors() {
    require(&[Need::Root, Need::Cgroup1, Need::Cgroup2, Need::Mounts]);
    let (mut env, cgroups) = (TestEnvironment::best_postgres(), TestCgroups::new());
    let (first, listening) = collector(&env, "tcp://127.0.0.1:*");
    let port = listening.rsplit_once(':').unwrap().1;
    let [first_endpoint, second_endpoint] =
        ["127.0.0.1", "127.0.0.2"].map(|address| format!("tcp://{address}:{port}"));
    let second = collector(&env, &second_endpoint).0;
    let job = cgroups.job(JOB);
    let node = TestEnvironment::new();
    let hosts = node.path("hosts");
    fs::write(&hosts, "127.0.0.1 collectors.test\n127.0.0.2 collectors.test\n").unwrap();
    let endpoint = format!("tcp://collectors.test:{port}");
    let plan = Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &BASELINE };
    let agent = Agent::start_within(&node, &plan, "", "", |program| {
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""]).arg(&hosts);
        shell.arg(program.get_program()).args(program.get_args());
        shell
    });
    agent.wait_until_tracked(JOB, &SOURCES);
    wait_until("frames are acknowledged", || agent.count("frames_acknowledged") > 0);
    wait_until("the name is looked up", || [&first_endpoint, &second_endpoint].contains(&&used(&agent)));
    let (left, left_endpoint, other, other_endpoint) = if used(&agent) == first_endpoint {
        (first, &first_endpoint, second, &second_endpoint)
    } else {
        (second, &second_endpoint, first, &first_endpoint)
    };
    left.kill();
    wait_until_used(&agent, other_endpoint);
    assert_ne!(left_endpoint, other_endpoint);
    job.remove();
    check_samples(&mut env, &agent);
    agent.daemon.terminate();
    other.terminate();
}

/// Endpoint of the collector that an agent uses.
fn used(agent: &Agent) -> String {
    agent.status()["collector"]["address"].as_str().unwrap().to_owned()
}

/// Waits until an agent uses a collector, and that collector has acknowledged more frames.
fn wait_until_used(agent: &Agent, endpoint: &str) {
    wait_until(&format!("{endpoint} is used"), || used(agent) == endpoint);
    let before = agent.count("frames_acknowledged");
    wait_until(&format!("{endpoint} acknowledges"), || {
        used(agent) == endpoint && agent.count("frames_acknowledged") > before
    });
}

/// Checks that the store has each sample that the agent has taken once, after the end of its job.
fn check_samples(env: &mut TestEnvironment, agent: &Agent) {
    wait_until("the store knows that the job has ended", || {
        env.server().query("SELECT count(*) FROM job_node WHERE ended IS NOT NULL") == "1"
    });
    wait_until("no frame waits", || agent.count("outbox_bytes") == 0);
    assert_eq!(agent.count("dropped"), 0);
    let taken = agent.count("taken").to_string();
    for sql in [
        "SELECT count(*) FROM samples",
        "SELECT count(*) FROM (SELECT DISTINCT time, series_id FROM samples) AS one",
        "SELECT sum(stored) FROM session",
    ] {
        assert_eq!(env.server().query(sql), taken, "{sql}");
    }
    assert_eq!(env.server().query("SELECT count(*) FROM loss"), "0");
    assert_eq!(env.server().query("SELECT count(*) FROM session"), "1");
}
