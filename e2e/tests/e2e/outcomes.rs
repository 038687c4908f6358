//! The data about a job other than its samples: its owner, its outcome and the refused requests of its owner;
//! and the names that are accepted.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use polymeter_e2e::cgroup::{Job, TestCgroups};
use polymeter_e2e::daemons::{Agent, Daemon, Plan, ask, collector_with};
use polymeter_e2e::fixture::{OTHER_USER, OWNER};
use polymeter_e2e::tests;
use polymeter_e2e::workload::Sleeper;
use polymeter_e2e::{Need, TestEnvironment, install, program, require, stored, wait_until};
use polymeter_store::reader::JobRow;
use serde_json::{Value, json};

tests![
    discovered_owner_is_stored_and_can_control_the_job,
    only_the_scheduler_reports_job_outcomes,
    a_job_whose_cgroups_were_never_found_is_stored,
    outcomes_survive_an_outage_of_the_collector,
    what_the_scheduler_says_is_read_field_by_field,
    refused_requests_are_recorded,
    misleading_names_are_refused_everywhere,
    every_refusal_has_one_reason,
];

const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];
/// A user of every Debian, as whom the scheduler's controller runs.
const SCHEDULER: (u32, &str) = (5, "games");

/// An agent that discovers jobs by their cgroups, a collector with a control socket, and the command in a
/// directory where ordinary users can run it.
struct Fixture {
    // Fields are dropped in this order: the daemons before the directory that they write to.
    agent: Agent,
    collector: Daemon,
    cgroups: TestCgroups,
    socket: PathBuf,
    command: PathBuf,
    env: TestEnvironment,
}

impl Fixture {
    fn new() -> Self {
        let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
        let socket = env.path("control.sock");
        let more =
            format!("control_socket = \"{}\"\nscheduler_user = \"{}\"\n", socket.display(), SCHEDULER.1);
        let (collector, endpoint) = collector_with(&env, &env.endpoint(), &more);
        let (jobs, baseline) = ([cgroups.pattern()], [("cpu.usage", "100ms")]);
        let agent = Agent::start(&env, &Plan { collector: &endpoint, jobs: &jobs, baseline: &baseline });
        fs::set_permissions(env.path(""), PermissionsExt::from_mode(0o755)).unwrap();
        let command = env.path("polymeter");
        install(program("polymeter").get_program(), &command);
        Self { agent, collector, cgroups, socket, command, env }
    }

    fn user(&self, uid: u32, arguments: &[&str]) -> Output {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_owned()]);
        command.arg(&self.command).args(arguments).env_remove("SLURM_JOB_ID").env_remove("OAR_JOB_ID");
        command.env("POLYMETER_COLLECTOR", &self.socket).current_dir("/").output().unwrap()
    }

    fn job(&self, id: &str, uid: u32) -> (Job, Sleeper) {
        let (job, sleeper) = (self.cgroups.job(id), Sleeper::start_as(uid));
        job.enter(sleeper.pid());
        (job, sleeper)
    }

    fn row(&self, id: &str) -> JobRow {
        wait_until(&format!("job {id} is stored"), || stored::job(&mut self.env.reader(), id).is_some());
        stored::job(&mut self.env.reader(), id).unwrap()
    }

    fn end(self, job: Job, id: &str) {
        job.remove();
        stored::wait_for_end(&self.env, id);
        self.agent.daemon.terminate();
        self.collector.terminate();
    }
}

fn discovered_owner_is_stored_and_can_control_the_job() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let (job, sleeper) = fixture.job("7", OWNER);
    wait_until("the owner is stored", || fixture.row("7").owner_uid == Some(OWNER.into()));
    let socket = fixture.socket.to_str().unwrap();
    let plan = |uid: u32| fixture.user(uid, &["plan", "--job", "7", "--collector", socket, "--json"]);
    wait_until("the owner may ask through the collector", || plan(OWNER).status.success());
    assert_eq!(plan(OTHER_USER).status.code(), Some(1), "other users may not");
    drop(sleeper);
    fixture.end(job, "7");
}

