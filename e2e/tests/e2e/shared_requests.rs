//! Requests about a job whose nodes use different collectors of one store.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Daemon, Plan, ask, collector_with};
use polymeter_e2e::fixture::{NEEDS, OTHER_USER, OWNER};
use polymeter_e2e::tests;
use polymeter_e2e::two_nodes::TrackedNode;
use polymeter_e2e::wattmeter::wattmeter;
use polymeter_e2e::workload::Sleeper;
use polymeter_e2e::{TestEnvironment, as_user, require, stored, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

tests![
    a_request_reaches_the_nodes_of_all_collectors,
    a_node_of_a_frozen_collector_receives_a_request_when_its_agent_moves,
    a_collector_that_is_frozen_in_a_transaction_delays_requests_for_seconds,
    a_request_outlives_the_collector_that_took_it,
    the_ring_of_an_ended_job_is_kept_through_any_collector,
    devices_of_another_collector_are_sampled_for_a_job,
];

struct Server {
    daemon: Daemon,
    endpoint: String,
    socket: PathBuf,
}

impl Server {
    fn start(env: &TestEnvironment, name: &str) -> Self {
        let socket = env.path(name);
        let more = format!("control_socket = \"{}\"\n", socket.display());
        let (daemon, endpoint) = collector_with(env, "tcp://127.0.0.1:*", &more);
        Self { daemon, endpoint, socket }
    }

    fn ask(&self, uid: u32, request: &Value) -> Value {
        as_user((uid, uid), || ask(&self.socket, &format!("{request}\n")))
    }

    /// How many of the job's nodes answer through this collector.
    fn reached(&self) -> usize {
        let answer = self.ask(0, &json!({"verb": "plan", "job": "x"}));
        let nodes = answer["nodes"].as_array().cloned().unwrap_or_default();
        nodes.iter().filter(|node| node["answer"]["answer"] == "plan").count()
    }
}

/// Two collectors of one store, and a job on two nodes: the agent of each prefers another collector.
struct Cluster {
    // Fields are dropped in this order: the daemons before the directory that they write to.
    nodes: [TrackedNode; 2],
    servers: [Option<Server>; 2],
    _sleepers: [Sleeper; 2],
    _cgroups: TestCgroups,
    env: TestEnvironment,
}

impl Cluster {
    /// Freezes a collector that holds no lock of the store.
    fn freeze_outside_of_transactions(&self, number: usize) {
        // Longer than the transactions of the other one.
        const IN_ONE: &str = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'
            AND xact_start < now() - interval '400 ms' AND pid <> pg_backend_pid()";
        wait_until("the collector is outside of transactions", || {
            self.server(number).daemon.signal(Signal::STOP);
            self.env.query("SELECT pg_sleep(0.8)");
            let is_outside = self.env.query(IN_ONE) == "0";
            if !is_outside {
                self.server(number).daemon.signal(Signal::CONT);
            }
            is_outside
        });
    }

    fn new() -> Self {
        Self::with("")
    }

    /// Starts it with further tables of the agents.
    fn with(tables: &str) -> Self {
        require(&NEEDS);
        let (env, cgroups) = (TestEnvironment::best_postgres(), TestCgroups::new());
        fs::set_permissions(env.path(""), PermissionsExt::from_mode(0o755)).unwrap();
        let servers = ["first.sock", "second.sock"].map(|name| Server::start(&env, name));
        let endpoints = servers.each_ref().map(|server| server.endpoint.clone());
        let sleepers = [Sleeper::start(), Sleeper::start()];
        let nodes = [0, 1].map(|number| {
            let job = cgroups.job(&format!("x{number}"));
            job.enter(sleepers[number].pid());
            let order = format!("[{:?}, {:?}]", endpoints[number], endpoints[1 - number]);
            TrackedNode::start(TestEnvironment::new(), &order, job, tables)
        });
        let servers = servers.map(Some);
        let cluster = Self { nodes, servers, _sleepers: sleepers, _cgroups: cgroups, env };
        for number in 0..2 {
            wait_until("each collector reaches both nodes", || cluster.server(number).reached() == 2);
        }
        cluster
    }

    fn server(&self, number: usize) -> &Server {
        self.servers[number].as_ref().unwrap()
    }

    fn answer_of<'a>(&self, answer: &'a Value, number: usize) -> &'a Value {
        let nodes = answer["nodes"].as_array().unwrap_or_else(|| panic!("{answer}"));
        let name = self.nodes[number].name();
        &nodes.iter().find(|node| node["node"] == name).unwrap_or_else(|| panic!("{answer}"))["answer"]
    }

    fn both_have(&self, period: &str, cause: &str) -> bool {
        self.nodes.iter().all(|node| node.is("cpu.usage", period, cause))
    }

    /// Returns the time at which each node changed the period of `cpu.usage` to `period_us`, in microseconds
    /// since the epoch.
    fn changes(&self, period_us: i64) -> Vec<(String, i64)> {
        let mut reader = self.env.reader();
        let Some(job) = stored::job(&mut reader, "x") else { return Vec::new() };
        let mut changes = reader.plan_changes(job.job_key).unwrap();
        changes.retain(|change| change.metric == "cpu.usage" && change.new_period_us == Some(period_us));
        changes.into_iter().map(|change| (change.node, change.time_ns / 1000)).collect()
    }

    /// Checks that each node has a lease with this period, that they end at one time, and that the period
    /// changed once on each.
    fn check_leases(&self, period: &str, period_us: i64) {
        let ends = self.nodes.each_ref().map(|node| {
            let (in_force, cause, until_us) = node.in_force("cpu.usage").unwrap();
            assert_eq!((in_force.as_str(), cause.as_str()), (period, "lease"));
            until_us.unwrap()
        });
        assert!(ends[0].abs_diff(ends[1]) < 1_000_000, "the leases end at one time: {ends:?}");
        wait_until("the store knows both changes", || self.changes(period_us).len() >= 2);
        assert_eq!(self.changes(period_us).len(), 2, "no request is executed twice");
    }

    fn end(self) {
        for node in &self.nodes {
            assert_eq!(node.agent.ask(&json!({"verb": "unregister", "job": "x"}))["answer"], "done");
        }
        stored::wait_for_end(&self.env, "x");
        for node in self.nodes {
            node.agent.daemon.terminate();
        }
        for server in self.servers.into_iter().flatten() {
            server.daemon.terminate();
        }
    }
}

