//! Administration of the agent: configuration, signals, and the control socket.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Plan, collector};
use polymeter_e2e::fixture::DiscoveredJob;
use polymeter_e2e::tests;
use polymeter_e2e::workload::{self, Sleeper};
use polymeter_e2e::{Need, TestEnvironment, install, program, require, stored, text, wait_until};
use polymeter_store::reader::SeriesScope;
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

fn polymeter(env: &TestEnvironment, verb: &str, more: &[&str]) -> Output {
    program("polymeter").args([verb, "--socket"]).arg(env.path("agent.sock")).args(more).output().unwrap()
}

fn all_configuration_errors_are_reported_together() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("agent.toml");
    let (status, message) = check(
        &config,
        concat!(
            "flush_interval = \"soon\"\n",
            "colector = \"tcp://127.0.0.1:7717\"\n",
            "jobs = [\"no/capture\"]\n",
            "\n",
            "[baseline]\n",
            "\"memory.curent\" = \"1s\"\n",
            "\"cpu.usage\" = \"1us\"\n",
        ),
    );
    assert_eq!(status, Some(2), "{message}");
    let errors = [
        (1, "`soon`"),
        (2, "unknown key `colector`"),
        (3, "{job}"),
        (6, "did you mean `memory.current`?"),
        (7, "`1us`"),
    ];
    for (line, word) in errors {
        let location = format!("{}:{line}: ", config.display());
        assert!(
            message.lines().any(|line_of_log| line_of_log.contains(&location) && line_of_log.contains(word)),
            "{line} {word}: {message}"
        );
    }
    assert_eq!(message.matches("agent.toml:").count(), errors.len(), "{message}");
    let (status, message) = check(&config, "[baseline]\n\"cpu.usage\" = \"1s\"\n");
    assert_eq!(status, Some(0), "{message}");
    let missing =
        program("polymeter-agent").args(["--check", "--config", "/nowhere/agent.toml"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("/nowhere/agent.toml"));
}

fn check(config: &Path, configuration: &str) -> (Option<i32>, String) {
    fs::write(config, configuration).unwrap();
    let output = program("polymeter-agent").args(["--check", "--config"]).arg(config).output().unwrap();
    (output.status.code(), text(&output.stderr))
}

fn start(baseline: &[(&str, &str)]) -> DiscoveredJob {
    DiscoveredJob::start(None, baseline, "v2/cpu.stat")
}

fn invalid_configuration_keeps_the_previous_one() {
    require(&NEEDS);
    let mut fixture = start(&[("cpu.usage", "10ms")]);
    fixture.reload(&[("cpu.usage", "10ms"), ("cpu.usge", "1ms")]);
    fixture.wait_for_log("the previous configuration remains in force");
    fixture.wait_for_log("did you mean `cpu.usage`?");
    let before = fixture.agent.count("taken");
    wait_until("sampling goes on", || fixture.agent.count("taken") > before + 20);
    assert!(fixture.agent.daemon.runs());
    fixture.job.remove();
    stored::wait_for_end(&fixture.env, "1");
    let mut reader = fixture.env.reader();
    let job = stored::job(&mut reader, "1").unwrap();
    let changes = reader.plan_changes(job.job_key).unwrap();
    assert!(changes.iter().all(|change| change.cause != "reload"), "{changes:?}");
    fixture.agent.daemon.terminate();
    fixture.collector.terminate();
}

