//! A job on many nodes, simulated: no false alarm in its normal variation, and a slow node is found in time.

#![expect(clippy::cast_precision_loss, reason = "the numbers are small")]

use std::sync::Arc;

use polymeter_proto::name::MetricName;
use polymeter_proto::series::{
    JobDescriptor, JobHandle, Kind, MetricDescriptor, Number, SessionDescriptor, SessionId, Unit,
};
use polymeter_proto::trigger::{RuleFields, StragglerRule};
use polymeter_store::accepted::{JobRecord, SessionRecord, StoreId};

use super::Straggler;
use super::comparison::{Comparison, NodeSamples, Scratch};

pub(super) const SECOND_US: i64 = 1_000_000;

/// CPU time of a node that computes on 48 CPUs, in nanoseconds a second.
pub(super) const FULL: f64 = 48e9;

/// A multiple of all periods.
pub(super) const BEGIN_US: i64 = 1_700_000_000 * SECOND_US;

pub(super) fn rule(when: &str) -> Arc<StragglerRule> {
    let (name, when) = ("slow".to_owned(), when.to_owned());
    let fields = RuleFields { name, when, firings: Some(1000), ..RuleFields::default() };
    Arc::new(StragglerRule::parse(&fields).unwrap())
}

pub(super) fn job_on(node: &str, job_key: i64) -> Arc<JobRecord> {
    let descriptor = SessionDescriptor {
        node: node.try_into().unwrap(),
        agent_version: "1".try_into().unwrap(),
        started_us: 0,
        processors: Default::default(),
    };
    let key = StoreId::none();
    key.assign(job_key);
    Arc::new(JobRecord {
        session: Arc::new(SessionRecord { id: SessionId(1), descriptor }),
        handle: JobHandle(1),
        descriptor: JobDescriptor {
            job_id: "42".try_into().unwrap(),
            cluster: None,
            owner_uid: None,
            owner: None,
            started_us: 0,
        },
        key,
    })
}

pub(super) fn cpu_usage() -> MetricDescriptor {
    MetricDescriptor {
        name: MetricName::new("cpu.usage").unwrap(),
        unit: Unit::Nanoseconds,
        kind: Kind::Counter,
        number: Number::Unsigned,
    }
}

/// SplitMix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    pub(super) fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

struct Node {
    job: Arc<JobRecord>,
    counter: f64,
    /// Lasting difference from the others, as a part of the speed.
    lasting: f64,
    /// Difference that changes within minutes.
    slow: f64,
    /// Seconds by which it enters a phase later.
    skew_s: i64,
    /// Seconds until which no sample arrives.
    silent_until_s: i64,
}

pub(super) struct Cluster {
    random: Random,
    nodes: Vec<Node>,
    comparison: Comparison,
    scratch: Scratch,
    metric: MetricDescriptor,
    period_s: i64,
}

impl Cluster {
    fn new(nodes: usize, period_s: i64, seed: u64) -> Self {
        let mut random = Random(seed);
        let nodes = (0..nodes).map(|number| Node {
            job: job_on(&format!("n{number}"), 1),
            counter: 0.0,
            lasting: 0.007 * random.normal(),
            slow: 0.007 * random.normal(),
            skew_s: i64::try_from(number % 5).unwrap(),
            silent_until_s: 0,
        });
        Self {
            nodes: nodes.collect(),
            random,
            comparison: Comparison::new(rule("straggler(cpu.usage)")),
            scratch: Scratch::new(),
            metric: cpu_usage(),
            period_s,
        }
    }

    /// Part of the full speed that the program has at a time: phases of input and output, a drift of the
    /// whole job within a day, and outages of the file system in which all nodes wait.
    pub(super) fn phase(at_s: i64) -> f64 {
        let drift = 1.0 - 0.1 * (at_s as f64 / 86_400.0);
        match (at_s % 28_800, at_s % 600) {
            (20_000..20_030, _) => 0.01,
            (_, 480..) => 0.3 * drift,
            _ => drift,
        }
    }