fn set(period: &str) -> Value {
    json!({"verb": "set", "job": "x", "plan": {"cpu.usage": period}, "for": "10min"})
}

fn a_request_reaches_the_nodes_of_all_collectors() {
    let cluster = Cluster::new();
    let answer = cluster.server(0).ask(OWNER, &set("5ms"));
    for number in 0..2 {
        assert_eq!(cluster.answer_of(&answer, number)["answer"], "granted", "{answer}");
    }
    assert!(cluster.both_have("5ms", "lease"));
    cluster.check_leases("5ms", 5_000);
    let at_us = answer["at_us"].as_i64().unwrap();
    for (node, changed_us) in cluster.changes(5_000) {
        assert!(changed_us >= at_us, "{node} changed too early");
        println!("{node} changed {} µs after the time that was set", changed_us - at_us);
    }

    for number in 0..2 {
        let refused = cluster.server(number).ask(OTHER_USER, &set("10ms"));
        assert_eq!(refused["code"], "unknown_job", "{refused}");
    }
    // Marks are no leases: each node executes one once.
    let marked = cluster.server(1).ask(OWNER, &json!({"verb": "mark", "job": "x", "name": "here"}));
    for number in 0..2 {
        assert_eq!(cluster.answer_of(&marked, number)["answer"], "done", "{marked}");
    }
    let marks = "SELECT count(*) || ' of ' || count(DISTINCT node) FROM mark WHERE name = 'here'";
    wait_until("both marks are stored", || cluster.env.query(marks) == "2 of 2");

    let reset = cluster.server(1).ask(OWNER, &json!({"verb": "reset", "job": "x"}));
    for number in 0..2 {
        assert_eq!(cluster.answer_of(&reset, number)["ended"], 1, "{reset}");
    }
    assert!(cluster.both_have("500ms", "baseline"));
    let waiting = "SELECT count(*) FROM control_answer WHERE answer IS NOT NULL";
    wait_until("the texts of answers are removed", || cluster.env.query(waiting) == "0");
    cluster.end();
}

