//! Triggers: an OOM kill keeps the rings of all nodes; only the owner of a job has a say about its triggers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command};

use polymeter_e2e::cgroup::{TestCgroups, V2};
use polymeter_e2e::daemons::{Agent, Plan, collector};
use polymeter_e2e::fixture::{NEEDS, OTHER_USER, OWNER};
use polymeter_e2e::tests;
use polymeter_e2e::two_nodes::TwoNodes;
use polymeter_e2e::workload::Sleeper;
use polymeter_e2e::{TestEnvironment, as_user, program, require, skip, stored, wait_until, workload};
use rustix::process::Signal;
use serde_json::json;

tests![
    an_oom_kill_keeps_the_rings_of_all_nodes,
    only_the_owner_adds_sees_and_removes_triggers,
    a_condition_that_holds_for_a_time_raises_periods,
    a_request_at_submission_adds_triggers,
    triggers_survive_a_restart_of_the_agent,
    triggers_of_the_node_survive_a_kill,
    processes_that_wait_for_a_cpu_fire_a_condition_on_pressure,
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
    fixture.end_job();
    wait_until("the collector has forgotten the job", || fixture.known() == 0);
    let stored = String::from_utf8(fixture.user(OWNER, &["trigger", "list", "--job", "x"]).stdout).unwrap();
    assert!(stored.starts_with("FIRED") && stored.matches("pids.current was 1").count() == 2, "{stored}");
    let (answer, status) = fixture.answers(OWNER, &["trigger", "list"]);
    let fired = &answer["nodes"][0]["answer"]["fired"][0];
    assert_eq!((status, &fired["name"]), (0, &"alive".into()), "{answer}");
    let refused = fixture.refused(OTHER_USER, &["trigger", "list", "--job", "x"]);
    assert!(refused.contains("unknown job x, or not yours"), "{refused}");
    fixture.stop();
}

