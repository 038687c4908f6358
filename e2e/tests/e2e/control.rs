//! The control socket: permissions, the data that users add, and robustness against malformed requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;

use polymeter_e2e::cgroup::{Job, TestCgroups};
use polymeter_e2e::daemons::{Agent, Daemon, Plan, collector, configure_with};
use polymeter_e2e::fixture::{OTHER_USER, OWNER};
use polymeter_e2e::random::Random;
use polymeter_e2e::tests;
use polymeter_e2e::workload::Sleeper;
use polymeter_e2e::{Need, TestEnvironment, as_user, require, stored, wait_until};
use polymeter_store::reader::PlanChangeRow;
use rustix::process::Signal;
use serde_json::{Value, json};

tests![
    marks_and_user_values_are_stored,
    configured_administrators_and_job_visibility,
    other_users_jobs_look_like_unknown_jobs,
    minimum_periods_are_per_metric,
    owner_is_found_from_the_job_processes,
    governor_slows_and_restores_leases,
    leases_end_with_their_job,
    malformed_requests_do_no_harm,
    client_quota_is_per_user,
];

const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];
const BASELINE: [(&str, &str); 2] = [("cpu.usage", "200ms"), ("memory.current", "1s")];

struct Fixture {
    agent: Agent,
    collector: Daemon,
    endpoint: String,
    _sleeper: Sleeper,
    job: Job,
    _cgroups: TestCgroups,
    env: TestEnvironment,
}

impl Fixture {
    /// Starts a fixture with additional keys and tables in the agent's configuration, and registers the job
    /// for the owner.
    fn new(keys: &str, tables: &str) -> Self {
        let fixture = Self::unregistered(keys, tables);
        fixture.register(&json!({"uid": OWNER}));
        fixture
    }

