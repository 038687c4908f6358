//! Shortages: too few descriptors, more jobs than can be tracked, an absent collector; and jobs whose ids
//! must be found out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use polymeter_e2e::cgroup::{self, TestCgroups, V2};
use polymeter_e2e::daemons::{Agent, Plan, collector, configure};
use polymeter_e2e::tests;
use polymeter_e2e::{Need, TestEnvironment, program, require, unique, wait_until};

tests![
    agent_refuses_to_start_with_too_few_descriptors,
    agent_tracks_as_many_jobs_as_its_descriptors_allow,
    collector_outage_is_logged_and_shown,
    jobs_of_slurm_26_05_are_found_by_sluid,
];

const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];

/// Builds a wrapper that limits a program's file descriptors.
fn limited(limit: u32) -> impl FnOnce(Command) -> Command {
    move |program| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]);
        shell.arg(program.get_program()).args(program.get_args()).env_remove("JOURNAL_STREAM");
        shell
    }
}

fn agent_refuses_to_start_with_too_few_descriptors() {
    let env = TestEnvironment::new();
    let plan = Plan { collector: &env.endpoint(), jobs: &[], baseline: &[("cpu.usage", "1s")] };
    configure(&env, &plan);
    for limit in [64, 100] {
        let mut agent = program("polymeter-agent");
        agent.arg("--config").arg(env.path("agent.toml"));
        let output = limited(limit)(agent).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.contains(&format!("{limit} file descriptors")) && stderr.contains("LimitNOFILE"),
            "{stderr}"
        );
    }
}

fn agent_tracks_as_many_jobs_as_its_descriptors_allow() {
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let baseline = [("cpu.*", "1s"), ("memory.*", "1s"), ("pids.*", "1s"), ("pressure.*", "1s")];
    let plan = Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &baseline };
    let jobs: Vec<_> = (0..28).map(|job| cgroups.job(&job.to_string())).collect();
    let agent = Agent::start_within(&env, &plan, "", "", limited(250));
    let left_out = || agent.count("jobs_left_out");
    wait_until("some jobs are left out", || left_out() > 0);
    wait_until("the agent tracks as many jobs as possible", || {
        agent.jobs().len() as u64 + left_out() == 28 && !agent.jobs().is_empty()
    });
    assert!(agent.daemon.log().contains("cannot track"), "{}", agent.daemon.log());
    let output = program("polymeter").args(["status", "--socket"]).arg(&agent.socket).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("NOT tracked"), "{shown}");
    let open = fs::read_dir(format!("/proc/{}/fd", agent.daemon.pid())).unwrap().count();
    assert!(open < 250 - 32, "{open} descriptors are open");
    // Some jobs end and make room.
    let (ended, waiting) = jobs.into_iter().partition::<Vec<_>, _>(|job| agent.jobs().contains(&job.id));
    drop(ended);
    wait_until("waiting jobs are tracked", || waiting.iter().any(|job| agent.jobs().contains(&job.id)));
    drop(waiting);
    wait_until("all are tracked", || left_out() == 0);
    agent.daemon.terminate();
    collector.terminate();
}

fn collector_outage_is_logged_and_shown() {
    let env = TestEnvironment::new();
    let plan = Plan { collector: &env.endpoint(), jobs: &[], baseline: &[("node.load1", "100ms")] };
    let agent = Agent::start(&env, &plan);
    let state = || agent.status()["collector"].clone();
    assert_eq!(state()["connected"], false);
    assert_eq!(state()["address"], env.endpoint());
    assert!(status_has(&agent, "NOT connected"));
    wait_until("the log says so", || agent.daemon.log().contains("cannot reach the collector"));
    assert!(state()["backlog_bytes"].as_u64().unwrap() > 0);
    let (collector, _) = collector(&env, &env.endpoint());
    wait_until("the reconnection is logged", || agent.daemon.log().contains("is reachable again after"));
    wait_until("everything is acknowledged", || state()["acknowledged_us"].as_i64().is_some());
    assert_eq!(state()["connected"], true);
    assert!(!status_has(&agent, "NOT connected"));
    collector.kill();
    wait_until("the disconnection is shown", || state()["connected"] == false);
    wait_until("the log says it again", || {
        agent.daemon.log().matches("cannot reach the collector").count() == 2
    });
    drop(agent);
}

