//! The reports of a scheduler's prolog and epilog, and their effect on the agent: `polymeter job start` and
//! `job end`.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use polymeter_e2e::cgroup::{self, TestCgroups};
use polymeter_e2e::daemons::{Daemon, Plan, ask, collector, configure_with};
use polymeter_e2e::fixture::OWNER;
use polymeter_e2e::tests;
use polymeter_e2e::workload::Sleeper;
use polymeter_e2e::{Need, TestEnvironment, now_us, program, require, stored, wait_until};
use polymeter_store::reader::SeriesScope;
use rustix::process::{Pid, Signal, getsid, kill_process, kill_process_group, test_kill_process};
use serde_json::{Value, json};

tests![
    concurrent_prologs_start_one_agent,
    job_is_tracked_when_its_cgroups_appear,
    sampling_requests_wait_for_the_controllers_cgroup,
    sampling_requests_concern_steps_and_tasks,
    steps_and_tasks_have_separate_series,
    bad_sampling_requests_and_a_missing_agent_fail_no_job,
    reused_job_id_is_a_new_job_and_recreated_cgroups_are_not,
];

const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];

/// A node whose scheduler runs `polymeter job`, and a collector.
struct Node {
    collector: Daemon,
    cgroups: TestCgroups,
    socket: PathBuf,
    env: TestEnvironment,
}

impl Node {
    fn new(baseline: &[(&str, &str)]) -> Self {
        Self::with_tables(baseline, "")
    }

    fn with_tables(baseline: &[(&str, &str)], tables: &str) -> Self {
        let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
        let (collector, endpoint) = collector(&env, &env.endpoint());
        let jobs = [cgroups.pattern()];
        configure_with(&env, &Plan { collector: &endpoint, jobs: &jobs, baseline }, "", tables);
        let socket = env.path("agent.sock");
        Self { env, cgroups, collector, socket }
    }

    /// Builds the command of a prolog or an epilog, as Slurm runs it: without PATH and HOME.
    fn script(&self, verb: &str, job: &str) -> Command {
        let mut command = program("polymeter");
        command.env_clear().args(["job", verb, "--strict", "--socket"]).arg(&self.socket);
        if verb == "start" {
            command.arg("--exit-when-idle").arg("--config").arg(self.env.path("agent.toml"));
        }
        command.env("SLURM_JOB_ID", job).env("SLURM_JOB_UID", OWNER.to_string());
        command.env("SLURM_JOB_USER", "ada").env("SLURM_CLUSTER_NAME", "lab");
        command
    }

    fn report(&self, verb: &str, job: &str) {
        let output = self.script(verb, job).output().unwrap();
        assert!(output.status.success() && output.stdout.is_empty(), "{}", status_and_stderr(&output));
    }

    fn status(&self) -> Value {
        ask(&self.socket, "{\"verb\":\"status\"}\n")
    }

    fn tracks(&self, job: &str) -> bool {
        let status = self.status();
        status["subjects"].as_array().unwrap().iter().any(|subject| subject["job"] == job)
    }
}

/// An agent that a prolog has started. It is killed when this value is dropped.
struct StartedAgent(Pid);

impl StartedAgent {
    fn of(node: &Node) -> Self {
        let stream = UnixStream::connect(&node.socket).unwrap();
        Self(rustix::net::sockopt::socket_peercred(stream).unwrap().pid)
    }

    fn path(&self, what: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{what}", self.0.as_raw_nonzero()))
    }

    fn runs(&self) -> bool {
        test_kill_process(self.0).is_ok()
    }
}

impl Drop for StartedAgent {
    fn drop(&mut self) {
        kill_process(self.0, Signal::KILL).ok();
    }
}

fn status_and_stderr(output: &Output) -> String {
    format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr))
}

