//! Metrics of devices that are off until a job on a node that they serve asks for them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Daemon, Plan, ask, collector_with};
use polymeter_e2e::fixture::{NEEDS, OTHER_USER, OWNER};
use polymeter_e2e::tests;
use polymeter_e2e::wattmeter::wattmeter;
use polymeter_e2e::workload::Sleeper;
use polymeter_e2e::{TestEnvironment, as_user, now_us, pause, require, stored, wait_until};
use polymeter_store::reader::SeriesScope;
use rustix::process::Signal;
use serde_json::{Value, json};

tests![
    a_device_is_sampled_while_a_job_asks_for_it,
    of_two_jobs_that_share_a_device_the_faster_one_decides,
    what_a_job_asks_for_outlives_each_program,
    refusals_of_devices_state_cause_and_remedy,
    only_the_collector_may_ask_for_a_job,
];

const METRIC: &str = "device.meter.power";

/// Jobs x of the owner and y of another user, each on a node of its own, a job z on a third node that no
/// device serves, and the agent of a wattmeter of the first two nodes that is off.
struct Rack {
    // Fields are dropped in this order: the daemons before the directory that they write to.
    agents: Vec<Agent>,
    devices: Agent,
    collector: Daemon,
    _sleepers: Vec<Sleeper>,
    jobs: Vec<polymeter_e2e::cgroup::Job>,
    _cgroups: TestCgroups,
    socket: PathBuf,
    endpoint: String,
    nodes: Vec<TestEnvironment>,
    rack: TestEnvironment,
    env: TestEnvironment,
}

const JOBS: [(&str, u32); 3] = [("x", OWNER), ("y", OTHER_USER), ("z", OWNER)];

fn start_agent(node: &TestEnvironment, endpoint: &str) -> Agent {
    let plan = Plan { collector: endpoint, jobs: &[], baseline: &[("cpu.usage", "500ms")] };
    Agent::start(node, &plan)
}

impl Rack {
    fn new() -> Self {
        Self::with("")
    }

    /// Starts it with further tables of the agent of the wattmeter.
    fn with(tables: &str) -> Self {
        require(&NEEDS);
        let (env, rack, cgroups) = (TestEnvironment::new(), TestEnvironment::new(), TestCgroups::new());
        fs::set_permissions(env.path(""), PermissionsExt::from_mode(0o755)).unwrap();
        let socket = env.path("control.sock");
        let more = format!("control_socket = \"{}\"\n", socket.display());
        let (collector, endpoint) = collector_with(&env, &env.endpoint(), &more);
        let nodes: Vec<TestEnvironment> = JOBS.iter().map(|_| TestEnvironment::new()).collect();
        let meter = wattmeter(&[&nodes[0].node, &nodes[1].node, "idle"]);
        let device = format!(
            "[[device]]\nname = \"meter\"\nurl = \"tcp://{meter}\"\ntimeout = \"30s\"\nmetric = [{{ name = \"power\", \
             address = \"*\", label = \"node\", unit = \"watts\", period = \"off\" }}]\n{tables}"
        );
        let plan = Plan { collector: &endpoint, jobs: &[], baseline: &[("agent.cpu.time", "1s")] };
        let devices = Agent::start_with(&rack, &plan, "", &device);
        let sleepers: Vec<Sleeper> = JOBS.iter().map(|_| Sleeper::start()).collect();
        let jobs: Vec<_> = JOBS.iter().map(|(job, _)| cgroups.job(job)).collect();
        jobs.iter().zip(&sleepers).for_each(|(job, sleeper)| job.enter(sleeper.pid()));
        let agents = nodes.iter().map(|node| start_agent(node, &endpoint)).collect();
        let fixture = Self {
            agents,
            devices,
            collector,
            _sleepers: sleepers,
            jobs,
            _cgroups: cgroups,
            socket,
            endpoint,
            nodes,
            rack,
            env,
        };
        (0..JOBS.len()).for_each(|number| fixture.register(number));
        wait_until("the wattmeter is known", || {
            let metrics = fixture.devices.ask(&json!({"verb": "metrics"}));
            let all = metrics["metrics"].as_array().cloned().unwrap_or_default();
            all.iter().any(|line| line["metric"] == METRIC && line["available"] == true)
        });
        fixture
    }

    fn register(&self, number: usize) {
        let (job, uid) = JOBS[number];
        let directories = &self.jobs[number].directories;
        let register = json!({"verb": "register", "job": job, "uid": uid, "cgroups": directories});
        let answer = self.agents[number].ask(&register);
        assert_eq!(answer["answer"], "registered", "{answer}");
        wait_until("the collector knows the job", || {
            let answer = self.ask(0, &json!({"verb": "plan", "job": job}));
            answer["nodes"][0]["answer"]["answer"] == "plan"
        });
    }