/// Output of `polymeter job start`, as a prolog calls it: the request stands in the comment of the job.
fn start(agent: &Agent, job: &str, comment: &str) -> String {
    let mut command = program("polymeter");
    command.args(["job", "start", "--job", job, "--uid", &OWNER.to_string(), "--socket"]).arg(&agent.socket);
    let output = command.env("SLURM_JOB_COMMENT", comment).output().unwrap();
    assert!(output.status.success(), "a bad request does not harm the job: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn a_request_at_submission_adds_triggers() {
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let plan =
        Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &[("pids.current", "50ms")] };
    let agent = Agent::start(&env, &plan);
    fs::set_permissions(env.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    let comment = "for the paper; polymeter: ring: pids.current=10ms, trigger alive when pids.current >= 1 \
        for 1s keep 10s after 1s mark, trigger oom when oom keep 30s";
    assert_eq!(start(&agent, "1", comment), "");
    let hostile = "polymeter: trigger alive when pids.curent >= 1 keep 10s, pids.current=10ms";
    let message = start(&agent, "2", hostile);
    assert!(
        message.contains("cannot grant the sampling request of job 2") && message.contains("pids.current"),
        "{message}"
    );
    assert!(start(&agent, "3", "polymeter: trigger alive").contains("has no condition"));
    let jobs: Vec<_> = ["1", "2", "3"]
        .map(|id| {
            let (job, sleeper) = (cgroups.job(id), Sleeper::start_as(OWNER));
            job.enter(sleeper.pid());
            agent.wait_until_tracked(id, &["v1/pids.current"]);
            (job, sleeper)
        })
        .into();
    let listed = |job: &str| agent.ask(&json!({"verb": "triggers", "job": job}));
    wait_until("the trigger has fired", || listed("1")["fired"][0]["name"] == "alive");
    let triggers = listed("1")["triggers"].as_array().unwrap().clone();
    let names: Vec<_> = triggers.iter().map(|line| (&line["name"], &line["by"])).collect();
    let owner = json!(format!("uid {OWNER}"));
    assert_eq!(names, [(&json!("alive"), &owner), (&json!("oom"), &owner)], "with the owner's rights");
    for job in ["2", "3"] {
        assert_eq!(listed(job)["triggers"], json!([]), "nothing of a bad request is granted");
        let refused = agent.ask(&json!({"verb": "plan", "job": job}))["refused"].clone();
        assert!(refused[0]["request"].as_str().unwrap().contains("trigger alive"), "{refused}");
    }
    let foreign = as_user((OTHER_USER, OTHER_USER), || listed("1"));
    assert_eq!(foreign["answer"], "refused", "{foreign}");
    wait_until("the store has what the ring had", || {
        let mut reader = env.reader();
        let Some(job) = stored::job(&mut reader, "1") else { return false };
        reader.kept_intervals(job.job_key).unwrap().iter().any(|kept| kept.reason.contains("alive"))
    });
    for (job, sleeper) in jobs {
        drop(sleeper);
        job.remove();
    }
    stored::wait_for_end(&env, "1");
    agent.daemon.terminate();
    collector.terminate();
}

fn triggers_survive_a_restart_of_the_agent() {
    require(&NEEDS);
    let mut fixture = TwoNodes::new("");
    let add = |name: &str| {
        let when = ["trigger", "add", name, "--when", "pids.current > 1000000 for 1s", "--mark"];
        assert_eq!(fixture.answers(OWNER, &when).1, 0);
    };
    add("big");
    add("other");
    assert_eq!(fixture.answers(OWNER, &["trigger", "remove", "other"]).1, 0);
    fixture.refused(OTHER_USER, &["trigger", "remove", "big", "--job", "x"]);
    fixture.nodes[0].crash();
    let listed = |fixture: &TwoNodes, node: usize| {
        let answer = fixture.nodes[node].agent.ask(&json!({"verb": "triggers", "job": "x"}));
        let lines = answer["triggers"].as_array().unwrap().clone();
        lines.iter().map(|line| (line["name"].clone(), line["by"].clone())).collect::<Vec<_>>()
    };
    let expected = [(json!("big"), json!(format!("uid {OWNER}")))];
    wait_until("the new agent has the trigger, with its requester", || listed(&fixture, 0) == expected);
    assert_eq!(listed(&fixture, 1), expected, "a removed trigger does not return");
    // Removed while an agent is down, it does not return either.
    fixture.nodes[1].agent.daemon.signal(Signal::STOP);
    assert_eq!(fixture.answers(OWNER, &["trigger", "remove", "big"]).1, 1, "one node does not answer");
    fixture.nodes[1].agent.daemon.signal(Signal::CONT);
    wait_until("the stopped agent removes it late", || listed(&fixture, 1).is_empty());
    fixture.nodes[0].crash();
    wait_until("the collector knows the new agent", || fixture.known() == 2);
    assert!(listed(&fixture, 0).is_empty());
    fixture.end();
}

fn triggers_of_the_node_survive_a_kill() {
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    // No collector that could send them again.
    let endpoint = format!("ipc://{}", env.path("nobody").display());
    let plan =
        Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &[("pids.current", "50ms")] };
    let begin = || {
        let agent = Agent::start(&env, &plan);
        fs::set_permissions(env.path(""), PermissionsExt::from_mode(0o755)).unwrap();
        agent
    };
    let (agent, file) = (begin(), env.path("agent.sock.triggers"));
    let comment = "polymeter: trigger submitted when oom keep 20s after 2s notice hold-off 5min firings 3";
    assert_eq!(start(&agent, "1", comment), "");
    let _jobs: Vec<_> = ["1", "2"]
        .map(|id| {
            let (job, sleeper) = (cgroups.job(id), Sleeper::start_as(OWNER));
            job.enter(sleeper.pid());
            agent.wait_until_tracked(id, &["v1/pids.current"]);
            (sleeper, job)
        })
        .into();
    let add = |agent: &Agent, uid: u32, job: &str, name: &str| {
        let rule = json!({"name": name, "when": "pids.current > 1000000 for 1s", "mark": true,
            "raise": {"cpu.*": "10ms"}});
        as_user((uid, uid), || agent.ask(&json!({"verb": "trigger_add", "job": job, "rule": rule})))
    };
    assert_eq!(add(&agent, OWNER, "1", "mine")["answer"], "trigger_added");
    assert_eq!(add(&agent, 0, "2", "roots")["answer"], "trigger_added");
    assert_eq!(add(&agent, OTHER_USER, "2", "foreign")["answer"], "refused");
    let listed =
        |agent: &Agent, job: &str| agent.ask(&json!({"verb": "triggers", "job": job}))["triggers"].clone();
    wait_until("the trigger of the comment", || listed(&agent, "1").as_array().unwrap().len() == 2);
    let before = ["1", "2"].map(|job| listed(&agent, job));
    assert_eq!((&before[1][0]["name"], &before[1][0]["by"]), (&json!("roots"), &json!("uid 0")));
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "no other user reads the triggers of a job");

    let kill = |agent: Agent| {
        agent.daemon.kill();
        begin()
    };
    let agent = kill(agent);
    wait_until("the triggers are back", || ["1", "2"].map(|job| listed(&agent, job)) == before);
    let remove = json!({"verb": "trigger_remove", "job": "1", "name": "mine"});
    assert_eq!(as_user((OTHER_USER, OTHER_USER), || agent.ask(&remove))["answer"], "refused");
    assert_eq!(as_user((OWNER, OWNER), || agent.ask(&remove))["answer"], "done");
    let agent = kill(kill(agent));
    wait_until("one is removed", || listed(&agent, "1").as_array().unwrap().len() == 1);
    assert_eq!(listed(&agent, "1")[0]["name"], "submitted");

    // A damaged file costs the triggers, not the agent.
    agent.daemon.kill();
    let whole = fs::read(&file).unwrap();
    for damaged in [&whole[..whole.len() / 2], b"", &b"{".repeat(100_000)[..]] {
        fs::write(&file, damaged).unwrap();
        let agent = begin();
        agent.wait_until_tracked("1", &["v1/pids.current"]);
        assert_eq!(listed(&agent, "1"), json!([]));
        let log = agent.daemon.log();
        assert!(log.contains("agent.sock.triggers; they must be added again"), "{log}");
        agent.daemon.kill();
    }
}