fn only_the_scheduler_reports_job_outcomes() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let (job, sleeper) = fixture.job("8", OWNER);
    fixture.row("8");
    for uid in [OWNER, OTHER_USER] {
        assert_eq!(report_state(&fixture, uid, "8", "COMPLETED", &[]), 1, "not even the owner");
        assert_eq!(report_state(&fixture, uid, "missing", "COMPLETED", &[]), 1);
    }
    // A user who may not report outcomes cannot find out whether a job exists either.
    assert_eq!(message_to_other_user(&fixture, "8"), message_to_other_user(&fixture, "missing"));
    assert_eq!(fixture.row("8").state, None, "what is not known is not stored");
    assert_eq!(report_state(&fixture, 0, "missing", "COMPLETED", &[]), 1);
    let timeout = ["--exit-code", "0", "--exit-signal", "15"];
    assert_eq!(report_state(&fixture, SCHEDULER.0, "8", "TIMEOUT", &timeout), 0);
    let row = fixture.row("8");
    assert_eq!((row.state.as_deref(), row.exit_code, row.exit_signal), (Some("TIMEOUT"), Some(0), Some(15)));
    // An epilog that reports later and with less detail does not change the outcome.
    let end = json!({"verb": "end", "job": "8", "exit_code": 1, "exit_signal": 0});
    assert_eq!(fixture.agent.ask(&end)["answer"], "done");
    let state_of_8 = "{\"verb\":\"state\",\"job\":\"8\",\"state\":\"COMPLETED\"}\n";
    assert_eq!(ask(&fixture.socket, state_of_8)["answer"], "done", "root may, too");
    assert_eq!(report_state(&fixture, 0, "8", "OUT_OF_MEMORY", &["--exit-signal", "125"]), 0);
    drop(sleeper);
    job.remove();
    stored::wait_for_end(&fixture.env, "8");
    let store = format!("sqlite:{}", fixture.env.path("store.db").display());
    let output = program("polymeter").args(["report", "--store", &store, "8"]).output().unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.starts_with("OUT_OF_MEMORY - "), "{report}");
    fixture.agent.daemon.terminate();
    fixture.collector.terminate();
}