    /// Asks the collector.
    fn ask(&self, uid: u32, request: &Value) -> Value {
        as_user((uid, uid), || ask(&self.socket, &format!("{request}\n")))
    }

    fn set(&self, number: usize, plan: &Value, lasts: &str) -> Value {
        let (job, uid) = JOBS[number];
        self.ask(uid, &json!({"verb": "set", "job": job, "plan": plan, "for": lasts}))
    }

    /// Sets the period at which a job asks for the wattmeter, once the collector knows whom it serves.
    fn granted(&self, number: usize, period: &str, lasts: &str) -> Value {
        let mut granted = Value::Null;
        wait_until("the wattmeter is granted", || {
            let answer = self.set(number, &json!({"device.meter.*": period}), lasts);
            granted = answer_of(&answer, &self.rack.node);
            granted["answer"] == "granted"
        });
        granted
    }

    /// Period and end of the wattmeter, as its agent states them.
    fn in_force(&self) -> Option<(String, i64)> {
        let plan = self.devices.ask(&json!({"verb": "plan"}));
        let line = plan["plan"].as_array()?.iter().find(|line| line["metric"] == METRIC)?.clone();
        Some((line["period"].as_str()?.to_owned(), line["until_us"].as_i64()?))
    }

    fn is(&self, period: &str) -> bool {
        self.in_force().is_some_and(|(in_force, _)| in_force == period)
    }

    fn is_off(&self) -> bool {
        self.in_force().is_none()
    }

    /// Times of the samples of a node by the wattmeter, in microseconds since the epoch.
    fn times(&self, node: &str) -> Vec<i64> {
        let samples = stored::samples(&mut self.env.reader(), SeriesScope::Node(&self.rack.node));
        let key = (METRIC.to_owned(), format!("device=meter,node={node}"));
        let served = stored::samples(&mut self.env.reader(), SeriesScope::Node(node));
        let series = samples.get(&key).or_else(|| served.get(&key));
        series.map(|series| series.points.iter().map(|(time_us, _)| *time_us).collect()).unwrap_or_default()
    }

    fn count(&self) -> usize {
        self.times(&self.nodes[0].node).len()
    }

    fn restart_job(&mut self, number: usize) {
        self.agents[number].daemon.signal(Signal::KILL);
        wait_until("the agent is gone", || !self.agents[number].daemon.runs());
        self.agents[number] = start_agent(&self.nodes[number], &self.endpoint);
        self.register(number);
    }
}

/// Answer of a node in that of the collector; null if there is none.
fn answer_of(answer: &Value, node: &str) -> Value {
    let nodes = answer["nodes"].as_array().cloned().unwrap_or_default();
    nodes.iter().find(|of| of["node"] == node).map_or(Value::Null, |of| of["answer"].clone())
}

/// Number of samples in an interval. Their median distance must be `period_us`: a line may arrive late.
fn sampled_every(period_us: i64, times: &[i64], within: std::ops::Range<i64>) -> usize {
    let inside: Vec<i64> = times.iter().copied().filter(|time_us| within.contains(time_us)).collect();
    let mut gaps: Vec<i64> = inside.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_unstable();
    let median_us = gaps[gaps.len() / 2];
    assert!((median_us - period_us).abs() < period_us / 4, "{median_us} us");
    inside.len()
}