fn a_node_of_a_frozen_collector_receives_a_request_when_its_agent_moves() {
    let cluster = Cluster::new();
    cluster.freeze_outside_of_transactions(1);
    let answer = cluster.server(0).ask(OWNER, &set("5ms"));
    assert_eq!(cluster.answer_of(&answer, 0)["answer"], "granted", "{answer}");
    assert_eq!(*cluster.answer_of(&answer, 1), Value::Null, "{answer}");
    wait_until("the agent has moved", || cluster.both_have("5ms", "lease"));
    cluster.check_leases("5ms", 5_000);
    // The request that waits in the frozen collector is not executed again.
    cluster.server(1).daemon.signal(Signal::CONT);
    let answer = cluster.server(0).ask(OWNER, &json!({"verb": "reset", "job": "x"}));
    for number in 0..2 {
        assert_eq!(cluster.answer_of(&answer, number)["ended"], 1, "{answer}");
    }
    wait_until("the other collector runs again", || cluster.server(1).reached() == 2);
    assert!(cluster.both_have("500ms", "baseline"));
    assert_eq!(cluster.changes(5_000).len(), 2);
    cluster.end();
}

fn a_collector_that_is_frozen_in_a_transaction_delays_requests_for_seconds() {
    /// Lets no answers be stored until a table exists.
    const HOLD: &str = "BEGIN; LOCK TABLE control_answer IN SHARE MODE;
        DO $$ BEGIN
            FOR round IN 1..6000 LOOP
                EXIT WHEN EXISTS (SELECT FROM pg_class WHERE relname = 'released');
                PERFORM pg_sleep(0.01);
            END LOOP;
        END $$; COMMIT";
    const HELD: &str = "SELECT EXISTS (SELECT FROM pg_locks
        WHERE granted AND relation = 'control_answer'::regclass AND mode = 'ShareLock')";
    const WAITS: &str = "SELECT EXISTS (SELECT FROM pg_locks AS waiting JOIN pg_locks AS held USING (pid)
        WHERE NOT waiting.granted AND waiting.relation = 'control_answer'::regclass
            AND held.granted AND held.relation = 'control_request'::regclass
            AND held.mode = 'ShareRowExclusiveLock')";
    let cluster = Cluster::new();
    // The removal of earlier requests would wait for the table, and the request for the removal.
    let requests = "SELECT count(*) FROM control_request";
    wait_until("earlier requests are removed", || cluster.env.query(requests) == "0");
    std::thread::scope(|scope| {
        scope.spawn(|| cluster.env.query(HOLD));
        wait_until("no answers can be stored", || cluster.env.query(HELD) == "t");
        scope.spawn(|| cluster.server(1).ask(0, &json!({"verb": "plan", "job": "x"})));
        wait_until("a request holds the lock of the requests", || cluster.env.query(WAITS) == "t");
        cluster.server(1).daemon.signal(Signal::STOP);
        cluster.env.query("CREATE TABLE public.released ()");
        cluster.server(0).ask(OWNER, &set("5ms"));
        wait_until("both agents have the request", || cluster.both_have("5ms", "lease"));
        cluster.check_leases("5ms", 5_000);
        cluster.server(1).daemon.signal(Signal::CONT);
    });
    wait_until("the other collector runs again", || cluster.server(1).reached() == 2);
    cluster.end();
}