    fn unregistered(keys: &str, tables: &str) -> Self {
        let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
        let (collector, endpoint) = collector(&env, &env.endpoint());
        let (job, sleeper) = (cgroups.job("x"), Sleeper::start());
        job.enter(sleeper.pid());
        let plan = Plan { collector: &endpoint, jobs: &[], baseline: &BASELINE };
        let agent = Agent::start_with(&env, &plan, keys, tables);
        std::fs::set_permissions(env.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        Self { agent, collector, endpoint, _sleeper: sleeper, job, _cgroups: cgroups, env }
    }

    fn register(&self, more: &Value) {
        let mut request = json!({"verb": "register", "job": "x", "cgroups": self.job.directories});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = self.agent.ask(&request);
        assert_eq!(answer["answer"], "registered", "{answer}");
        self.agent.wait_until_tracked("x", &["v2/cpu.stat"]);
    }

    fn ask_as(&self, user: (u32, u32), request: &Value) -> Value {
        as_user(user, || self.agent.ask(request))
    }

    fn plan_line(&self, metric: &str) -> Value {
        let plan = self.agent.ask(&json!({"verb": "plan", "job": "x"}));
        let lines = plan["plan"].as_array().unwrap_or_else(|| panic!("{plan}"));
        lines.iter().find(|line| line["metric"] == metric).cloned().unwrap_or_default()
    }

    fn end(self) -> TestEnvironment {
        assert_eq!(self.agent.ask(&json!({"verb": "unregister", "job": "x"}))["answer"], "done");
        // Jobs with the same id and different owners are different jobs.
        let mut reader = self.env.reader();
        wait_until("the store knows the ends of all jobs", || {
            let jobs = stored::jobs(&mut reader);
            !jobs.is_empty() && jobs.iter().all(|job| job.ended_ns.is_some())
        });
        self.agent.daemon.terminate();
        self.collector.terminate();
        self.env
    }
}

fn marks_and_user_values_are_stored() {
    require(&NEEDS);
    let fixture = Fixture::new("", "");
    let owner = (OWNER, OWNER);
    for (name, kind) in [("solver", "begin"), ("checkpoint", "instant"), ("solver", "end")] {
        let answer = fixture.ask_as(owner, &json!({"verb": "mark", "job": "x", "name": name, "kind": kind}));
        assert_eq!(answer["answer"], "done", "{answer}");
    }
    for (value, rank) in [(0.5, "0"), (0.25, "0"), (-1e300, "1")] {
        let push = json!({"verb": "push", "job": "x", "metric": "loss", "value": value, "unit": "nats",
                          "labels": {"rank": rank}});
        assert_eq!(fixture.ask_as(owner, &push)["answer"], "done");
    }
    for (verb, code) in [
        (json!({"verb": "mark", "job": "x", "name": "mine"}), "unknown_job"),
        (json!({"verb": "push", "job": "x", "metric": "loss", "value": 1}), "unknown_job"),
        (json!({"verb": "mark", "name": "reboot"}), "forbidden"),
    ] {
        assert_eq!(fixture.ask_as((OTHER_USER, OTHER_USER), &verb)["code"], code, "{verb}");
    }
    assert_eq!(fixture.agent.ask(&json!({"verb": "mark", "name": "maintenance"}))["answer"], "done");
    // The series beyond the limit of 1000 are refused.
    let refused = (0..400).filter(|number| {
        let labels = json!({"n": number.to_string()});
        let push = json!({"verb": "push", "job": "x", "metric": "many", "value": number, "labels": labels});
        fixture.agent.ask(&push)["code"] == "too_many"
    });
    assert_eq!(refused.count(), 400 - (256 - 2));
    assert_eq!(fixture.agent.ask(&json!({"verb": "unregister", "job": "x"}))["answer"], "done");
    stored::wait_for_end(&fixture.env, "x");
    let mut reader = fixture.env.reader();
    let job = stored::job(&mut reader, "x").unwrap();
    let marks: Vec<_> = reader.marks(job.job_key).unwrap();
    let names_and_kinds: Vec<_> = marks.iter().map(|mark| (mark.name.as_str(), mark.kind.as_str())).collect();
    assert_eq!(names_and_kinds, [("solver", "begin"), ("checkpoint", "instant"), ("solver", "end")]);
    assert!(marks.iter().all(|mark| mark.actor.as_deref() == Some("uid 64001")));
    let of_node = "SELECT group_concat(name) FROM mark WHERE job_key IS NULL";
    let store = rusqlite::Connection::open(fixture.env.path("store.db")).unwrap();
    assert_eq!(store.query_row(of_node, (), |row| row.get::<_, String>(0)).unwrap(), "maintenance");
    let samples = stored::samples(&mut reader, polymeter_store::reader::SeriesScope::Job(job.job_key));
    let values = |labels: &str| {
        let series = &samples[&("user.loss".to_owned(), labels.to_owned())];
        series.points.iter().map(|(_, value)| *value).collect::<Vec<_>>()
    };
    assert_eq!(values("rank=0,unit=nats"), [0.5, 0.25]);
    assert_eq!(values("rank=1,unit=nats"), [-1e300]);
    let pushed: Vec<_> =
        reader.ledger(job.job_key).unwrap().into_iter().filter(|row| row.source == "pushed").collect();
    assert_eq!(pushed[0].tally.taken, 3 + 254, "{pushed:?}");
    fixture.agent.daemon.terminate();
    fixture.collector.terminate();
}

fn configured_administrators_and_job_visibility() {
    require(&NEEDS);
    // Users and groups that exist on every Debian.
    let keys = "administrators = [\"games\", \"@www-data\", \"nobody.here\"]\njob_visibility = \"all\"\n";
    let fixture = Fixture::new(keys, "");
    let log = fixture.agent.daemon.log();
    assert!(log.contains("unknown administrator") && log.contains("[name=nobody.here]"), "{log}");
    let (games, www_data) = ((5, 60), (OTHER_USER, 33));
    let request = json!({"verb": "set", "job": "x", "plan": {"cpu.usage": "100us"}});
    for administrator in [games, www_data] {
        assert_eq!(
            fixture.ask_as(administrator, &request)["answer"],
            "granted",
            "no limit binds administrators"
        );
        assert_eq!(fixture.ask_as(administrator, &json!({"verb": "flush"}))["answer"], "done");
    }
    let plan = fixture.ask_as((OTHER_USER, OTHER_USER), &json!({"verb": "plan", "job": "x"}));
    assert_eq!(plan["answer"], "plan", "every user may see the plan: {plan}");
    assert_eq!(
        fixture.ask_as((OTHER_USER, OTHER_USER), &request)["code"],
        "forbidden",
        "other users may not change the plan"
    );
    assert_eq!(fixture.ask_as((OTHER_USER, OTHER_USER), &json!({"verb": "flush"}))["code"], "forbidden");
    fixture.end();
}

/// A request of every verb that takes a job, without the job.
fn verbs_about_a_job() -> Vec<Value> {
    vec![
        json!({"verb": "metrics"}),
        json!({"verb": "plan"}),
        json!({"verb": "set", "plan": {"cpu.usage": "10ms"}}),
        json!({"verb": "set", "plan": {"cpu.usage": "1us"}}),
        json!({"verb": "set", "plan": {"no.such": "1s"}}),
        json!({"verb": "set", "plan": {"cpu.usage": "10ms"}, "for": "300d"}),
        json!({"verb": "reset"}),
        json!({"verb": "mark", "name": "here"}),
        json!({"verb": "push", "metric": "loss", "value": 1}),
        json!({"verb": "watch"}),
        json!({"verb": "watch", "metrics": ["no.such"]}),
        json!({"verb": "register", "cgroups": []}),
        json!({"verb": "unregister"}),
        json!({"verb": "start"}),
        json!({"verb": "end"}),
    ]
}

fn other_users_jobs_look_like_unknown_jobs() {
    require(&NEEDS);
    let fixture = Fixture::new("", "");
    // Returns the first line of the answer, with the requested id replaced. This works for `watch`, too.
    for request in verbs_about_a_job() {
        let (foreign, missing) = (
            answer_about(&fixture, OTHER_USER, &request, "x"),
            answer_about(&fixture, OTHER_USER, &request, "missing"),
        );
        assert_eq!(foreign, missing, "{request}");
        assert!(foreign.contains("\"refused\""), "{request}: {foreign}");
        // The owner of other jobs gets the same answer.
        assert_eq!(answer_about(&fixture, OWNER, &request, "missing"), missing, "{request}");
    }
    let mut distinguished = 0;
    let for_administrators = ["register", "unregister", "start", "end"];
    for request in verbs_about_a_job() {
        if for_administrators.iter().any(|verb| request["verb"] == *verb) {
            continue;
        }
        let (present, missing) =
            (answer_about(&fixture, 0, &request, "x"), answer_about(&fixture, 0, &request, "missing"));
        assert!(!missing.contains("not yours"), "administrators see all jobs: {missing}");
        distinguished += usize::from(present != missing);
    }
    assert!(distinguished >= 8, "administrators see the difference");
    for request in [json!({"verb": "plan"}), json!({"verb": "mark", "name": "a"}), json!({"verb": "reset"})] {
        let own = answer_about(&fixture, OWNER, &request, "x");
        assert!(!own.contains("refused"), "{request}: {own}");
        assert_eq!(
            fixture.ask_as((OTHER_USER, OTHER_USER), &request)["code"],
            "forbidden",
            "the existence of a node is not secret"
        );
    }
    let jobs = fixture.ask_as((OTHER_USER, OTHER_USER), &json!({"verb": "jobs"}));
    assert_eq!(jobs["subjects"], json!([]), "{jobs}");
    // The counts of the status tell a user nothing about jobs of others.
    let counts = |uid: u32| fixture.ask_as((uid, uid), &json!({"verb": "status"}))["counts"].clone();
    wait_until("samples of the job are counted", || counts(0)["taken"].as_u64() > Some(0));
    let other = counts(OTHER_USER);
    for name in ["due", "taken", "jobs"] {
        assert_eq!(other[name], 0, "{name}: {other}");
    }
    assert!(other["descriptors"].is_null() && other["jobs_left_out"].is_null(), "{other}");
    wait_until("the owner sees her own", || counts(OWNER)["taken"].as_u64() > Some(0));
    assert_eq!(counts(OWNER)["jobs"], 1);
    assert!(counts(0)["descriptors"].as_u64() > Some(0), "{}", counts(0));
    fixture.end();
}

fn answer_about(fixture: &Fixture, uid: u32, request: &Value, job: &str) -> String {
    let mut request = request.clone();
    request["job"] = json!(job);
    fixture.ask_as((uid, uid), &request).to_string().replace(&format!("job {job}"), "job JOB")
}

fn minimum_periods_are_per_metric() {
    require(&NEEDS);
    let tables =
        "[limits]\nshortest_period = \"10ms\"\n[limits.shortest_periods]\n\"memory.*\" = \"100ms\"\n";
    let fixture = Fixture::new("", tables);
    let set = |plan: Value| fixture.ask_as((OWNER, OWNER), &json!({"verb": "set", "job": "x", "plan": plan}));
    assert_eq!(set(json!({"cpu.usage": "10ms"}))["answer"], "granted");
    for plan in [json!({"memory.current": "10ms"}), json!({"*": "10ms"})] {
        let refused = set(plan);
        assert_eq!(
            (&refused["code"], &refused["instead"]),
            (&json!("shortest_period"), &json!("100ms")),
            "{refused}"
        );
    }
    fixture.end();
}

fn owner_is_found_from_the_job_processes() {
    require(&NEEDS);
    let fixture = Fixture::unregistered("", "");
    let mut sleeper = Command::new("setpriv")
        .args([format!("--reuid={OWNER}"), format!("--regid={OWNER}"), "--clear-groups".to_owned()])
        .args(["sleep", "100"])
        .spawn()
        .unwrap();
    // setpriv executes sleep in the same process, which then belongs to the owner.
    wait_until("the process is the owner's", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", sleeper.id())).unwrap();
        status.lines().any(|line| line.starts_with("Uid:") && line.contains(&OWNER.to_string()))
    });
    let step = fixture.job.step("step_0");
    step.enter(sleeper.id());
    fixture.register(&json!({}));
    let request = json!({"verb": "set", "job": "x", "plan": {"cpu.usage": "10ms"}});
    wait_until("the owner's process makes the user its owner", || {
        fixture.ask_as((OWNER, OWNER), &request)["answer"] == "granted"
    });
    assert_eq!(fixture.ask_as((OTHER_USER, OTHER_USER), &request)["code"], "unknown_job");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    fixture.end();
}