fn concurrent_prologs_start_one_agent() {
    require(&NEEDS);
    let node = Node::new(&[("cpu.usage", "50ms")]);
    // Each prolog runs in a job's cgroup, as OAR's prologue does, with a descriptor that its parent reads
    // until end of file, as slurmd does.
    let prolog_cgroup = node.cgroups.job("prolog");
    let (mut end, inherited) = rustix::pipe::pipe().map(|(end, pipe)| (File::from(end), pipe)).unwrap();
    let enter: Vec<String> = prolog_cgroup
        .directories
        .iter()
        .map(|directory| format!("echo $$ > {}/cgroup.procs", directory.display()))
        .collect();
    let prologs: Vec<_> = ["1", "2", "3", "4"]
        .map(|job| {
            let script = node.script("start", job);
            let mut shell = Command::new("/bin/sh");
            shell.arg("-c").arg(format!("{}; exec \"$0\" \"$@\"", enter.join("; ")));
            shell.arg(script.get_program()).args(script.get_args());
            shell.env_clear().envs(script.get_envs().filter_map(|(name, value)| Some((name, value?))));
            shell.process_group(0).stdin(inherited.try_clone().unwrap());
            shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .into();
    drop(inherited);
    for prolog in prologs {
        let group = Pid::from_child(&prolog);
        let output = prolog.wait_with_output().unwrap();
        kill_process_group(group, Signal::KILL).ok();
        assert!(output.status.success() && output.stdout.is_empty(), "{}", status_and_stderr(&output));
    }
    assert_eq!(end.read(&mut [0]).unwrap(), 0, "the agent holds a descriptor of the prolog");
    let agent = StartedAgent::of(&node);
    assert_eq!(getsid(Some(agent.0)).unwrap(), agent.0);
    for descriptor in 0..3 {
        let leads_to = fs::read_link(agent.path(&format!("fd/{descriptor}"))).unwrap();
        assert_eq!(leads_to, PathBuf::from("/dev/null"));
    }
    let cgroups = fs::read_to_string(agent.path("cgroup")).unwrap();
    assert!(!cgroups.contains(&node.cgroups.name), "{cgroups}");
    assert!(
        fs::read(agent.path("environ")).unwrap().is_empty(),
        "an epilog may look for the job's processes"
    );
    prolog_cgroup.remove();
    let agents = fs::read_dir("/proc").unwrap().flatten().filter(|process| {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("polymeter-agent") && line.contains(node.socket.to_str().unwrap())
    });
    assert_eq!(agents.count(), 1);
    for job in ["1", "2", "3", "4"] {
        node.report("end", job);
        node.report("end", job);
    }
    wait_until("the agent ends when it has nothing to do", || !agent.runs());
    node.collector.terminate();
}

fn job_is_tracked_when_its_cgroups_appear() {
    require(&NEEDS);
    let node = Node::new(&[("cpu.usage", "1s"), ("memory.current", "1s")]);
    let mut prolog = node.script("start", "7");
    prolog.env("SLURM_JOB_COMMENT", "grant 12; polymeter: cpu.usage=20ms for 10min");
    assert!(prolog.output().unwrap().status.success());
    let agent = StartedAgent::of(&node);
    // A repeated report changes nothing.
    node.report("start", "7");
    assert!(!node.tracks("7"));
    let (job, sleeper) = (node.cgroups.job("7"), Sleeper::start());
    job.enter(sleeper.pid());
    wait_until("the job's owner has the requested lease", || plan_line(&node)["period"] == "20ms");
    assert_eq!(
        (plan_line(&node)["cause"].clone(), plan_line(&node)["actor"].clone()),
        (json!("lease"), json!(format!("uid {OWNER}")))
    );
    drop(sleeper);
    job.remove();
    node.report("end", "7");
    let row = stored::wait_for_end(&node.env, "7");
    assert_eq!(
        (row.owner.as_deref(), row.owner_uid, row.cluster.as_deref()),
        (Some("ada"), Some(OWNER.into()), Some("lab"))
    );
    drop(agent);
    node.collector.terminate();
}

fn plan_line(node: &Node) -> Value {
    let plan = ask(&node.socket, "{\"verb\":\"plan\",\"job\":\"7\"}\n");
    let lines = plan["plan"].as_array().cloned().unwrap_or_default();
    lines.into_iter().find(|line| line["metric"] == "cpu.usage").unwrap_or_default()
}

fn sampling_requests_wait_for_the_controllers_cgroup() {
    require(&NEEDS);
    let node = Node::new(&[("cpu.usage", "1s"), ("memory.current", "1s")]);
    let mut prolog = node.script("start", "8");
    assert!(prolog.args(["--request", "memory.current=20ms"]).output().unwrap().status.success());
    let agent = StartedAgent::of(&node);
    // The cgroups are created one hierarchy after the other, as by schedulers, and removed with `cgroups`.
    make_cgroup_of_8(&node, "cpuacct");
    wait_until("the job is tracked", || node.tracks("8"));
    make_cgroup_of_8(&node, "memory");
    wait_until("the request is granted when the cgroup exists", || {
        let plan = ask(&node.socket, "{\"verb\":\"plan\",\"job\":\"8\"}\n");
        let lines = plan["plan"].as_array().cloned().unwrap_or_default();
        lines.iter().any(|line| line["metric"] == "memory.current" && line["period"] == "20ms")
    });
    drop(agent);
    node.collector.terminate();
}

fn make_cgroup_of_8(node: &Node, controller: &str) {
    fs::create_dir(cgroup::root(controller).unwrap().join(&node.cgroups.name).join("job_8")).unwrap();
}

fn sampling_requests_concern_steps_and_tasks() {
    require(&NEEDS);
    let node = Node::new(&[("cpu.usage", "1s")]);
    let mut prolog = node.script("start", "8");
    let request =
        "cpu.usage=200ms steps: cpu.usage=20ms, cpu.usage.x=1s tasks: cpu.user=50ms, cpu.system=500us for 1h";
    prolog.env("SLURM_JOB_COMMENT", format!("polymeter: {request}"));
    let output = prolog.output().unwrap();
    assert!(status_and_stderr(&output).contains("cpu.usage.x"), "{}", status_and_stderr(&output));
    let request = request.replace(", cpu.usage.x=1s", "");
    let output = node.script("start", "8").args(["--request", &request]).output().unwrap();
    assert!(output.status.success(), "{}", status_and_stderr(&output));
    let agent = StartedAgent::of(&node);
    let job = node.cgroups.job("8");
    let step = job.step("step_0");
    let plan = || ask(&node.socket, "{\"verb\":\"plan\",\"job\":\"8\"}\n");
    // One period that is too short refuses the request for the tasks, and for nothing else.
    wait_until("the request is granted", || {
        let lines = plan()["plan"].as_array().cloned().unwrap_or_default();
        let of_lease = lines.iter().filter(|line| line["cause"] == "lease");
        let leases: Vec<_> = of_lease
            .map(|line| ["metric", "level", "period"].map(|key| line[key].as_str().unwrap_or_default()))
            .collect();
        leases == [["cpu.usage", "", "200ms"], ["cpu.usage", "step", "20ms"]]
    });
    wait_until("the refusals are shown", || {
        let refused = plan()["refused"].as_array().cloned().unwrap_or_default();
        let requests = refused.iter().map(|refused| refused["request"].as_str().unwrap());
        requests.filter(|text| ["tasks:cpu.user", "tasks:cpu.system"].contains(text)).count() == 2
    });
    drop((step, job));
    drop(agent);
    node.collector.terminate();
}

fn steps_and_tasks_have_separate_series() {
    require(&NEEDS);
    let tables =
        "[steps]\n\"cpu.usage\" = \"20ms\"\n\"memory.*\" = \"1s\"\n[tasks]\n\"cpu.usage\" = \"20ms\"\n";
    let node = Node::with_tables(&[("cpu.usage", "50ms")], tables);
    node.report("start", "9");
    let agent = StartedAgent::of(&node);
    let job = node.cgroups.job("9");
    let (first, sleeper) = (job.step("step_0"), Sleeper::start());
    let task = first.step("task_3");
    task.enter(sleeper.pid());
    let mut reader = node.env.reader();
    let mut points = |metric: &str, labels: &str| {
        let Some(row) = stored::job(&mut reader, "9") else { return Vec::new() };
        let key = (metric.to_owned(), labels.to_owned());
        stored::samples(&mut reader, SeriesScope::Job(row.job_key))
            .remove(&key)
            .map_or_else(Vec::new, |of| of.points)
    };
    let (step_0, task_3) = ("step=0", "step=0,task=3");
    wait_until("the task is sampled", || points("cpu.usage", task_3).len() > 3);
    wait_until("its step is", || points("cpu.usage", step_0).len() > 3);
    wait_until("a glob applies to a step, too", || !points("memory.anon", step_0).is_empty());
    assert!(points("memory.anon", "").is_empty(), "the job's own plan does not have it");
    let second = job.step("step_batch");
    wait_until("a step that comes later is sampled", || points("cpu.usage", "step=batch").len() > 3);
    drop((task, first, sleeper));
    wait_until("the sources of the removed step are closed", || {
        !sources_of_9(&node).iter().any(|name| name.starts_with("step_0/"))
    });
    wait_until("the sources of the other step are listed", || {
        sources_of_9(&node).iter().any(|name| name.starts_with("step_batch/"))
    });
    let gone_us = now_us();
    let last_us = |points: Vec<(i64, f64)>| points.last().unwrap().0;
    wait_until("the job goes on", || last_us(points("cpu.usage", "")) > gone_us);
    assert!(last_us(points("cpu.usage", task_3)) < gone_us);
    second.remove();
    job.remove();
    node.report("end", "9");
    let row = stored::wait_for_end(&node.env, "9");
    let ledger = stored::ledger(&mut node.env.reader(), row.job_key);
    // There is more than one sample if the best file of a metric appeared after another file.
    let of_task = ledger.iter().filter(|(source, _)| source.starts_with("step_0/task_3/"));
    let taken: u64 = of_task.map(|(_, tally)| tally.taken).sum();
    assert_eq!(taken, points("cpu.usage", task_3).len() as u64, "{ledger:?}");
    let report = program("polymeter").args(["report", "--json", "9", "--store", &node.env.store()]).output();
    let report: Value = serde_json::from_slice(&report.unwrap().stdout).unwrap();
    let own = points("cpu.usage", "");
    let used_s = (own.last().unwrap().1 - own[0].1) / 1e9;
    assert_eq!(report["used"]["cpu_s"], used_s, "what its steps have used is in the job's own");
    let series = report["series"].as_array().unwrap();
    let of_step = series.iter().find(|series| series["labels"] == step_0 && series["metric"] == "cpu.usage");
    assert_eq!(of_step.unwrap()["period"], "20ms", "its own, not that of the job");
    drop(agent);
    node.collector.terminate();
}

fn sources_of_9(node: &Node) -> Vec<String> {
    let status = node.status();
    let subjects = status["subjects"].as_array().unwrap().clone();
    let of_job = subjects.into_iter().find(|subject| subject["job"] == "9").unwrap_or_default();
    let names = of_job["sources"].as_array().cloned().unwrap_or_default();
    names.iter().filter_map(|source| Some(source["name"].as_str()?.to_owned())).collect::<Vec<_>>()
}

fn bad_sampling_requests_and_a_missing_agent_fail_no_job() {
    require(&NEEDS);
    let node = Node::new(&[("cpu.usage", "1s")]);
    for (arguments, strict) in [
        (&["start", "--no-agent"][..], 3),
        (&["end"], 3),
        (&["start", "--agent", "/nowhere/agent"], 1),
        (&["start", "--config", "/nowhere/agent.toml"], 1),
        (&["begin"], 2),
    ] {
        assert_eq!(
            (run_without_agent(&node, arguments, false), run_without_agent(&node, arguments, true)),
            (0, strict),
            "{arguments:?}"
        );
    }
    for comment in [
        "polymeter: faster",
        "polymeter: cpu.usge=1s",
        "polymeter: cpu.usage=1s for ever",
        "polymeter: *=1us",
    ] {
        let output = node.script("start", "9").env("SLURM_JOB_COMMENT", comment).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "strict: {comment}: {}", status_and_stderr(&output));
        assert!(
            status_and_stderr(&output).contains("cannot grant the sampling request"),
            "{comment}: {}",
            status_and_stderr(&output)
        );
    }
    let agent = StartedAgent::of(&node);
    let job = node.cgroups.job("9");
    wait_until("the job is tracked all the same", || node.tracks("9"));
    job.remove();
    drop(agent);
    node.collector.terminate();
}

fn run_without_agent(node: &Node, arguments: &[&str], strict: bool) -> i32 {
    let mut command = program("polymeter");
    command.env_clear().env("SLURM_JOB_ID", "1").arg("job").args(arguments).arg("--socket").arg(&node.socket);
    let output = command.args(strict.then_some("--strict")).output().unwrap();
    assert!(
        output.stdout.is_empty() && !output.stderr.is_empty(),
        "{arguments:?}: {}",
        status_and_stderr(&output)
    );
    output.status.code().unwrap()
}

fn reused_job_id_is_a_new_job_and_recreated_cgroups_are_not() {
    require(&NEEDS);
    let node = Node::new(&[("cpu.usage", "20ms")]);
    node.report("start", "5");
    let agent = StartedAgent::of(&node);
    let rows = || stored::jobs(&mut node.env.reader()).iter().filter(|job| job.ended_ns.is_some()).count();
    // Two steps of an allocation, one after the other.
    run_job_5(&node);
    run_job_5(&node);
    node.report("end", "5");
    wait_until("it is stored", || rows() == 1);
    // The job is requeued.
    node.report("start", "5");
    run_job_5(&node);
    node.report("end", "5");
    wait_until("it is stored as another", || rows() == 2);
    drop(agent);
    node.collector.terminate();
}

fn run_job_5(node: &Node) {
    let (job, sleeper) = (node.cgroups.job("5"), Sleeper::start());
    job.enter(sleeper.pid());
    wait_until("the job is tracked", || node.tracks("5"));
    drop(sleeper);
    job.remove();
    wait_until("the job is gone", || !node.tracks("5"));
}
