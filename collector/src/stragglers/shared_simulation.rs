//! A job whose nodes send to several collectors, simulated: collectors are killed and frozen, nodes move, and
//! clocks differ.

#![expect(clippy::cast_precision_loss, reason = "the numbers are small")]

use std::collections::VecDeque;
use std::sync::Arc;

use polymeter_proto::series::MetricDescriptor;
use polymeter_store::NodeSum;
use polymeter_store::accepted::JobRecord;

use super::comparison::{Comparison, NodeSamples, Scratch};
use super::simulation::{BEGIN_US, Cluster, FULL, Random, SECOND_US, cpu_usage, job_on, rule};

/// Time after which the agents of a collector that does not answer use another one.
const MOVE_S: i64 = 15;

/// Time between a sample and its commit.
const COMMIT_S: i64 = 1;

const HOLD_OFF_US: i64 = 60 * SECOND_US;

struct Node {
    job: Arc<JobRecord>,
    counter: f64,
    lasting: f64,
    collector: usize,
    /// Samples without an acknowledgement.
    outbox: Vec<(i64, f64)>,
}

struct Collector {
    comparison: Comparison,
    /// Time from which it works; the end of time if it was killed.
    works_s: i64,
    /// Time at which it ceased to answer.
    away_s: i64,
    ahead_us: i64,
}

/// Part that the store has, with the time since which others find it.
struct Stored {
    visible_s: i64,
    collector: usize,
    number: i64,
    nodes: Vec<NodeSum>,
}

struct Job {
    random: Random,
    nodes: Vec<Node>,
    collectors: Vec<Collector>,
    stored: VecDeque<Stored>,
    /// Time and node of each firing.
    fired: Vec<(i64, String)>,
    fired_us: Option<i64>,
    metric: MetricDescriptor,
    scratch: Scratch,
    period_s: i64,
    at_s: i64,
    /// The database does not answer until then.
    outage_until_s: i64,
}

impl Job {
    fn new(nodes: usize, collectors: usize, period_s: i64, seed: u64) -> Self {
        let mut random = Random(seed);
        let nodes = (0..nodes).map(|number| Node {
            job: job_on(&format!("n{number}"), 1),
            counter: 0.0,
            lasting: 0.007 * random.normal(),
            collector: number % collectors,
            outbox: Vec::new(),
        });
        let nodes = nodes.collect();
        let collectors = (0..collectors).map(|_| Collector {
            comparison: Comparison::new(rule("straggler(cpu.usage)")),
            works_s: 0,
            away_s: i64::MAX,
            ahead_us: 0,
        });
        Self {
            random,
            nodes,
            collectors: collectors.collect(),
            stored: VecDeque::new(),
            fired: Vec::new(),
            fired_us: None,
            metric: cpu_usage(),
            scratch: Scratch::new(),
            period_s,
            at_s: 0,
            outage_until_s: 0,
        }
    }

    fn kill(&mut self, number: usize) {
        self.freeze_until(number, i64::MAX);
    }

    fn freeze_until(&mut self, number: usize, until_s: i64) {
        let collector = &mut self.collectors[number];
        (collector.works_s, collector.away_s) = (until_s, self.at_s);
    }

    /// Simulates some seconds. `part` is the speed of a node at a time, as a part of the usual one.
    fn run(&mut self, seconds: i64, part: impl Fn(usize, f64) -> f64) {
        for _ in 0..seconds {
            self.at_s += 1;
            for collector in &mut self.collectors {
                if collector.works_s <= self.at_s {
                    collector.away_s = i64::MAX;
                }
            }
            if self.at_s % self.period_s == 0 {
                self.sample(&part);
            }
            self.deliver();
            for number in 0..self.collectors.len() {
                self.turn(number);
            }
        }
    }

