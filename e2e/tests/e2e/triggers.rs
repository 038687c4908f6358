//! Triggers: an OOM kill keeps the rings of all nodes; only the owner of a job has a say about its triggers.

use std::fs;
use std::process::Command;

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Plan, collector};
use polymeter_e2e::fixture::{NEEDS, OTHER_USER, OWNER};
use polymeter_e2e::tests;
use polymeter_e2e::two_nodes::TwoNodes;
use polymeter_e2e::{TestEnvironment, require, skip, wait_until, workload};

tests![
    an_oom_kill_keeps_the_rings_of_all_nodes,
    only_the_owner_adds_sees_and_removes_triggers,
    a_condition_that_holds_for_a_time_raises_periods,
];

const BASELINE: [(&str, &str); 2] = [("memory.*", "200ms"), ("cpu.usage", "200ms")];
const RING: &str = "[hindsight]\nkeep = \"30s\"\n[hindsight.metrics]\n\"memory.current\" = \"20ms\"\n";
const OOM: &str = "[[trigger]]\nname = \"oom\"\nwhen = \"oom\"\nkeep = \"2s\"\nafter = \"1s\"\nmark = true\n";

fn an_oom_kill_keeps_the_rings_of_all_nodes() {
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::postgres(), TestCgroups::new());
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let nodes = [(); 2].map(|()| TestEnvironment::new());
    // The trigger is on the first node alone.
    let tables = [format!("{RING}{OOM}"), RING.to_owned()];
    let agents = [0, 1].map(|number| {
        let plan = Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &BASELINE };
        Agent::start_with(&nodes[number], &plan, "", &tables[number])
    });
    let job = cgroups.job("1");
    for agent in &agents {
        agent.wait_until_tracked("1", &["v1/memory.oom_control"]);
    }
    wait_until("the store knows the job on both nodes", || env.query("SELECT count(*) FROM job_node") == "2");
    polymeter_e2e::pause(1000);
    let limit = job.directory("memory");
    fs::write(limit.join("memory.limit_in_bytes"), "16M").unwrap();
    fs::write(limit.join("memory.memsw.limit_in_bytes"), "16M").ok();
    let enter: String = job
        .directories
        .iter()
        .map(|directory| format!("echo $$ > {}/cgroup.procs; ", directory.display()))
        .collect();
    let script = format!("{enter}{} 'touch 16384'; echo $$ > /dev/null; :", workload::program().display());
    let mut shell = Command::new("sh").args(["-c", &script]).spawn().unwrap();
    shell.wait().unwrap();
    let killed = fs::read_to_string(limit.join("memory.oom_control")).unwrap();
    if !killed.contains("oom_kill 1") {
        skip("cgroup1", &format!("the kernel did not count a kill: {killed}"));
    }
    wait_until("the trigger has fired, and the other node was asked", || {
        env.query("SELECT count(*) FROM trigger_firing WHERE nodes_asked = 2 AND nodes_missing = '{}'") == "1"
    });
    wait_until("both nodes have sent the interval", || {
        env.query("SELECT count(*) FROM kept_interval") == "2"
    });
    let same = "SELECT count(*) FROM trigger_firing AS f JOIN kept_interval AS k USING (trigger_id)
        WHERE k.started = f.started AND k.ended = f.ended AND k.samples > 50";
    assert_eq!(env.query(same), "2");
    assert_eq!(
        env.query("SELECT count(*) FROM kept_sample"),
        env.query("SELECT sum(samples) FROM kept_interval")
    );
    let why = env.query("SELECT rule, node, why FROM trigger_firing");
    assert!(why.contains("oom") && why.contains(&nodes[0].node) && why.contains("lack of memory"), "{why}");
    assert_eq!(env.query("SELECT count(*) FROM mark WHERE name = 'oom'"), "1");
    job.remove();
    polymeter_e2e::stored::wait_for_end(&env, "1");
    for agent in agents {
        agent.daemon.terminate();
    }
    collector.terminate();
}

fn only_the_owner_adds_sees_and_removes_triggers() {
    require(&NEEDS);
    let fixture = TwoNodes::new("");
    let add = ["trigger", "add", "big", "--when", "pids.current > 1000000 for 1s", "--mark"];
    let (answer, status) = fixture.answers(OWNER, &add);
    assert_eq!(status, 0, "{answer}");
    assert_eq!(answer["nodes"].as_array().unwrap().len(), 2);
    for arguments in [
        &[&add[..], &["--job", "x"]].concat()[..],
        &["trigger", "list", "--job", "x"],
        &["trigger", "remove", "big", "--job", "x"],
    ] {
        let refused = fixture.refused(OTHER_USER, arguments);
        assert!(refused.contains("unknown job x, or not yours"), "{arguments:?}: {refused}");
    }
    let (answer, status) = fixture.answers(OWNER, &["trigger", "list"]);
    assert_eq!(status, 0, "{answer}");
    for node in answer["nodes"].as_array().unwrap() {
        let triggers = node["answer"]["triggers"].as_array().unwrap();
        assert_eq!((triggers.len(), &triggers[0]["name"]), (1, &"big".into()), "{node}");
        assert_eq!(triggers[0]["by"], format!("uid {OWNER}"), "{node}");
    }
    let hostile = ["trigger", "add", "x", "--job", "x", "--when", "oomm", "--keep", "1d", "--firings", "0"];
    let output = fixture.user(OWNER, &hostile);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(["`when`", "`keep`", "`firings`"].iter().all(|field| stderr.contains(field)), "{stderr}");
    let listed = String::from_utf8(fixture.user(OWNER, &["trigger", "list", "--job", "x"]).stdout).unwrap();
    assert!(listed.contains("nothing has fired") && listed.matches("big").count() == 1, "{listed}");
    assert_eq!(fixture.answers(OWNER, &["trigger", "remove", "big"]).1, 0);
    assert_eq!(fixture.answers(OWNER, &["trigger", "remove", "big"]).1, 1);
    fixture.end();
}

fn a_condition_that_holds_for_a_time_raises_periods() {
    require(&NEEDS);
    let fixture = TwoNodes::new("");
    let add = [
        "trigger",
        "add",
        "alive",
        "--when",
        "pids.current >= 1 for 1s",
        "--raise",
        "cpu.usage=20ms",
        "--raise-for",
        "10min",
    ];
    assert_eq!(fixture.answers(OWNER, &add).1, 0);
    wait_until("both nodes have raised the period", || fixture.both_have("cpu.usage", "20ms", "lease"));
    let listed = String::from_utf8(fixture.user(OWNER, &["trigger", "list", "--job", "x"]).stdout).unwrap();
    assert!(listed.contains("pids.current was 1") && listed.contains("% of a CPU"), "{listed}");
    fixture.end();
}