    /// Simulates one period. `slowed` is the number of a node, the time since which it is slower, and its
    /// part of the usual speed.
    fn step(&mut self, at_s: i64, slowed: Option<(usize, f64, f64)>) -> Option<Straggler> {
        let mut found = None;
        let (random, period_s) = (&mut self.random, self.period_s);
        let period = period_s as f64;
        let keeps = (-period / 600.0).exp();
        let renewed = 0.007 * (1.0 - keeps * keeps).sqrt();
        for (number, node) in self.nodes.iter_mut().enumerate() {
            node.slow = keeps * node.slow + renewed * random.normal();
            let noise = 0.02 / period.sqrt() * random.normal();
            // The system takes CPU time from a node for a few seconds.
            let jitter = if random.next() % 2000 == 0 { 0.8 } else { 1.0 };
            let mut speed =
                Self::phase(at_s - node.skew_s) * (1.0 + node.lasting + node.slow + noise) * jitter;
            if let Some((_, since_s, part)) = slowed.filter(|(slow, ..)| *slow == number) {
                let affected = ((at_s as f64 - since_s) / period).clamp(0.0, 1.0);
                speed *= 1.0 - affected * (1.0 - part);
            }
            node.counter += FULL * speed * period;
            if random.next() % (40_000 / period_s.cast_unsigned()) == 0 {
                node.silent_until_s = at_s + 30;
            }
            if at_s < node.silent_until_s {
                continue;
            }
            let time_us = BEGIN_US + at_s * SECOND_US + (random.next() % 2000).cast_signed();
            let of = NodeSamples { job: &node.job, metric: &self.metric, received_us: time_us + SECOND_US };
            let mut forced = Vec::new();
            let samples = [(time_us, node.counter)];
            assert!(self.comparison.samples(of, &samples, true, (&mut self.scratch, &mut forced)));
            found = self.comparison.compare_due(&mut self.scratch).or(forced.pop()).or(found);
        }
        found
    }
}

/// Simulates a job, which must have no straggler.
fn run_normally(nodes: usize, period_s: i64, seconds: i64, seed: u64) {
    let mut cluster = Cluster::new(nodes, period_s, seed);
    let mut at_s = 0;
    while at_s < seconds {
        at_s += period_s;
        let found = cluster.step(at_s, None);
        assert!(found.is_none(), "{nodes} nodes, seed {seed}, {at_s} s: {found:?}");
    }
}

/// A simulated day takes long with short periods: `POLYMETER_SEEDS`, as in the tests that take long, asks
/// for it.
fn is_long() -> bool {
    std::env::var_os("POLYMETER_SEEDS").is_some()
}

#[test]
fn normal_variation_of_1000_nodes_is_no_straggler() {
    if is_long() {
        (0..5).for_each(|seed| run_normally(1000, 5, 86_400, seed));
        run_normally(1000, 1, 3_600, 6);
    }
    run_normally(1000, 60, 86_400, 7);
    run_normally(1000, 5, 1_200, 8);
}

#[test]
fn normal_variation_of_small_jobs_is_no_straggler() {
    let seeds = if is_long() { 200 } else { 2 };
    for seed in 0..seeds {
        run_normally(4 + usize::try_from(seed % 12).unwrap(), 5, 86_400, seed);
    }
}

#[test]
fn a_node_that_is_10_percent_slower_is_found_within_30_s() {
    for period_s in [1, 5] {
        for onset in (0..10).step_by(if is_long() { 1 } else { 3 }) {
            let mut cluster = Cluster::new(1000, period_s, 100 + onset);
            // Within one phase of the program.
            let since_s = 120.0 + onset as f64 * 0.5;
            let slowed = Some((17, since_s, 0.9));
            let mut found = None;
            let mut at_s = 0;
            while found.is_none() && at_s < 200 {
                at_s += period_s;
                found = cluster.step(at_s, slowed);
            }
            let found = found.unwrap();
            let after_s = at_s as f64 - since_s;
            assert_eq!(found.node.as_str(), "n17");
            assert!((0.0..29.0).contains(&after_s), "{period_s} s, {since_s}: {after_s} s: {found:?}");
        }
    }
}