/// Two processes that want the same CPU.
struct Rivals([Child; 2]);

impl Rivals {
    fn start() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
        let cpu = allowed.split([',', '-']).next().unwrap();
        Self([(); 2].map(|()| {
            Command::new("taskset").args(["-c", cpu, "sh", "-c", "while :; do :; done"]).spawn().unwrap()
        }))
    }
}

impl Drop for Rivals {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

fn processes_that_wait_for_a_cpu_fire_a_condition_on_pressure() {
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let job = cgroups.job("1");
    let file = job.directory(V2).join("cpu.pressure");
    if fs::read_to_string(&file).is_err() {
        skip("psi", "the kernel measures no pressure of cgroups");
    }
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let baseline = [("pressure.*.total", "100ms")];
    let plan = Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &baseline };
    // A fifth of the time.
    let when = "rate(pressure.cpu.some.total) > 200000000 for 1s";
    let rule = format!("[[trigger]]\nname = \"crowded\"\nwhen = \"{when}\"\nmark = true\n");
    let agent = Agent::start_with(&env, &plan, "", &rule);
    let (quiet, sleeper) = (cgroups.job("2"), Sleeper::start());
    quiet.enter(sleeper.pid());
    agent.wait_until_tracked("2", &["v2/cpu.pressure"]);
    let rivals = Rivals::start();
    rivals.0.iter().for_each(|child| job.enter(child.id()));
    let fired = |job: &str| agent.ask(&json!({"verb": "triggers", "job": job}))["fired"].clone();
    wait_until("the trigger has fired", || fired("1")[0]["name"] == "crowded");
    let kernel = fs::read_to_string(&file).unwrap();
    let total_us = kernel.split("total=").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    assert!(total_us.parse::<u64>().unwrap() > 200_000, "as the kernel has it: {kernel}");
    assert!(fired("1")[0]["why"].as_str().unwrap().contains("pressure.cpu.some.total"), "{}", fired("1"));
    assert_eq!(fired("2"), json!([]), "a job that sleeps waits for nothing");
    drop((rivals, sleeper));
    quiet.remove();
    job.remove();
    stored::wait_for_end(&env, "1");
    agent.daemon.terminate();
    collector.terminate();
}