fn governor_slows_and_restores_leases() {
    require(&NEEDS);
    let limits = |percent: u32| format!("[limits]\nnode_cpu_percent = {percent}\n");
    let fixture = Fixture::new("", &limits(1));
    // Root's requests are not checked against the limits in advance, so that this lease exceeds one percent.
    let request = json!({"verb": "set", "job": "x", "plan": {"cpu.*": "1ms", "memory.*": "1ms"}});
    assert_eq!(fixture.agent.ask(&request)["answer"], "granted");
    let asked = || fixture.plan_line("cpu.user")["requested"].clone();
    wait_until("the leases are slowed", || asked() == "1ms");
    let slowed = fixture.plan_line("cpu.user")["period"].clone();
    assert!(slowed != "1ms", "{slowed}");
    // The baseline is not slowed: its metrics keep at least its rate.
    let period: polymeter_proto::period::Period =
        fixture.plan_line("cpu.usage")["period"].as_str().unwrap().parse().unwrap();
    assert!(period.as_micros() <= 200_000);
    let plan = Plan { collector: &fixture.endpoint, jobs: &[], baseline: &BASELINE };
    configure_with(&fixture.env, &plan, "", &limits(100));
    fixture.agent.daemon.signal(Signal::HUP);
    wait_until("the leases have their periods again", || asked().is_null());
    assert_eq!(fixture.plan_line("cpu.user")["period"], "1ms");
    wait_until("the store knows each step", || governor_changes(&fixture).len() >= 2);
    for change in governor_changes(&fixture) {
        let (old, new) = (change.old_period_us.unwrap(), change.new_period_us.unwrap());
        assert!(new == old * 2 || old == new * 2, "{change:?}");
        assert_eq!(change.actor.as_deref(), Some("uid 0"));
    }
    fixture.end();
}