/// Cgroups of short jobs vanish before a busy agent looks.
fn a_job_whose_cgroups_were_never_found_is_stored() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let start = json!({"verb": "start", "job": "9", "uid": OWNER, "plan": {"cpu.usage": "10ms"}});
    assert_eq!(fixture.agent.ask(&start)["answer"], "started");
    let end = json!({"verb": "end", "job": "9", "exit_code": 3, "exit_signal": 0});
    assert_eq!(fixture.agent.ask(&end)["answer"], "done");
    stored::wait_for_end(&fixture.env, "9");
    assert_eq!(report_state(&fixture, SCHEDULER.0, "9", "FAILED", &["--exit-code", "3"]), 0);
    let row = fixture.row("9");
    assert_eq!((row.owner_uid, row.exit_code), (Some(OWNER.into()), Some(3)));
    assert!(row.ended_ns.is_some_and(|ended_ns| ended_ns > row.started_ns), "{row:?}");
    let report = |words: &[&str]| {
        let output = fixture.user(OWNER, &[&["report", "9"], words].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let screen = report(&[]);
    assert!(screen.starts_with("FAILED"), "{screen}");
    let report: Value = serde_json::from_str(&report(&["--json"])).unwrap();
    let refused = &report["refused_requests"][0];
    assert_eq!(refused["reason"], "the job ended before its cgroups were found", "{report:#}");
    fixture.agent.daemon.terminate();
    fixture.collector.terminate();
}

fn message_to_other_user(fixture: &Fixture, job: &str) -> String {
    let socket = fixture.socket.to_str().unwrap().to_owned();
    let words = ["plan", "--job", job, "--collector", socket.as_str()];
    String::from_utf8(fixture.user(OTHER_USER, &words).stderr)
        .unwrap()
        .replace(&format!("job {job}"), "job JOB")
}

fn report_state(fixture: &Fixture, uid: u32, id: &str, state: &str, more: &[&str]) -> i32 {
    let words = [&["job", "state", "--strict", "--job", id, "--state", state], more].concat();
    fixture.user(uid, &words).status.code().unwrap()
}

/// Runs a script of Slurm's controller, whose patience is two attempts, about a job in this state. The first
/// time squeue gets no answer.
fn controller(
    env: &TestEnvironment,
    (command, socket): (&Path, &Path),
    script: &str,
    job: &str,
    state: &str,
) {
    let squeue = env.path("squeue");
    let line = format!("{job} {state} 3840 1:00:00 cpu=2,mem=1G,node=1");
    let line = if script.starts_with("prolog") { line.replace(" 3840", "") } else { line };
    let asked = env.path("asked");
    let text = format!("#!/bin/sh\nmkdir {0} 2>&- && exit 1\nrmdir {0}\necho \"{line}\"\n", asked.display());
    fs::write(&squeue, text).unwrap();
    fs::set_permissions(&squeue, PermissionsExt::from_mode(0o755)).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/slurm/").to_owned() + script;
    let status = Command::new(script)
        .env("POLYMETER", command)
        .env("POLYMETER_COLLECTOR", socket)
        .env("SQUEUE", &squeue)
        .env("KEPT", env.path("kept"))
        .envs([
            ("ATTEMPTS", "2"),
            ("PAUSE", "1"),
            ("SLURM_JOB_ID", job),
            ("SLURM_JOB_NAME", "it's a <solver>"),
        ])
        .status()
        .unwrap();
    assert!(status.success());
}

/// The outage is longer than the patience of the scheduler's scripts.
fn outcomes_survive_an_outage_of_the_collector() {
    require(&NEEDS);
    let mut fixture = Fixture::new();
    let (known, sleeper) = fixture.job("9", OWNER);
    fixture.row("9");
    fixture.collector.terminate();
    let (unknown, other_sleeper) = (fixture.cgroups.job("10"), Sleeper::start_as(OWNER));
    unknown.enter(other_sleeper.pid());
    let kept = || fs::read_dir(fixture.env.path("kept")).map_or(0, |files| files.count());
    // Each is kept as a file, beside the one that is locked.
    let program = (fixture.command.as_path(), fixture.socket.as_path());
    controller(&fixture.env, program, "prolog-slurmctld.sh", "10", "RUNNING");
    wait_until("the first report is kept", || kept() >= 2);
    controller(&fixture.env, program, "epilog-slurmctld.sh", "9", "FAILED");
    wait_until("the second report is kept", || kept() >= 3);
    let more = format!("control_socket = \"{}\"\n", fixture.socket.display());
    fixture.collector = collector_with(&fixture.env, &fixture.env.endpoint(), &more).0;
    wait_until("the outcome is stored", || {
        let row = fixture.row("9");
        (row.state.as_deref(), row.exit_code, row.name.as_deref())
            == (Some("FAILED"), Some(15), Some("it's a <solver>"))
    });
    wait_until("the name of the job that was unknown is stored", || {
        let row = fixture.row("10");
        row.name.as_deref() == Some("it's a <solver>") && row.time_limit_s == Some(3600)
    });
    wait_until("nothing is kept", || {
        let files = fs::read_dir(fixture.env.path("kept")).unwrap();
        files.map(|file| file.unwrap().file_name()).all(|name| name == "lock")
    });
    drop((sleeper, other_sleeper));
    known.remove();
    fixture.end(unknown, "10");
}

fn what_the_scheduler_says_is_read_field_by_field() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let (job, sleeper) = fixture.job("8", OWNER);
    fixture.row("8");
    let large = ["--time-limit", "NOT_SET", "--tres", "cpu=602112,mem=4.69P,node=9408,gres/gpu:mi250=37632"];
    assert_eq!(warnings_about_state(&fixture, &large), "");
    let row = fixture.row("8");
    assert_eq!((row.time_limit_s, row.gpus, row.unread), (None, Some(37_632), None));
    assert_eq!(row.memory_bytes, Some(5_280_470_563_091_906 / 9408));
    let odd = [
        "--state=FAILED",
        "--exit-code=none",
        "--exit-signal=9",
        "--time-limit=-5",
        "--memory=1Z",
        "--gpus=4",
        "--name=o'brien's R&D <run> \u{1b}[31m",
    ];
    let warnings = warnings_about_state(&fixture, &odd);
    for warning in ["cannot read `-5` of --time-limit: ", "cannot read `1Z` of --memory: "] {
        assert_eq!(warnings.matches(warning).count(), 1, "{warnings}");
    }
    // `none` is a word for what is not known.
    assert_eq!(warnings.lines().count(), 2, "{warnings}");
    let row = fixture.row("8");
    assert_eq!((row.state.as_deref(), row.exit_code, row.exit_signal), (Some("FAILED"), None, Some(9)));
    assert_eq!((row.gpus, row.name.as_deref()), (Some(4), Some(r"o'brien's R&D <run> \x1b[31m")));
    let unread = "--time-limit -5; --memory 1Z";
    assert_eq!(row.unread.as_deref(), Some(unread));
    drop(sleeper);
    job.remove();
    stored::wait_for_end(&fixture.env, "8");
    let store = format!("sqlite:{}", fixture.env.path("store.db").display());
    let report =
        program("polymeter").args(["report", "--show", "all", "--store", &store, "8"]).output().unwrap();
    let report = String::from_utf8(report.stdout).unwrap();
    let words: Vec<&str> = report.split_whitespace().collect();
    assert!(words.join(" ").contains(&format!("counts as unknown: {unread}")), "{report}");
    fixture.agent.daemon.terminate();
    fixture.collector.terminate();
}

