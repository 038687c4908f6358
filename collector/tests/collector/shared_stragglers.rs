//! Jobs whose nodes send to several collectors of one store, of which one is slow: real programs and agents
//! that sample once a second, since the collectors exchange values while they happen.

use std::sync::Arc;
use std::time::Duration;

use polymeter_collector::clock::Clock;
use polymeter_proto::batch::{Job, Shape};
use polymeter_proto::wire::message::{ToAgent, ToCollector};
use polymeter_store::{JobPart, NodeSum, StragglerTable, WantedParts};
use rustix::process::Signal;

use crate::removal_plans::{LOG_PLANS, plans_since};
use crate::support::agent::{Agent, job, shape};
use crate::support::program::RunningCollector;
use crate::support::{Kind, TestEnvironment, now_us, wait_until};

polymeter_test_harness::tests![
    a_slow_node_is_found_across_collectors,
    timescaledb_lets_collectors_compare,
    a_slow_node_is_found_after_its_collector_was_killed,
    a_frozen_collector_does_not_fire_again,
    an_outage_of_the_database_is_no_straggler,
    one_collector_exchanges_nothing,
    the_exchange_of_100_jobs_uses_indexes,
];

const SECOND_US: i64 = 1_000_000;
const RULE: &str = "[[trigger]]\nname = \"slow\"\nwhen = \"straggler(cpu.usage)\"\n";

/// Time after which an agent leaves a collector that does not answer.
const MOVE_S: i64 = 15;

/// Time before which no node of a job fires, and some more.
const START_S: i64 = 72;

struct Node {
    agent: Agent,
    number: usize,
    collector: usize,
    shape: Arc<Shape>,
    job: Arc<Job>,
    counter: u64,
    /// Requests to keep an interval.
    kept: Vec<String>,
}

impl Node {
    fn sample(&mut self, at_s: i64, percent: u64) {
        // No two nodes are equal.
        self.counter += 480_000_000 * percent + u64::try_from(self.number).unwrap() * 1_000_000;
        let row = [Some(self.counter), Some(0), Some(1.0_f64.to_bits())];
        let time_us = self.job.descriptor.started_us + at_s * SECOND_US;
        let frame = self.agent.frame(&[(&self.shape, time_us, &row)], &[], &[]);
        self.agent.send(frame);
    }

    fn receive(&mut self) {
        while let Some(answer) = self.agent.receive(0) {
            let Some(ToAgent::Request { session, request, line, .. }) = self.agent.hear(answer) else {
                continue;
            };
            self.kept.push(line.as_str().to_owned());
            let line = r#"{"answer":"keeps","begin_us":0,"end_us":1,"samples":0}"#.try_into().unwrap();
            self.agent.send_bytes(&ToCollector::Answer { session, request, line }.encode());
        }
    }
}

/// A job whose nodes are divided among collectors.
struct Cluster {
    nodes: Vec<Node>,
    collectors: Vec<Option<RunningCollector>>,
    environment: TestEnvironment,
    clock: Clock,
    at_s: i64,
}

impl Cluster {
    fn new(kind: Kind, nodes: usize, collectors: usize) -> Self {
        let environment = TestEnvironment::new(kind);
        let config = environment.path("collector.toml");
        std::fs::write(&config, RULE).unwrap();
        let arguments = ["--config", config.to_str().unwrap()];
        let url = environment.server.as_ref().unwrap().url();
        let collectors: Vec<_> =
            (0..collectors).map(|_| Some(RunningCollector::start(&url, &arguments))).collect();
        let running = format!("SELECT count(*) = {} FROM collector", collectors.len());
        wait_until("all collectors know that they run", || environment.lines(&running) == ["t"]);
        let begin_us = now_us();
        let mut cluster = Self { nodes: Vec::new(), collectors, environment, clock: Clock::start(), at_s: 0 };
        for number in 0..nodes {
            let (name, job) = (format!("n{number}"), job(1, "7", begin_us));
            let session = u64::try_from(number).unwrap() + 1;
            let collector = number % cluster.collectors.len();
            let endpoint = &cluster.collectors[collector].as_ref().unwrap().endpoint;
            let agent = Agent::new(&cluster.environment.context, endpoint, &name, session);
            let shape = shape(1, Some(&job));
            cluster.nodes.push(Node { agent, number, collector, shape, job, counter: 0, kept: Vec::new() });
        }
        cluster
    }

    /// Samples for some seconds, as real agents do. A slow node has 85 % of the usual speed.
    fn run(&mut self, seconds: i64, slow: Option<usize>) {
        for _ in 0..seconds {
            self.at_s += 1;
            let due = Duration::from_secs(self.at_s.try_into().unwrap());
            loop {
                self.nodes.iter_mut().for_each(Node::receive);
                if self.clock.now().since_start >= due {
                    break;
                }
                std::thread::park_timeout(Duration::from_millis(20));
            }
            for node in &mut self.nodes {
                node.sample(self.at_s, if Some(node.number) == slow { 85 } else { 100 });
            }
        }
    }