fn a_device_is_sampled_while_a_job_asks_for_it() {
    let rack = Rack::new();
    assert!(rack.is_off() && rack.count() == 0, "it is off until a job asks");
    let begin_us = now_us();
    let granted = rack.granted(0, "20ms", "6s");
    assert_eq!(granted["metrics"], json!({METRIC: "20ms"}), "{granted}");
    let until_us = granted["until_us"].as_i64().unwrap();
    assert!((begin_us + 5_000_000..begin_us + 30_000_000).contains(&until_us), "{granted}");
    assert!(rack.is("20ms"));
    let of_job = rack.agents[0].ask(&json!({"verb": "plan", "job": "x"}));
    let line = of_job["plan"].as_array().unwrap().iter().find(|line| line["metric"] == "device.meter.*");
    assert!(line.unwrap()["reason"].as_str().unwrap().contains("devices that serve this node"), "{of_job}");
    let plan = rack.ask(OWNER, &json!({"verb": "plan", "job": "x"}));
    let line = answer_of(&plan, &rack.rack.node)["plan"][0].clone();
    assert_eq!(
        (&line["metric"], &line["period"], &line["until_us"]),
        (&json!(METRIC), &json!("20ms"), &json!(until_us))
    );
    wait_until("it is off again with the lease", || rack.is_off());
    assert!((until_us - 200_000..until_us + 2_000_000).contains(&now_us()));
    rack.devices.ask(&json!({"verb": "flush"}));
    wait_until("what was sampled is stored", || rack.count() > 150);
    pause(1_500);
    let times = rack.times(&rack.nodes[0].node);
    // A second of a busy machine may be missed, and is counted.
    let sampled = sampled_every(20_000, &times, begin_us..until_us + 200_000);
    assert!((150..=((until_us - begin_us) / 20_000 + 10) as usize).contains(&sampled), "{sampled}");
    let last_us = times.last().unwrap();
    assert!(*last_us < until_us + 200_000, "a sample {} us behind the lease", last_us - until_us);

    // On the node itself, and ended by a reset there.
    let set = json!({"verb": "set", "job": "x", "plan": {"device.meter.power": "50ms"}, "for": "10min"});
    let answer = as_user((OWNER, OWNER), || rack.agents[0].ask(&set));
    assert_eq!(answer["metrics"], json!({METRIC: "50ms"}), "{answer}");
    wait_until("the devices follow a request on the node", || rack.is("50ms"));
    as_user((OWNER, OWNER), || rack.agents[0].ask(&json!({"verb": "reset", "job": "x"})));
    wait_until("the reset ends it", || rack.is_off());

    // At submission, until the job ends.
    let start = json!({"verb": "start", "job": "x", "uid": OWNER, "plan": {"device.*.power": "100ms"}});
    let answer = rack.agents[0].ask(&start);
    assert_eq!(answer["answer"], "started", "{answer}");
    wait_until("the devices follow the submission", || rack.is("100ms"));
    let (_, until_us) = rack.in_force().unwrap();
    assert!(until_us <= now_us() + 90_500_000, "it ends soon if nobody repeats it");
    assert_eq!(rack.agents[0].ask(&json!({"verb": "unregister", "job": "x"}))["answer"], "done");
    wait_until("the end of the job ends it", || rack.is_off());
    rack.devices.daemon.terminate();
    check_ledger(&rack.env);
}

/// Each sample that was taken of the devices is a row.
fn check_ledger(env: &TestEnvironment) {
    let store = rusqlite::Connection::open(env.path("store.db")).unwrap();
    let number = |sql: &str| store.query_row(sql, (), |row| row.get::<_, i64>(0)).unwrap();
    let taken = number("SELECT sum(taken) FROM ledger WHERE source = 'device/meter'");
    let rows = number(
        "SELECT count(*) FROM samples JOIN series USING (series_id) WHERE metric = 'device.meter.power'",
    );
    assert!(rows > 0);
    assert_eq!(rows, taken);
}

fn of_two_jobs_that_share_a_device_the_faster_one_decides() {
    let rack = Rack::new();
    rack.granted(1, "200ms", "10min");
    assert!(rack.is("200ms"));
    rack.granted(0, "20ms", "10min");
    assert!(rack.is("20ms"));
    let before = rack.times(&rack.nodes[1].node).len();
    wait_until("both jobs have the faster samples", || rack.times(&rack.nodes[1].node).len() > before + 100);
    // What one job asks for concerns the other one neither in its plan nor in its rights.
    let plan = rack.ask(OTHER_USER, &json!({"verb": "plan", "job": "y"}));
    assert_eq!(
        answer_of(&plan, &rack.nodes[1].node)["plan"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|line| line["period"] == "20ms")
            .count(),
        0
    );
    let stranger = rack.ask(OTHER_USER, &json!({"verb": "reset", "job": "x"}));
    assert_eq!(stranger["code"], "unknown_job", "{stranger}");
    assert!(rack.is("20ms"));
    rack.ask(OWNER, &json!({"verb": "reset", "job": "x"}));
    wait_until("the slower one is left", || rack.is("200ms"));
    rack.ask(OTHER_USER, &json!({"verb": "reset", "job": "y"}));
    wait_until("nobody asks any more", || rack.is_off());
}