fn governor_changes(fixture: &Fixture) -> Vec<PlanChangeRow> {
    let mut reader = fixture.env.reader();
    let job = stored::job(&mut reader, "x").unwrap();
    let changes = reader.plan_changes(job.job_key).unwrap();
    changes
        .into_iter()
        .filter(|change| change.metric == "cpu.user" && change.cause == "governor")
        .collect::<Vec<_>>()
}

fn leases_end_with_their_job() {
    require(&NEEDS);
    let fixture = Fixture::new("", "");
    let request =
        json!({"verb": "set", "job": "x", "plan": {"cpu.usage": "10ms", "perf.page_faults": "10ms"}});
    assert_eq!(fixture.ask_as((OWNER, OWNER), &request)["answer"], "granted");
    assert_eq!(fixture.agent.ask(&json!({"verb": "unregister", "job": "x"}))["answer"], "done");
    assert_eq!(fixture.ask_as((OWNER, OWNER), &request)["code"], "unknown_job");
    // The new job of the same name belongs to another user; the owner's requests do not apply to it.
    fixture.register(&json!({"uid": OTHER_USER}));
    assert_eq!(fixture.plan_line("cpu.usage")["cause"], "baseline");
    assert_eq!(fixture.ask_as((OWNER, OWNER), &request)["code"], "unknown_job");
    let env = fixture.end();
    let owners: Vec<_> = stored::jobs(&mut env.reader()).iter().map(|job| job.owner_uid).collect();
    assert_eq!(owners, [Some(i64::from(OWNER)), Some(i64::from(OTHER_USER))]);
}

