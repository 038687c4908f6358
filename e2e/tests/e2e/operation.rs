//! Administration of the agent: configuration, signals, and the control socket.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};

use polymeter_e2e::cgroup::{Job, TestCgroups};
use polymeter_e2e::daemons::{Agent, Daemon, Plan, collector, configure};
use polymeter_e2e::tests;
use polymeter_e2e::workload::{self, Sleeper};
use polymeter_e2e::{Need, TestEnvironment, program, require, stored, wait_until};
use polymeter_store::reader::{PlanChangeRow, SeriesScope};
use rustix::process::Signal;
use serde_json::{Value, json};

tests![
    all_configuration_errors_are_reported_together,
    invalid_configuration_keeps_the_previous_one,
    reloaded_period_takes_effect,
    status_and_jobs_as_text_and_json,
    every_request_is_answered,
    users_cannot_register_jobs_or_flush,
];

const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the output of `polymeter` for the agent of an environment.
fn polymeter(env: &TestEnvironment, verb: &str, more: &[&str]) -> Output {
    program("polymeter").args([verb, "--socket"]).arg(env.path("agent.sock")).args(more).output().unwrap()
}

fn all_configuration_errors_are_reported_together() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("agent.toml");
    let check = |text: &str| {
        fs::write(&config, text).unwrap();
        let output = program("polymeter-agent").args(["--check", "--config"]).arg(&config).output().unwrap();
        (output.status.code(), self::text(&output.stderr))
    };
    let (status, said) = check(concat!(
        "flush_interval = \"soon\"\n",
        "colector = \"tcp://127.0.0.1:7717\"\n",
        "jobs = [\"no/capture\"]\n",
        "\n",
        "[baseline]\n",
        "\"memory.curent\" = \"1s\"\n",
        "\"cpu.usage\" = \"1us\"\n",
    ));
    assert_eq!(status, Some(2), "{said}");
    let faults = [
        (1, "`soon`"),
        (2, "unknown key `colector`"),
        (3, "{job}"),
        (6, "did you mean `memory.current`?"),
        (7, "`1us`"),
    ];
    for (line, word) in faults {
        let place = format!("{}:{line}: ", config.display());
        assert!(
            said.lines().any(|told| told.contains(&place) && told.contains(word)),
            "{line} {word}: {said}"
        );
    }
    assert_eq!(said.matches("agent.toml:").count(), faults.len(), "{said}");
    let (status, said) = check("[baseline]\n\"cpu.usage\" = \"1s\"\n");
    assert_eq!(status, Some(0), "{said}");
    let missing =
        program("polymeter-agent").args(["--check", "--config", "/nowhere/agent.toml"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("/nowhere/agent.toml"));
}

/// A collector, an agent, and a job with a process, which the agent samples.
struct Scene {
    env: TestEnvironment,
    collector: Daemon,
    endpoint: String,
    agent: Agent,
    cgroups: TestCgroups,
    job: Job,
    _sleeper: Sleeper,
}

impl Scene {
    fn set(baseline: &[(&str, &str)]) -> Self {
        let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
        let (collector, endpoint) = collector(&env, &env.endpoint());
        let (job, sleeper) = (cgroups.job("1"), Sleeper::start());
        job.enter(sleeper.pid());
        let plan = Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline };
        let agent = Agent::start(&env, &plan);
        agent.must_track("1", &["v2/cpu.stat"]);
        Self { env, collector, endpoint, agent, cgroups, job, _sleeper: sleeper }
    }

    /// Writes another configuration and has the agent reload it.
    fn reload(&self, baseline: &[(&str, &str)]) {
        let plan = Plan { collector: &self.endpoint, jobs: &[self.cgroups.pattern()], baseline };
        configure(&self.env, &plan);
        self.agent.daemon.signal(Signal::HUP);
    }

    fn must_say(&self, words: &str) {
        wait_until(&format!("the agent says `{words}`"), || self.agent.daemon.log().contains(words));
    }

    /// Returns the times of a metric's stored samples of the job, in microseconds since the epoch.
    fn times_us(&self, metric: &str) -> Vec<i64> {
        let mut reader = self.env.reader();
        let Some(job) = stored::job(&mut reader, "1") else { return Vec::new() };
        let samples = stored::samples(&mut reader, SeriesScope::Job(job.job_key));
        let series = samples.get(&(metric.to_owned(), String::new()));
        series.map(|series| series.points.iter().map(|point| point.0).collect()).unwrap_or_default()
    }

    /// Returns the stored changes of a metric's period.
    fn plan_changes(&self, metric: &str) -> Vec<PlanChangeRow> {
        let mut reader = self.env.reader();
        let Some(job) = stored::job(&mut reader, "1") else { return Vec::new() };
        let mut changes = reader.plan_changes(job.job_key).unwrap();
        changes.retain(|change| change.metric == metric);
        changes
    }
}