    fn sample(&mut self, part: impl Fn(usize, f64) -> f64) {
        let period = self.period_s as f64;
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let noise = 0.02 / period.sqrt() * self.random.normal();
            // The mean over the period.
            let slowed = (1..=10)
                .map(|tenth| part(number, self.at_s as f64 - period * (1.0 - f64::from(tenth) / 10.0)));
            let speed = Cluster::phase(self.at_s) * (1.0 + node.lasting + noise) * slowed.sum::<f64>() / 10.0;
            node.counter += FULL * speed * period;
            let time_us = BEGIN_US + self.at_s * SECOND_US + (self.random.next() % 2000).cast_signed();
            node.outbox.push((time_us, node.counter));
        }
    }

    fn deliver(&mut self) {
        if self.at_s < self.outage_until_s {
            return;
        }
        let working: Vec<usize> = (0..self.collectors.len())
            .filter(|number| self.collectors[*number].works_s <= self.at_s)
            .collect();
        for node in &mut self.nodes {
            let away_s = self.collectors[node.collector].away_s;
            if away_s.saturating_add(MOVE_S) <= self.at_s {
                let other = usize::try_from(self.random.next()).unwrap() % working.len();
                node.collector = working[other];
            }
            let collector = &mut self.collectors[node.collector];
            let due_us = BEGIN_US + (self.at_s - COMMIT_S) * SECOND_US + 2000;
            if collector.works_s > self.at_s
                || node.outbox.first().is_none_or(|(time_us, _)| *time_us > due_us)
            {
                continue;
            }
            let received_us = BEGIN_US + self.at_s * SECOND_US + collector.ahead_us;
            let of = NodeSamples { job: &node.job, metric: &self.metric, received_us };
            let samples = std::mem::take(&mut node.outbox).into_iter();
            let samples: Vec<(i64, f64)> =
                samples.map(|(time_us, value)| (time_us + collector.ahead_us, value)).collect();
            let mut found = Vec::new();
            assert!(collector.comparison.samples(of, &samples, true, (&mut self.scratch, &mut found)));
            found.extend(collector.comparison.compare_due(&mut self.scratch));
            for found in found {
                claim(Some(found), self.at_s, &mut self.fired_us, &mut self.fired);
            }
        }
    }

    /// One exchange of a collector. What it stores is found by others in their next turns.
    fn turn(&mut self, number: usize) {
        let collector = &mut self.collectors[number];
        if collector.works_s > self.at_s || self.at_s < self.outage_until_s {
            return;
        }
        let now_us = BEGIN_US + self.at_s * SECOND_US + collector.ahead_us;
        for (interval, nodes) in collector.comparison.take_shared(now_us) {
            let visible_s = self.at_s + 1;
            self.stored.push_back(Stored { visible_s, collector: number, number: interval, nodes });
        }
        for (interval, known) in collector.comparison.wanted(now_us) {
            for part in &self.stored {
                let id = part.collector.to_string();
                if part.number == interval
                    && part.collector != number
                    && part.visible_s <= self.at_s
                    && !known.contains(&id)
                {
                    assert_eq!(collector.comparison.add_part(&id, interval, &part.nodes, 10_000), 0);
                    let found = collector.comparison.compare_due(&mut self.scratch);
                    claim(found, self.at_s, &mut self.fired_us, &mut self.fired);
                }
            }
        }
        while self.stored.front().is_some_and(|part| part.visible_s < self.at_s - 60) {
            self.stored.pop_front();
        }
    }

    fn names(&self) -> Vec<&str> {
        self.fired.iter().map(|(_, node)| node.as_str()).collect()
    }
}

/// Fires as the store lets it: once within the hold-off.
fn claim(
    found: Option<super::Straggler>,
    at_s: i64,
    fired_us: &mut Option<i64>,
    fired: &mut Vec<(i64, String)>,
) {
    let Some(found) = found else { return };
    if fired_us.is_none_or(|last_us| (found.at_us - last_us).abs() >= HOLD_OFF_US) {
        *fired_us = Some(found.at_us);
        fired.push((at_s, found.node.to_string()));
    }
}

fn as_usual(_: usize, _: f64) -> f64 {
    1.0
}

fn slower(slow: usize, since_s: f64, part: f64) -> impl Fn(usize, f64) -> f64 {
    move |node, at_s| if node == slow && at_s > since_s { part } else { 1.0 }
}