    /// Lets the agents of a collector use the others.
    fn leave(&mut self, collector: usize) {
        let others: Vec<usize> = (0..self.collectors.len()).filter(|other| *other != collector).collect();
        for node in self.nodes.iter_mut().filter(|node| node.collector == collector) {
            node.collector = others[node.number % others.len()];
            let to = self.collectors[node.collector].as_ref().unwrap();
            node.agent.move_to(&self.environment.context, &to.endpoint);
            node.agent.send_from(0);
        }
    }

    fn signal(&self, collector: usize, signal: Signal) {
        self.collectors[collector].as_ref().unwrap().signal(signal);
    }

    /// Seconds from the begin of the job to each firing, as the store has it, with the node.
    fn firings(&self) -> Vec<String> {
        self.environment.lines("SELECT node || ' ' || rule FROM trigger_firing ORDER BY time")
    }

    /// Runs until the store has a firing. Returns the seconds that it took.
    fn run_until_found(&mut self, slow: usize, limit_s: i64) -> i64 {
        let begin_s = self.at_s;
        while self.firings().is_empty() {
            assert!(self.at_s - begin_s < limit_s, "not found after {limit_s} s");
            self.run(1, Some(slow));
        }
        assert_eq!(self.firings(), [format!("n{slow} slow")]);
        self.at_s - begin_s
    }

    /// Checks that there is one firing, and that all nodes were asked once to keep the same interval.
    fn check_kept(&mut self, slow: usize) {
        let asked = "SELECT count(*) FROM trigger_firing WHERE nodes_asked IS NOT NULL";
        wait_until("all nodes were asked", || {
            self.nodes.iter_mut().for_each(Node::receive);
            self.environment.number(asked) == 1
        });
        assert_eq!(self.firings(), [format!("n{slow} slow")]);
        let first = self.nodes[0].kept.clone();
        assert_eq!(first.len(), 1, "{first:?}");
        for node in &self.nodes {
            assert_eq!(node.kept, first, "n{}", node.number);
        }
        let claims = "SELECT node || ' ' || firings FROM straggler_firing";
        assert_eq!(self.environment.lines(claims), [format!("n{slow} 1")]);
    }

    /// Checks that the exchanged rows are few and short-lived, and found through indexes.
    fn check_exchange(&self) {
        let rows = self.environment.number("SELECT count(*) FROM straggler_part");
        // An interval of 5 s has one row of each collector; they stay for a minute and some seconds.
        let collectors = i64::try_from(self.collectors.len()).unwrap();
        assert!((3..=collectors * 16).contains(&rows), "{rows}");
        let nodes = self.environment.number(
            "SELECT count(DISTINCT node->>0) FROM straggler_part, json_array_elements(nodes::json) AS node",
        );
        assert_eq!(nodes, i64::try_from(self.nodes.len()).unwrap());
        let logged = "SELECT relpersistence::text FROM pg_class WHERE relname = 'straggler_part'";
        assert_eq!(self.environment.lines(logged), ["u"]);
    }

    fn end(self) {
        for collector in self.collectors.into_iter().flatten() {
            let lines = collector.stop();
            assert!(!lines.iter().any(|line| line.contains("stragglers of the store")), "{lines:?}");
        }
    }
}

fn a_slow_node_is_found_across_collectors() {
    find_across_collectors(Kind::Postgres);
}

fn timescaledb_lets_collectors_compare() {
    find_across_collectors(Kind::Timescale);
}

/// No collector has four nodes of the job.
fn find_across_collectors(kind: Kind) {
    let mut cluster = Cluster::new(kind, 6, 3);
    cluster.run(START_S, None);
    assert_eq!(cluster.firings(), [""; 0]);
    let after_s = cluster.run_until_found(4, 35);
    println!("found after {after_s} s");
    assert!(after_s <= 30, "{after_s} s");
    cluster.check_kept(4);
    cluster.check_exchange();
    // It recovers, and nothing fires.
    cluster.run(20, None);
    cluster.check_kept(4);
    cluster.end();
}

fn a_slow_node_is_found_after_its_collector_was_killed() {
    let mut cluster = Cluster::new(Kind::Postgres, 9, 3);
    cluster.run(START_S, None);
    cluster.run(5, Some(1));
    // The node's own collector.
    cluster.signal(1, Signal::KILL);
    cluster.run(MOVE_S, Some(1));
    assert_eq!(cluster.firings(), [""; 0], "its samples are missing");
    cluster.leave(1);
    drop(cluster.collectors[1].take());
    let after_s = cluster.run_until_found(1, 35);
    println!("found {after_s} s after the agents moved");
    assert!(after_s <= 30, "{after_s} s");
    cluster.check_kept(1);
    cluster.run(15, Some(1));
    assert_eq!(cluster.firings().len(), 1);
    cluster.end();
}