fn invalid_configuration_keeps_the_previous_one() {
    require(&NEEDS);
    let mut scene = Scene::set(&[("cpu.usage", "10ms")]);
    scene.reload(&[("cpu.usage", "10ms"), ("cpu.usge", "1ms")]);
    scene.must_say("the previous configuration remains in force");
    scene.must_say("did you mean `cpu.usage`?");
    let before = scene.agent.count("taken");
    wait_until("sampling goes on", || scene.agent.count("taken") > before + 20);
    assert!(scene.agent.daemon.runs());
    scene.job.remove();
    stored::wait_for_end(&scene.env, "1");
    let mut reader = scene.env.reader();
    let job = stored::job(&mut reader, "1").unwrap();
    let changes = reader.plan_changes(job.job_key).unwrap();
    assert!(changes.iter().all(|change| change.cause != "reload"), "{changes:?}");
    scene.agent.daemon.terminate();
    scene.collector.terminate();
}

fn reloaded_period_takes_effect() {
    /// The long period, in microseconds.
    const LONG_US: i64 = 500_000;
    require(&NEEDS);
    let perf = ("perf.task_clock", "20ms");
    let scene = Scene::set(&[("cpu.usage", "500ms"), perf]);
    let changes = scene.plan_changes("cpu.usage");
    wait_until("the store knows the first period", || !scene.plan_changes("cpu.usage").is_empty());
    assert!(changes.len() <= 1, "{changes:?}");
    scene.reload(&[("cpu.usage", "5ms"), perf, ("pids.current", "100ms")]);
    wait_until("the samples come close together", || {
        scene.times_us("cpu.usage").windows(2).filter(|pair| pair[1] - pair[0] < LONG_US / 4).count() > 50
    });
    wait_until("what is new is sampled", || !scene.times_us("pids.current").is_empty());
    scene.reload(&[("cpu.usage", "500ms"), perf]);
    wait_until("the store knows all periods", || scene.plan_changes("cpu.usage").len() == 3);
    let changes = scene.plan_changes("cpu.usage");
    let periods: Vec<_> = changes.iter().map(|change| (change.old_period_us, change.new_period_us)).collect();
    assert_eq!(periods, [(None, Some(LONG_US)), (Some(LONG_US), Some(5_000)), (Some(5_000), Some(LONG_US))]);
    assert!(changes[1..].iter().all(|change| change.cause == "reload"), "{changes:?}");
    let ends = scene.plan_changes("pids.current");
    assert_eq!(ends.last().map(|change| change.new_period_us), Some(None), "{ends:?}");

    let since_us = changes[2].time_ns / 1000;
    // The change is stored with the first sample after it; one more sample may have been in transit.
    let later = || {
        scene.times_us("cpu.usage").into_iter().filter(|time| *time > since_us + LONG_US).collect::<Vec<_>>()
    };
    wait_until("there are samples at the last period", || later().len() > 3);
    assert!(later().windows(2).all(|pair| pair[0] / LONG_US < pair[1] / LONG_US), "{:?}", later());
    // Perf events that were counted before the reload are still counted.
    let job = stored::job(&mut scene.env.reader(), "1").unwrap();
    let samples = stored::samples(&mut scene.env.reader(), SeriesScope::Job(job.job_key));
    if let Some(clock) = samples.get(&("perf.task_clock".to_owned(), String::new())) {
        assert!(clock.points.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{clock:?}");
    }
    scene.job.remove();
    stored::wait_for_end(&scene.env, "1");
    scene.agent.daemon.terminate();
    scene.collector.terminate();
}

fn status_and_jobs_as_text_and_json() {
    require(&NEEDS);
    // Fields that are not moved out of the scene live as long as it does.
    let scene = Scene::set(&[("cpu.*", "20ms"), ("perf.cpu_cycles", "1s")]);
    let Scene { env, collector, agent, job, .. } = scene;
    let said = polymeter(&env, "status", &[]);
    let status = text(&said.stdout);
    assert!(said.status.success(), "{}", text(&said.stderr));
    for wanted in ["session", "taken", "missed", "acknowledged", "job 1", "v2/cpu.stat"] {
        assert!(status.contains(wanted), "no `{wanted}` in:\n{status}");
    }
    let status: Value = serde_json::from_slice(&polymeter(&env, "status", &["--json"]).stdout).unwrap();
    let counts = &status["counts"];
    let number = |name: &str| counts[name].as_u64().unwrap();
    assert!(number("taken") > 0 && number("due") >= number("taken"), "{counts}");
    assert_eq!(number("due"), number("taken") + number("missed") + number("absent"));

    let jobs = text(&polymeter(&env, "jobs", &[]).stdout);
    assert_eq!(jobs.lines().count(), 2, "{jobs}");
    let jobs: Value = serde_json::from_slice(&polymeter(&env, "jobs", &["--json"]).stdout).unwrap();
    assert_eq!((jobs.as_array().unwrap().len(), &jobs[0]["job"]), (1, &json!("1")));
    job.remove();
    wait_until("the job is forgotten", || agent.jobs().is_empty());
    assert_eq!(text(&polymeter(&env, "jobs", &[]).stdout), "no job is tracked\n");
    agent.daemon.terminate();
    collector.terminate();
    for verb in ["status", "jobs"] {
        let gone = polymeter(&env, verb, &[]);
        assert_eq!(gone.status.code(), Some(3));
        assert!(text(&gone.stderr).contains("start polymeter-agent") && gone.stdout.is_empty());
    }
}

fn every_request_is_answered() {
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let agent =
        Agent::start(&env, &Plan { collector: &endpoint, jobs: &[], baseline: &[("cpu.usage", "50ms")] });
    let (job, sleeper) = (cgroups.job("x"), Sleeper::start());
    job.enter(sleeper.pid());

    let stream = UnixStream::connect(&agent.socket).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
    let mut ask = |line: &str| -> Value {
        writeln!(&stream, "{line}").unwrap();
        serde_json::from_str(&answers.next().unwrap()).unwrap()
    };
    for (line, code) in [
        ("hello", "malformed"),
        ("[]", "malformed"),
        (r#"{"verb": "dance"}"#, "invalid"),
        (r#"{"verb": "register", "job": ""}"#, "invalid"),
        (r#"{"verb": "register", "job": "x", "cgroups": ["relative"]}"#, "invalid"),
        (r#"{"verb": "register", "job": "x", "cgroups": ["/sys/fs/cgroup/memory/no/such"]}"#, "invalid"),
        (r#"{"verb": "register", "job": "x", "cgroups": ["/tmp"]}"#, "invalid"),
        (r#"{"verb": "unregister", "job": "x"}"#, "unknown_job"),
    ] {
        let answer = ask(line);
        assert_eq!(
            (&answer["answer"], &answer["code"]),
            (&json!("refused"), &json!(code)),
            "{line}: {answer}"
        );
    }
    let register = json!({"verb": "register", "job": "x", "uid": 1000, "user": "ada", "cluster": "lab",
        "cgroups": job.places, "plan": {"cpu.usage": "5ms", "pids.current": "20ms", "perf.cpu_cycles": "1s"}});
    let answer = ask(&register.to_string());
    assert_eq!(answer["answer"], "registered", "{answer}");
    assert_eq!(ask(&register.to_string())["code"], "known_job");
    agent.must_track("x", &["v2/cpu.stat", "v1/pids.current"]);
    assert_eq!(ask(r#"{"verb": "flush"}"#)["answer"], "done");
    assert_eq!(ask(r#"{"verb": "unregister", "job": "x"}"#)["answer"], "done");
    assert_eq!(ask(r#"{"verb": "unregister", "job": "x"}"#)["code"], "unknown_job");

    let ended = stored::wait_for_end(&env, "x");
    let owner = (ended.owner.as_deref(), ended.owner_uid, ended.cluster.as_deref());
    assert_eq!(owner, (Some("ada"), Some(1000), Some("lab")));
    let mut reader = env.reader();
    let changes = reader.plan_changes(ended.job_key).unwrap();
    let of = |metric: &str| changes.iter().find(|change| change.metric == metric).unwrap();
    assert_eq!(
        (of("cpu.usage").new_period_us, of("cpu.usage").cause.as_str()),
        (Some(5_000), "registration")
    );
    let sum = stored::sum(&stored::ledger(&mut reader, ended.job_key));
    assert_eq!(sum.taken, stored::rows(&mut reader, ended.job_key));
    agent.daemon.terminate();
    collector.terminate();
}

fn users_cannot_register_jobs_or_flush() {
    require(&[Need::Root]);
    let env = TestEnvironment::new();
    let open = |path: &std::path::Path| fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    open(env.path("").as_path());
    let agent = Agent::start(
        &env,
        &Plan { collector: &env.endpoint(), jobs: &[], baseline: &[("node.load1", "1s")] },
    );
    let asker = env.path("asker");
    fs::copy(workload::program(), &asker).unwrap();
    open(&asker);
    let register = json!({"verb": "register", "job": "x", "uid": 0, "process": agent.daemon.pid()});
    for request in [register.to_string(), r#"{"verb": "flush"}"#.to_owned()] {
        let output = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&asker)
            .arg(format!("ask {} {request}", agent.socket.display()))
            .current_dir("/")
            .output()
            .unwrap();
        let said = text(&output.stdout);
        let answer = said.split_once("workload: answer ").unwrap_or_else(|| panic!("{said}")).1;
        let answer: Value = serde_json::from_str(answer.lines().next().unwrap()).unwrap();
        assert_eq!(
            (&answer["answer"], &answer["code"]),
            (&json!("refused"), &json!("forbidden")),
            "{answer}"
        );
    }
    assert!(agent.jobs().is_empty());
    assert_eq!(agent.ask(&json!({"verb": "flush"}))["answer"], "done");
    agent.daemon.kill();
}