fn status_has(agent: &Agent, word: &str) -> bool {
    let output = program("polymeter").args(["status", "--socket"]).arg(&agent.socket).output().unwrap();
    String::from_utf8_lossy(&output.stdout).contains(word)
}

/// Version 2 hierarchy that Slurm 26.05 creates. It is removed when the test ends.
struct SlurmScope {
    top: PathBuf,
    pattern: String,
}

impl SlurmScope {
    fn new() -> Self {
        let slice = format!("{}.slice", unique());
        let top = cgroup::root(V2).unwrap().join(&slice);
        fs::create_dir_all(top.join("slurmstepd.scope/system")).unwrap();
        Self { top, pattern: format!("{slice}/*slurmstepd.scope/{{sluid}}") }
    }

    fn job(&self, sluid: &str) -> PathBuf {
        let task = self.top.join("slurmstepd.scope").join(sluid).join("step_0/user/task_0");
        fs::create_dir_all(&task).unwrap();
        task
    }
}

impl Drop for SlurmScope {
    fn drop(&mut self) {
        cgroup::remove(&self.top).ok();
    }
}

/// Starts a process in a cgroup, with or without `SLURM_JOB_ID` in its environment.
fn process_in(task: &Path, number: Option<&str>) -> Child {
    let script = format!("echo $$ >{}/cgroup.procs; read line", task.display());
    let mut shell = Command::new("sh");
    shell.env_remove("SLURM_JOB_ID").envs(number.map(|number| ("SLURM_JOB_ID", number)));
    // The shell itself has the variable in its environment, as a step's process has.
    shell.args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap()
}

fn jobs_of_slurm_26_05_are_found_by_sluid() {
    require(&NEEDS);
    let (env, scope) = (TestEnvironment::new(), SlurmScope::new());
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let plan = Plan {
        collector: &endpoint,
        jobs: std::slice::from_ref(&scope.pattern),
        baseline: &[("cpu.usage", "50ms")],
    };
    let agent = Agent::start(&env, &plan);
    // The prolog of this source tree, run as slurmd runs it.
    let prolog = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/slurm/prolog");
    let mut slurmd = Command::new(prolog);
    slurmd.env_clear().env("POLYMETER", program("polymeter").get_program());
    slurmd.env("POLYMETER_SOCKET", &agent.socket).env("POLYMETER_AGENT_CONFIG", &agent.config);
    slurmd.env("SLURM_JOB_ID", "77").env("SLURM_JOB_SLUID", "s5K1KKYAYG5D00").env("SLURM_JOB_UID", "1234");
    assert!(slurmd.status().unwrap().success());
    scope.job("s5K1KKYAYG5D00");
    wait_until("the prolog has reported the number", || agent.jobs() == ["77"]);
    let children = [
        process_in(&scope.job("s5K1KKYAYG5D01"), Some("78")),
        // A process that claims the id of an existing job.
        process_in(&scope.job("s5K1KKYAYG5D02"), Some("77")),
        process_in(&scope.job("s5K1KKYAYG5D03"), None),
    ];
    wait_until("a process has reported the number", || agent.jobs().contains(&"78".to_owned()));
    let all = ["77", "78", "s5K1KKYAYG5D02", "s5K1KKYAYG5D03"];
    wait_until("the others are identified by their SLUIDs", || agent.jobs() == all);
    for mut child in children {
        drop(child.stdin.take());
        child.wait().unwrap();
    }
    // A requeued job has the same number and another SLUID.
    cgroup::remove(&scope.top.join("slurmstepd.scope/s5K1KKYAYG5D00")).unwrap();
    wait_until("its cgroups are gone", || !agent.jobs().contains(&"77".to_owned()));
    slurmd.env("SLURM_JOB_SLUID", "s5K1KKYAYG5D0Z");
    assert!(slurmd.status().unwrap().success());
    scope.job("s5K1KKYAYG5D0Z");
    wait_until("the new run is the same job", || agent.jobs().contains(&"77".to_owned()));
    agent.daemon.terminate();
    collector.terminate();
}