#[test]
fn a_slow_node_among_1000_of_three_collectors_is_found_once_within_30_s() {
    for (period_s, onset_s) in [(1, 120.0), (1, 123.3), (5, 120.0), (5, 122.6), (5, 124.0)] {
        let mut job = Job::new(1000, 3, period_s, 5);
        // Their clocks differ.
        job.collectors[1].ahead_us = 30_000;
        job.collectors[2].ahead_us = -200_000;
        job.run(280, slower(17, onset_s, 0.9));
        let [(at_s, node)] = job.fired.as_slice() else { panic!("{:?}", job.fired) };
        assert_eq!(node, "n17");
        let after_s = *at_s as f64 - onset_s;
        assert!((0.0..30.0).contains(&after_s), "{period_s} s, {onset_s}: {after_s} s");
    }
}

/// No collector has four nodes.
#[test]
fn nodes_of_a_small_job_are_compared_across_collectors() {
    for (period_s, collectors) in [(1, 3), (5, 3), (30, 3), (60, 3), (30, 1), (60, 1)] {
        let mut job = Job::new(6, collectors, period_s, 7);
        // Not at the border of two phases of the program.
        job.run(1800, slower(3, 1200.0, 0.6));
        assert_eq!(job.names(), ["n3"], "{period_s}");
        let limit_s = 1200 + (4 * period_s).max(30);
        assert!(job.fired[0].0 <= limit_s + COMMIT_S, "{period_s}, {collectors}: {:?}", job.fired);
    }
}

#[test]
fn a_killed_collector_delays_by_the_move_of_its_agents() {
    for (killed, slow) in [(0, 0), (1, 0), (2, 0)] {
        for kill_s in [110, 121, 128, 135, 141] {
            let mut job = Job::new(300, 3, 1, 11);
            job.run(kill_s, slower(slow, 120.0, 0.9));
            job.kill(killed);
            job.run(120, slower(slow, 120.0, 0.9));
            let [(at_s, node)] = job.fired.as_slice() else { panic!("{killed}, {kill_s}: {:?}", job.fired) };
            assert_eq!(node, "n0");
            let limit_s = if killed == 0 { (kill_s + MOVE_S + 30).max(150) } else { 155 };
            assert!(*at_s <= limit_s, "{killed} killed at {kill_s} s: {at_s} s");
        }
    }
}

/// The owner of nothing: it finds later what others found, and does not fire again.
#[test]
fn a_frozen_collector_fires_nothing_when_it_continues() {
    for until_s in [125, 140, 160, 200] {
        let mut job = Job::new(300, 3, 1, 13);
        job.run(118, as_usual);
        job.freeze_until(1, until_s);
        job.run(200, slower(0, 120.0, 0.9));
        assert_eq!(job.names(), ["n0"], "{until_s}");
        assert!(job.fired[0].0 <= 155, "{:?}", job.fired);
    }
}

#[test]
fn an_outage_of_the_database_is_no_straggler() {
    let mut job = Job::new(100, 3, 1, 17);
    job.run(200, as_usual);
    job.outage_until_s = 260;
    job.run(300, as_usual);
    assert_eq!(job.names(), [""; 0]);
    job.outage_until_s = 520;
    job.run(120, slower(4, 510.0, 0.8));
    assert_eq!(job.names(), ["n4"]);
}

/// Collectors are killed and frozen, and return without what they knew; nodes move between them.
#[test]
fn equal_nodes_are_no_stragglers_while_collectors_come_and_go() {
    let seeds = if std::env::var_os("POLYMETER_SEEDS").is_some() { 100 } else { 4 };
    for seed in 0..seeds {
        let period_s = [1, 5][usize::try_from(seed % 2).unwrap()];
        let mut job = Job::new(4 + usize::try_from(seed % 7).unwrap() * 10, 3, period_s, seed);
        for round in 0..40 {
            let victim = usize::try_from(job.random.next() % 3).unwrap();
            let until_s = job.at_s + 5 + (job.random.next() % 40).cast_signed();
            job.freeze_until(victim, until_s);
            if job.random.uniform() < 0.5 {
                job.collectors[victim].comparison = Comparison::new(rule("straggler(cpu.usage)"));
            }
            job.run(45, as_usual);
            for _ in 0..4 {
                let moved = usize::try_from(job.random.next()).unwrap() % job.nodes.len();
                job.nodes[moved].collector = usize::try_from(job.random.next() % 3).unwrap();
            }
            job.run(45, as_usual);
            assert_eq!(job.names(), [""; 0], "seed {seed}, round {round}");
        }
    }
}