fn reloaded_period_takes_effect() {
    const LONG_US: i64 = 500_000;
    require(&NEEDS);
    let perf = ("perf.task_clock", "20ms");
    let fixture = start(&[("cpu.usage", "500ms"), perf]);
    let changes = fixture.plan_changes("cpu.usage");
    wait_until("the store knows the first period", || !fixture.plan_changes("cpu.usage").is_empty());
    assert!(changes.len() <= 1, "{changes:?}");
    fixture.reload(&[("cpu.usage", "5ms"), perf, ("pids.current", "100ms")]);
    fixture.wait_for_log("reloaded the configuration [changed=baseline]");
    wait_until("the samples come close together", || {
        fixture.times_us("cpu.usage").windows(2).filter(|pair| pair[1] - pair[0] < LONG_US / 4).count() > 50
    });
    wait_until("what is new is sampled", || !fixture.times_us("pids.current").is_empty());
    fixture.reload(&[("cpu.usage", "500ms"), perf]);
    wait_until("the store knows all periods", || fixture.plan_changes("cpu.usage").len() == 3);
    let changes = fixture.plan_changes("cpu.usage");
    let periods: Vec<_> = changes.iter().map(|change| (change.old_period_us, change.new_period_us)).collect();
    assert_eq!(periods, [(None, Some(LONG_US)), (Some(LONG_US), Some(5_000)), (Some(5_000), Some(LONG_US))]);
    assert!(changes[1..].iter().all(|change| change.cause == "reload"), "{changes:?}");
    let ends = fixture.plan_changes("pids.current");
    assert_eq!(ends.last().map(|change| change.new_period_us), Some(None), "{ends:?}");

    let since_us = changes[2].time_ns / 1000;
    // The change is stored with the first sample after it; one more sample may have been in transit.
    let later = || {
        fixture
            .times_us("cpu.usage")
            .into_iter()
            .filter(|time| *time > since_us + LONG_US)
            .collect::<Vec<_>>()
    };
    wait_until("there are samples at the last period", || later().len() > 3);
    assert!(later().windows(2).all(|pair| pair[0] / LONG_US < pair[1] / LONG_US), "{:?}", later());
    // Perf events that were counted before the reload are still counted.
    let job = stored::job(&mut fixture.env.reader(), "1").unwrap();
    let samples = stored::samples(&mut fixture.env.reader(), SeriesScope::Job(job.job_key));
    if let Some(clock) = samples.get(&("perf.task_clock".to_owned(), String::new())) {
        assert!(clock.points.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{clock:?}");
    }
    fixture.job.remove();
    stored::wait_for_end(&fixture.env, "1");
    fixture.agent.daemon.terminate();
    fixture.collector.terminate();
}

fn status_and_jobs_as_text_and_json() {
    require(&NEEDS);
    // Fields that are not moved out of the fixture live as long as it does.
    let fixture = start(&[("cpu.*", "20ms"), ("perf.cpu_cycles", "1s")]);
    let DiscoveredJob { env, collector, agent, job, .. } = fixture;
    let message = polymeter(&env, "status", &[]);
    let status = text(&message.stdout);
    assert!(message.status.success(), "{}", text(&message.stderr));
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
    assert_eq!(text(&polymeter(&env, "jobs", &[]).stdout), "no job is tracked on this node\n");
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
        "cgroups": job.directories, "plan": {"cpu.usage": "5ms", "pids.current": "20ms", "perf.cpu_cycles": "1s"}});
    let answer = ask(&register.to_string());
    assert_eq!(answer["answer"], "registered", "{answer}");
    assert_eq!(ask(&register.to_string())["code"], "known_job");
    agent.wait_until_tracked("x", &["v2/cpu.stat", "v1/pids.current"]);
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
    fs::set_permissions(env.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    let agent = Agent::start(
        &env,
        &Plan { collector: &env.endpoint(), jobs: &[], baseline: &[("node.load1", "1s")] },
    );
    let copy = env.path("workload");
    install(workload::program(), &copy);
    let register = json!({"verb": "register", "job": "x", "uid": 0, "process": agent.daemon.pid()});
    for request in [register.to_string(), r#"{"verb": "flush"}"#.to_owned()] {
        let output = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&copy)
            .arg(format!("ask {} {request}", agent.socket.display()))
            .current_dir("/")
            .output()
            .unwrap();
        let stdout = text(&output.stdout);
        let answer = stdout.split_once("workload: answer ").unwrap_or_else(|| panic!("{stdout}")).1;
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