fn a_request_outlives_the_collector_that_took_it() {
    let mut cluster = Cluster::new();
    let mut user = UnixStream::connect(&cluster.server(0).socket).unwrap();
    writeln!(user, "{}", set("5ms")).unwrap();
    wait_until("the request is stored", || {
        cluster.env.query("SELECT count(*) FROM control_request WHERE is_lasting") == "1"
    });
    cluster.servers[0].take().unwrap().daemon.kill();
    wait_until("both nodes have executed it", || cluster.both_have("5ms", "lease"));
    cluster.check_leases("5ms", 5_000);
    wait_until("the other collector reaches both nodes", || cluster.server(1).reached() == 2);
    // The request was root's.
    let reset = cluster.server(1).ask(0, &json!({"verb": "reset", "job": "x"}));
    for number in 0..2 {
        assert_eq!(cluster.answer_of(&reset, number)["ended"], 1, "{reset}");
    }
    cluster.end();
}

fn the_ring_of_an_ended_job_is_kept_through_any_collector() {
    let cluster = Cluster::with("[hindsight.metrics]\n\"pids.current\" = \"20ms\"\n");
    polymeter_e2e::pause(1500);
    for node in &cluster.nodes {
        assert_eq!(node.agent.ask(&json!({"verb": "unregister", "job": "x"}))["answer"], "done");
    }
    stored::wait_for_end(&cluster.env, "x");
    for number in 0..2 {
        let keep =
            json!({"verb": "keep_last", "job": "x", "last": "20s", "reason": format!("through {number}")});
        let refused = cluster.server(number).ask(OTHER_USER, &keep);
        assert_eq!(refused["code"], "unknown_job", "{refused}");
        let kept = cluster.server(number).ask(OWNER, &keep);
        for node in 0..2 {
            assert_eq!(cluster.answer_of(&kept, node)["answer"], "keeps", "{kept}");
        }
    }
    let intervals = "SELECT string_agg(DISTINCT reason, ',') || ' on ' || count(DISTINCT node) || ': ' || count(*) FROM kept_interval";
    wait_until("both nodes have kept both", || cluster.env.query(intervals) == "through 0,through 1 on 2: 4");
    for node in cluster.nodes {
        node.agent.daemon.terminate();
    }
    for server in cluster.servers.into_iter().flatten() {
        server.daemon.terminate();
    }
}

/// The agent of a wattmeter uses the first collector, and that of the node that it serves the second one.
fn devices_of_another_collector_are_sampled_for_a_job() {
    let cluster = Cluster::new();
    let rack = TestEnvironment::new();
    let meter = wattmeter(&[cluster.nodes[1].name()]);
    let tables = format!(
        "[[device]]\nname = \"meter\"\nurl = \"tcp://{meter}\"\ntimeout = \"30s\"\nmetric = [{{ name = \"power\", \
         address = \"*\", label = \"node\", unit = \"watts\", period = \"off\" }}]\n"
    );
    let plan =
        Plan { collector: &cluster.server(0).endpoint, jobs: &[], baseline: &[("agent.cpu.time", "1s")] };
    let devices = Agent::start_with(&rack, &plan, "", &tables);
    let period = || {
        let plan = devices.ask(&json!({"verb": "plan"}));
        let lines = plan["plan"].as_array().cloned().unwrap_or_default();
        let line = lines.into_iter().find(|line| line["metric"] == "device.meter.power");
        line.and_then(|line| Some(line["period"].as_str()?.to_owned()))
    };
    assert_eq!(period(), None);
    let set = json!({"verb": "set", "job": "x", "plan": {"device.*": "20ms"}, "for": "10min"});
    let answer = cluster.server(1).ask(OWNER, &set);
    assert_eq!(cluster.answer_of(&answer, 1)["answer"], "granted", "{answer}");
    wait_until("the devices of the first collector are sampled", || period().as_deref() == Some("20ms"));
    cluster.server(1).ask(OWNER, &json!({"verb": "reset", "job": "x"}));
    wait_until("the reset ends it", || period().is_none());
    devices.daemon.terminate();
    cluster.end();
}