fn malformed_requests_do_no_harm() {
    require(&NEEDS);
    let fixture = Fixture::new("", "");
    // Idle, incomplete and overlong requests stay open while other clients send requests.
    let idle: Vec<UnixStream> =
        (0..30).map(|_| UnixStream::connect(&fixture.agent.socket).unwrap()).collect();
    let mut half = UnixStream::connect(&fixture.agent.socket).unwrap();
    half.write_all(b"{\"verb\":\"sta").unwrap();
    let mut long = UnixStream::connect(&fixture.agent.socket).unwrap();
    long.write_all(&vec![b'['; 100_000]).ok();
    let mut answer = String::new();
    long.read_to_string(&mut answer).ok();
    assert!(answer.contains("too_long"), "{answer}");
    // A client that does not read its answers does not delay other clients.
    let mut stalled = UnixStream::connect(&fixture.agent.socket).unwrap();
    stalled.set_nonblocking(true).unwrap();
    while stalled.write(b"{\"verb\":\"status\"}\n").is_ok() {}
    // Lines made from a valid one by changing some of its bytes.
    let good = json!({"verb": "set", "job": "x", "plan": {"cpu.*": "10ms"}, "for": "10s"}).to_string();
    let mut random = Random::new(1);
    let stream = UnixStream::connect(&fixture.agent.socket).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut stream = stream;
    for _ in 0..3_000 {
        let mut line = good.clone().into_bytes();
        for _ in 0..=random.choose(4) {
            let at = random.choose(line.len());
            match random.choose(3) {
                0 => line[at] = random.choose(256) as u8,
                1 => drop(line.remove(at)),
                _ => line.insert(at, b"{}[]\",:0\\"[random.choose(9)]),
            }
        }
        line.retain(|byte| *byte != b'\n');
        line.push(b'\n');
        stream.write_all(&line).unwrap();
        let answer: Value = serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap();
        assert!(answer["answer"] == "granted" || answer["code"].is_string(), "{answer}");
    }
    drop((idle, half, stalled));
    assert_eq!(fixture.agent.count("dropped"), 0);
    fixture.end();
}

fn client_quota_is_per_user() {
    require(&NEEDS);
    let fixture = Fixture::new("", "");
    // Another user opens as many connections as the quota permits, and keeps them.
    let connections: Vec<UnixStream> = as_user((OTHER_USER, OTHER_USER), || {
        (0..40).map(|_| UnixStream::connect(&fixture.agent.socket).unwrap()).collect()
    });
    let busy = connections.iter().filter(|stream| {
        let mut stream = *stream;
        stream.write_all(b"{\"verb\":\"jobs\"}\n").ok();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer.contains("busy")
    });
    assert_eq!(busy.count(), 40 - 16, "the quota is 16 connections");
    assert_eq!(fixture.ask_as((OWNER, OWNER), &json!({"verb": "plan", "job": "x"}))["answer"], "plan");
    assert_eq!(fixture.agent.ask(&json!({"verb": "flush"}))["answer"], "done");
    drop(connections);
    fixture.end();
}