fn what_a_job_asks_for_outlives_each_program() {
    let mut rack = Rack::new();
    rack.granted(0, "20ms", "10min");
    let (_, until_us) = rack.in_force().unwrap();
    assert!(until_us <= now_us() + 90_500_000);

    rack.collector.signal(Signal::KILL);
    wait_until("the collector is gone", || !rack.collector.runs());
    let more = format!("control_socket = \"{}\"\n", rack.socket.display());
    rack.collector = collector_with(&rack.env, &rack.env.endpoint(), &more).0;
    wait_until("a new collector repeats what the job asks for", || {
        rack.in_force().is_some_and(|(period, repeated_us)| period == "20ms" && repeated_us > until_us)
    });

    rack.devices.daemon.signal(Signal::KILL);
    wait_until("the agent of the devices is gone", || !rack.devices.daemon.runs());
    let config = rack.devices.config.display().to_string();
    rack.devices.daemon = Daemon::start(&rack.rack, "polymeter-agent", &["--config", &config]);
    let socket = rack.devices.socket.clone();
    wait_until("the agent of the devices answers", || {
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    wait_until("a new agent of the devices is asked again", || rack.is("20ms"));

    rack.restart_job(0);
    wait_until("the new agent of the job has its lease again", || {
        let plan = rack.agents[0].ask(&json!({"verb": "plan", "job": "x"}));
        plan["plan"].as_array().unwrap().iter().any(|line| line["metric"] == "device.meter.*")
    });
    wait_until("the devices are sampled for it", || rack.is("20ms"));
    rack.ask(OWNER, &json!({"verb": "reset", "job": "x"}));
    wait_until("the reset ends it", || rack.is_off());

    // Without a collector it ends by itself.
    rack.granted(0, "20ms", "4s");
    rack.collector.signal(Signal::KILL);
    wait_until("it ends without the collector", || rack.is_off());
}

fn refusals_of_devices_state_cause_and_remedy() {
    let rack = Rack::with(
        "[limits]\njob_cpu_percent = 100\nnode_cpu_percent = 100\n[limits.shortest_periods]\n\"device.*\" = \"50ms\"\n",
    );
    let mut refused = Value::Null;
    wait_until("the agent of the devices refuses", || {
        refused = answer_of(&rack.set(0, &json!({"device.meter.*": "20ms"}), "10min"), &rack.rack.node);
        refused["answer"] == "refused"
    });
    assert_eq!(
        (&refused["code"], &refused["instead"]),
        (&json!("shortest_period"), &json!("50ms")),
        "{refused}"
    );
    let plan = rack.ask(OWNER, &json!({"verb": "plan", "job": "x"}));
    let of_devices = answer_of(&plan, &rack.rack.node);
    assert!(of_devices["refused"][0]["reason"].as_str().unwrap().contains("50ms"), "{plan}");
    assert!(rack.is_off());
    rack.granted(0, "50ms", "10min");

    let answer = rack.set(0, &json!({"device.nothing.*": "1s"}), "10min");
    let granted = answer_of(&answer, &rack.rack.node);
    // What it has asked for before goes on.
    assert_eq!(
        (&granted["answer"], &granted["metrics"]),
        (&json!("granted"), &json!({METRIC: "50ms"})),
        "{answer}"
    );
    assert_eq!(granted["unavailable"][0][0], "device.nothing.*", "{answer}");
    let answer = rack.set(2, &json!({"device.*": "1s"}), "10min");
    let refused = answer_of(&answer, "devices");
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains("polls a device that serves") && message.contains(&rack.nodes[2].node),
        "{answer}"
    );
    let answer = rack.set(1, &json!({"device.nothing.*": "1s"}), "10min");
    let refused = answer_of(&answer, &rack.rack.node);
    assert!(refused["message"].as_str().unwrap().contains("has a metric device.nothing.*"), "{answer}");
    // Steps and rings have no devices, and metrics of the node are no user's.
    for more in [json!({"level": "step"}), json!({"ring": true})] {
        let mut request = json!({"verb": "set", "job": "y", "plan": {"device.*": "1s"}});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = rack.ask(OTHER_USER, &request);
        assert_eq!(answer_of(&answer, &rack.nodes[1].node)["code"], "unavailable", "{answer}");
    }
    let too_short = rack.set(1, &json!({"device.*": "100us"}), "10min");
    assert_eq!(answer_of(&too_short, &rack.nodes[1].node)["code"], "shortest_period", "{too_short}");
}

fn only_the_collector_may_ask_for_a_job() {
    let rack = Rack::new();
    let demand =
        json!({"verb": "demand", "job": "x", "nodes": [rack.nodes[0].node], "plan": {"device.*": "1ms"}});
    for uid in [0, OWNER] {
        let of_agent = as_user((uid, uid), || rack.devices.ask(&demand));
        assert_eq!(of_agent["code"], "forbidden", "{of_agent}");
        let of_collector = rack.ask(uid, &demand);
        assert_eq!((&of_collector["code"], &of_collector["field"]), (&json!("invalid"), &json!("verb")));
    }
    // What agents report is for the collector alone.
    let time = as_user((OWNER, OWNER), || rack.devices.ask(&json!({"verb": "time"})));
    assert!(time["answer"] == "time" && time.get("serves").is_none(), "{time}");
    let node = json!({"verb": "set", "plan": {"device.*": "20ms"}});
    let answer = as_user((OWNER, OWNER), || rack.devices.ask(&node));
    assert_eq!(answer["code"], "forbidden", "{answer}");
    assert!(rack.is_off());
}