fn a_frozen_collector_does_not_fire_again() {
    let mut cluster = Cluster::new(Kind::Postgres, 9, 3);
    cluster.run(START_S, None);
    cluster.run(3, Some(0));
    cluster.signal(2, Signal::STOP);
    cluster.run(MOVE_S, Some(0));
    cluster.leave(2);
    cluster.run_until_found(0, 35 - MOVE_S);
    cluster.check_kept(0);
    cluster.signal(2, Signal::CONT);
    // It compares what it had, and its agents return.
    cluster.run(10, Some(0));
    cluster.leave(0);
    cluster.run(25, Some(0));
    cluster.check_kept(0);
    cluster.end();
}

fn an_outage_of_the_database_is_no_straggler() {
    let mut cluster = Cluster::new(Kind::Postgres, 9, 3);
    cluster.run(START_S, None);
    cluster.environment.server.as_mut().unwrap().crash();
    cluster.run(12, None);
    cluster.environment.server.as_mut().unwrap().resume();
    cluster.nodes.iter_mut().for_each(|node| node.agent.send_from(0));
    cluster.run(25, None);
    assert_eq!(cluster.firings(), [""; 0]);
    let after_s = cluster.run_until_found(5, 35);
    assert!(after_s <= 30, "{after_s} s");
    cluster.check_kept(5);
}

fn one_collector_exchanges_nothing() {
    let mut cluster = Cluster::new(Kind::Postgres, 6, 1);
    cluster.run(START_S, None);
    cluster.run_until_found(2, 30);
    cluster.check_kept(2);
    let written = "SELECT n_tup_ins::text FROM pg_stat_user_tables WHERE relname = 'straggler_part'";
    assert_eq!(cluster.environment.lines(written), ["0"]);
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%straggler_part%' AND pid <> pg_backend_pid()";
    assert_eq!(cluster.environment.number(sessions), 0);
    cluster.end();
}

/// A minute of exchanges of three collectors with 1,000 nodes in 100 jobs.
fn the_exchange_of_100_jobs_uses_indexes() {
    const JOBS: i64 = 100;
    const COLLECTORS: [&str; 3] = ["a", "b", "c"];
    let mut environment = TestEnvironment::new(Kind::Postgres);
    environment.collector().stop().unwrap();
    let server = environment.server.as_mut().unwrap();
    server.configure(LOG_PLANS);
    server.restart();
    let log = server.socket_directory().join("log");
    let begin = std::fs::read_to_string(&log).unwrap().len();
    let mut tables = COLLECTORS.map(|id| (id, StragglerTable::open(&environment.url()).unwrap()));
    let mut taken_us = Vec::new();
    for interval in 0..12 {
        let ended_us = 1_700_000_002_500_000 + interval * 5 * SECOND_US;
        let clock = Clock::start();
        for (number, (id, table)) in tables.iter_mut().enumerate() {
            let parts: Vec<JobPart> = (0..JOBS).map(|job_key| part(job_key, ended_us, number)).collect();
            table.exchange(id, &parts, &[]).unwrap();
        }
        for (id, table) in &mut tables {
            let metric = || "cpu.usage".to_owned();
            let wanted = |job_key| WantedParts { job_key, metric: metric(), ended_us, known: Vec::new() };
            let wanted: Vec<WantedParts> = (0..JOBS).map(wanted).collect();
            assert_eq!(table.exchange(id, &[], &wanted).unwrap().len(), 200);
        }
        taken_us.push(clock.now().since_start.as_micros());
    }
    taken_us.sort_unstable();
    println!("all exchanges of an interval took {} µs, at most {} µs", taken_us[6], taken_us[11]);
    assert!(taken_us[6] < 2_000_000, "{taken_us:?}");
    let size = environment.number("SELECT pg_total_relation_size('straggler_part') / 1024");
    println!("{} rows, {size} KiB", environment.number("SELECT count(*) FROM straggler_part"));
    let plans = plans_since(&log, begin);
    let plans: Vec<&String> = plans.iter().filter(|plan| plan.contains("straggler_part")).collect();
    for statement in ["INSERT INTO straggler_part", "DELETE FROM straggler_part", "JOIN straggler_part"] {
        let plan = plans.iter().rfind(|plan| plan.contains(statement)).unwrap();
        println!("{plan}");
    }
    assert!(plans.iter().any(|plan| plan.contains("straggler_part_pkey")));
    assert!(plans.iter().any(|plan| plan.contains("straggler_part_by_time")));
    assert!(!plans.iter().any(|plan| plan.contains("Seq Scan on straggler_part")));
}

/// Every third node of a job with ten.
fn part(job_key: i64, ended_us: i64, collector: usize) -> JobPart {
    let nodes = (collector..10).step_by(3).map(|number| NodeSum {
        node: format!("node{job_key:03}-{number}").as_str().try_into().unwrap(),
        amount: 2.399_837_261e11,
        weight: 5.0,
    });
    JobPart { job_key, metric: "cpu.usage".to_owned(), ended_us, nodes: nodes.collect() }
}