fn warnings_about_state(fixture: &Fixture, more: &[&str]) -> String {
    let words = [&["job", "state", "--strict", "--job", "8"], more].concat();
    let output = fixture.user(SCHEDULER.0, &words);
    assert!(output.status.success(), "{more:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn refused_requests_are_recorded() {
    require(&NEEDS);
    let fixture = Fixture::new();
    assert_eq!((start_job(&fixture, "1", "faster", false), start_job(&fixture, "1", "faster", true)), (0, 1));
    assert_eq!(
        (start_job(&fixture, "2", "cpu.usge=1s", false), start_job(&fixture, "2", "cpu.usge=1s", true)),
        (0, 1)
    );
    // Requests that are refused while the job exists are refused at once; later refusals are shown later.
    assert_eq!(start_job(&fixture, "9", "cpu.usage=100us, memory.current=10ms", true), 0);
    let (job, sleeper) = fixture.job("9", OWNER);
    let plan = || fixture.agent.ask(&json!({"verb": "plan", "job": "9"}))["refused"].clone();
    wait_until("the plan shows what is refused", || plan().as_array().is_some_and(|lines| lines.len() == 2));
    let refused = plan();
    assert_eq!((&refused[0]["request"], &refused[0]["period"]), (&json!("cpu.usage"), &json!("100us")));
    assert!(refused[0]["reason"].as_str().unwrap().contains("1ms"), "{refused}");
    assert_eq!(start_job(&fixture, "9", "cpu.usage=100us", true), 1, "the job is there");
    assert_eq!(start_job(&fixture, "9", "slower", true), 1);
    let text =
        fixture.user(OWNER, &["plan", "--job", "9", "--socket", fixture.agent.socket.to_str().unwrap()]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("refused request cpu.usage=100us: "), "{text}");
    assert!(text.contains("refused request slower: "), "{text}");
    let key = fixture.row("9").job_key;
    let rows = || fixture.env.reader().refused_requests(key).unwrap();
    wait_until("the store has what is refused", || rows().len() == 3);
    let row = rows().into_iter().find(|row| row.request == "cpu.usage").unwrap();
    assert_eq!((row.period_us, row.actor.as_deref()), (Some(100), Some("uid 64001")));
    let changes = fixture.env.reader().plan_changes(key).unwrap();
    assert!(changes.iter().all(|change| change.cause != "refused"), "{changes:?}");
    drop(sleeper);
    job.remove();
    stored::wait_for_end(&fixture.env, "9");
    let store = format!("sqlite:{}", fixture.env.path("store.db").display());
    assert!(
        report_of_9(&store, &["--show", "plan"]).contains("slower"),
        "{}",
        report_of_9(&store, &["--show", "plan"])
    );
    let json: Value = serde_json::from_str(&report_of_9(&store, &["--json"])).unwrap();
    assert_eq!(json["refused_requests"].as_array().unwrap().len(), 3, "{json}");
    fixture.agent.daemon.terminate();
    fixture.collector.terminate();
}

fn report_of_9(store: &str, more: &[&str]) -> String {
    let mut command = program("polymeter");
    let output = command.args(["report", "--store", store, "9"]).args(more).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn start_job(fixture: &Fixture, job: &str, request: &str, strict: bool) -> i32 {
    let mut command = program("polymeter");
    command.args(["job", "start", "--no-agent", "--job", job, "--uid", &OWNER.to_string(), "--socket"]);
    command.arg(&fixture.agent.socket).args(["--request", request]).args(strict.then_some("--strict"));
    command.env_remove("SLURM_JOB_ID").env_remove("OAR_JOB_ID").output().unwrap().status.code().unwrap()
}

/// Names that would mislead a reader of the output.
const HOSTILE: [(&str, &str); 5] = [
    ("a\u{202e}b", "U+202E"),
    ("a\u{200b}", "U+200B"),
    ("\u{2028}", "U+2028"),
    ("a\u{7}", "U+0007"),
    (" \u{3000} ", "blank"),
];

fn misleading_names_are_refused_everywhere() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let (job, sleeper) = fixture.job("5", OWNER);
    fixture.row("5");
    for (name, why) in HOSTILE {
        for request in [
            json!({"verb": "plan", "job": name}),
            json!({"verb": "register", "job": name, "cgroups": ["/sys/fs/cgroup"]}),
            json!({"verb": "register", "job": "6", "user": name, "cgroups": ["/sys/fs/cgroup"]}),
            json!({"verb": "register", "job": "6", "cluster": name, "cgroups": ["/sys/fs/cgroup"]}),
            json!({"verb": "start", "job": "6", "account": name}),
            json!({"verb": "start", "job": "6", "alias": name}),
            json!({"verb": "end", "job": "5", "state": name}),
            json!({"verb": "mark", "job": "5", "name": name}),
            json!({"verb": "push", "job": "5", "metric": "loss", "value": 1, "unit": name}),
            json!({"verb": "push", "job": "5", "metric": "loss", "value": 1, "labels": {name: "1"}}),
            json!({"verb": "push", "job": "5", "metric": "loss", "value": 1, "labels": {"a": name}}),
        ] {
            let answer = fixture.agent.ask(&request);
            assert_eq!(answer["code"], "invalid", "{request}: {answer}");
            assert!(answer["message"].as_str().unwrap().contains(why), "{request}: {answer}");
        }
        let remote = json!({"verb": "mark", "job": name, "name": "x"});
        let answer = ask(&fixture.socket, &format!("{remote}\n"));
        assert!(answer["message"].as_str().unwrap().contains(why), "{answer}");
        // An unknown verb or field is not repeated unescaped.
        for request in [json!({"verb": name}), json!({"verb": "status", name: 1})] {
            let answer = fixture.agent.ask(&request).to_string();
            assert!(!answer.contains(name) || name.trim().is_empty(), "{answer}");
        }
    }
    drop(sleeper);
    fixture.end(job, "5");
}

/// Each reason of a refusal is stated once.
fn every_refusal_has_one_reason() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let (job, sleeper) = fixture.job("4", OWNER);
    fixture.row("4");
    let set = |plan: Value| fixture.agent.ask(&json!({"verb": "set", "job": "4", "plan": plan}));
    let nothing = set(json!({"node.*": "1s"}));
    assert!(nothing["message"].as_str().unwrap().contains("no metric of a job matches node.*"), "{nothing}");
    // The job has cgroups, so that its processes are not sampled one by one.
    let many = set(json!({"process.cpu.*": "1s"}));
    assert_eq!(many["code"], "unavailable", "{many}");
    let (groups, message) = (many["unavailable"].as_array().unwrap(), many["message"].as_str().unwrap());
    assert!(!groups.is_empty(), "{many}");
    for group in groups {
        assert!(!group["metrics"].as_array().unwrap().is_empty(), "{many}");
        assert!(message.matches(group["reason"].as_str().unwrap()).count() <= 1, "{many}");
    }
    drop(sleeper);
    fixture.end(job, "4");
}
