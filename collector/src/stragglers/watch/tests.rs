#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the numbers are small"
)]

use std::collections::HashSet;

use polymeter_proto::series::{Labels, MetricDescriptor};
use polymeter_store::NodeSum;
use polymeter_store::accepted::{JobRecord, LedgerLine, StoreId};
use proptest::prelude::*;

use super::super::simulation::{cpu_usage, job_on, rule};
use super::*;

const SECOND_US: i64 = 1_000_000;
const BEGIN_US: i64 = 1_700_000_000 * SECOND_US;
const PERIOD_S: i64 = 5;

/// Nodes of a job, with the records that frames share.
struct Nodes {
    jobs: Vec<Arc<JobRecord>>,
    counters: Vec<f64>,
    watch: Watch,
    at_s: i64,
}

fn frame(job: &Arc<JobRecord>, metric: MetricDescriptor, samples: &[(i64, f64)]) -> Accepted {
    let received_us = samples.iter().map(|(time_us, _)| time_us + SECOND_US).max().unwrap_or_default();
    let session = Arc::clone(&job.session);
    let mut frame = Accepted::empty(Arc::clone(&session), 1, received_us);
    let values = samples.iter().map(|(_, value)| *value as u64).collect();
    let series = SeriesRecord {
        session: Arc::clone(&session),
        metric: Arc::new(metric.clone()),
        job: Some(Arc::clone(job)),
        labels: Arc::new(Labels::default()),
        id: StoreId::none(),
    };
    let (source, id) = ("s".try_into().unwrap(), StoreId::none());
    frame.samples.push(SampleBlock {
        line: Arc::new(LedgerLine { session, job: Some(Arc::clone(job)), source, id }),
        series: vec![Arc::new(series)],
        times_us: samples.iter().map(|(time_us, _)| *time_us).collect(),
        values,
        windows: None,
    });
    frame
}

impl Nodes {
    fn new(count: usize, when: &str) -> Self {
        let rules = vec![StragglerRule::clone(&rule(when))];
        Self {
            jobs: (0..count).map(|number| job_on(&format!("n{number}"), 1)).collect(),
            counters: vec![0.0; count],
            watch: Watch::new(rules, 1000),
            at_s: 0,
        }
    }

    /// Runs for `seconds`, at the speeds that a node has at a time; none for no sample. Returns the time and
    /// the node of each firing.
    fn run(&mut self, seconds: i64, speed: impl Fn(usize, i64) -> Option<f64>) -> Vec<(i64, String)> {
        let mut found = Vec::new();
        for _ in 0..seconds / PERIOD_S {
            self.at_s += PERIOD_S;
            for (number, job) in self.jobs.iter().enumerate() {
                let Some(speed) = speed(number, self.at_s) else { continue };
                self.counters[number] += speed * 1e9 * PERIOD_S as f64;
                let sample = (BEGIN_US + self.at_s * SECOND_US, self.counters[number]);
                let frame = frame(job, cpu_usage(), &[sample]);
                let of_frame = self.watch.take(&frame);
                found.extend(of_frame.iter().map(|one| (self.at_s, one.node.to_string())));
            }
        }
        found
    }
}

fn names(found: &[(i64, String)]) -> Vec<&str> {
    found.iter().map(|(_, node)| node.as_str()).collect()
}

#[test]
fn equal_values_have_no_spread_and_one_that_differs_is_found_once() {
    let mut nodes = Nodes::new(8, "straggler(cpu.usage)");
    assert_eq!(nodes.run(300, |_, _| Some(10.0)), []);
    assert_eq!(names(&nodes.run(600, |node, _| Some(if node == 3 { 9.0 } else { 10.0 }))), ["n3"]);
    // It recovers, and is slow again.
    assert_eq!(nodes.run(100, |_, _| Some(10.0)), []);
    assert_eq!(names(&nodes.run(600, |node, _| Some(if node == 3 { 9.0 } else { 10.0 }))), ["n3"]);
    // 4 % are no distance, and a faster node is no straggler below the median.
    assert_eq!(nodes.run(100, |_, _| Some(10.0)), []);
    let normal = |node: usize, _| Some([9.6, 20.0].get(node).copied().unwrap_or(10.0));
    assert_eq!(nodes.run(600, normal), []);
    let mut above = Nodes::new(8, "straggler(cpu.usage) > 150%");
    assert_eq!(names(&above.run(300, normal)), ["n1"]);
}

#[test]
fn three_nodes_are_not_compared() {
    let mut nodes = Nodes::new(3, "straggler(cpu.usage)");
    assert_eq!(nodes.run(900, |node, _| Some(if node == 0 { 1.0 } else { 10.0 })), []);
    let mut nodes = Nodes::new(4, "straggler(cpu.usage)");
    assert_eq!(names(&nodes.run(900, |node, _| Some(if node == 0 { 1.0 } else { 10.0 }))), ["n0"]);
}

/// The master of a job that has one does other work than the others from the beginning: it is found once, as
/// a node that is slow from the beginning.
#[test]
fn a_master_is_found_once() {
    let mut nodes = Nodes::new(16, "straggler(cpu.usage)");
    let found = nodes.run(86_400 / 4, |node, _| Some(if node == 0 { 0.5 } else { 10.0 }));
    assert_eq!(names(&found), ["n0"]);
}

/// Ranks that take turns are no stragglers, unless only one in ten nodes waits, for long.
#[test]
fn nodes_that_are_idle_in_turn_are_another_part_of_the_program() {
    let mut nodes = Nodes::new(16, "straggler(cpu.usage)");
    let takes_turns = |node: usize, at_s: i64| (at_s / 60) % 4 != i64::try_from(node % 4).unwrap();
    let found = nodes.run(3600, |node, at_s| Some(if takes_turns(node, at_s) { 10.0 } else { 0.1 }));
    assert_eq!(found, []);
    // Short turns of one node.
    let waits = |node: usize, at_s: i64| (at_s / 10) % 16 == i64::try_from(node).unwrap();
    let found = nodes.run(3600, |node, at_s| Some(if waits(node, at_s) { 0.1 } else { 10.0 }));
    assert_eq!(found, []);
}

#[test]
fn idle_jobs_are_not_compared() {
    let mut nodes = Nodes::new(8, "straggler(cpu.usage)");
    assert_eq!(nodes.run(600, |node, _| Some(0.001 * (node + 1) as f64)), [], "from the beginning");
    assert_eq!(nodes.run(600, |_, _| Some(40.0)), []);
    assert_eq!(nodes.run(600, |node, _| Some(if node == 0 { 0.1 } else { 1.0 })), [], "later");
}

#[test]
fn nodes_may_join_late_miss_samples_and_end_early() {
    let mut nodes = Nodes::new(12, "straggler(cpu.usage)");
    let joins = |node: usize, at_s: i64| {
        let is_missing = (node == 2 && at_s % 50 < 30) || (node == 3 && at_s < 400);
        let starts = if node == 3 && at_s < 430 { 1.0 } else { 10.0 };
        (!is_missing).then_some(starts)
    };
    assert_eq!(nodes.run(900, joins), []);
    assert_eq!(nodes.watch.nodes, 12);
    // An agent restarts with the job: its counter begins anew.
    nodes.counters[5] = 0.0;
    assert_eq!(nodes.run(100, |_, _| Some(10.0)), []);
    // One ends, and others fall silent.
    let ended = Arc::clone(&nodes.jobs[0]);
    let mut last = Accepted::empty(Arc::clone(&ended.session), 9, BEGIN_US);
    last.job_ends.push((ended, BEGIN_US));
    nodes.watch.take(&last);
    assert_eq!(nodes.watch.nodes, 11);
    let slowed = |node: usize, _| (node > 4).then_some(if node == 7 { 9.0 } else { 10.0 });
    assert_eq!(names(&nodes.run(600, slowed)), ["n7"]);
    assert_eq!(nodes.watch.nodes, 7);
    nodes.watch.job_lost(1);
    assert_eq!((nodes.watch.nodes, nodes.watch.jobs.len()), (0, 0));
}

#[test]
fn a_clock_that_is_ahead_delays_nothing() {
    let mut nodes = Nodes::new(8, "straggler(cpu.usage)");
    let ahead = job_on("ahead", 1);
    let mut found = Vec::new();
    for step in 0..120 {
        let at_us = BEGIN_US + (nodes.at_s + PERIOD_S) * SECOND_US;
        let samples = [(at_us + 3600 * SECOND_US, f64::from(step) * 50e9)];
        let mut of_future = frame(&ahead, cpu_usage(), &samples);
        of_future.received_us = at_us;
        let at_once = nodes.watch.take(&of_future);
        found.extend(at_once.iter().map(|one| (nodes.at_s, one.node.to_string())));
        found
            .extend(nodes.run(PERIOD_S, |node, at_s| Some(if node == 1 && at_s > 300 { 9.0 } else { 10.0 })));
    }
    assert_eq!(names(&found), ["n1"]);
}

#[test]
fn jobs_without_news_are_forgotten() {
    let mut watch = Watch::new(vec![StragglerRule::clone(&rule("straggler(cpu.usage)"))], 1000);
    for job in 0..50 {
        watch.take(&frame(&job_on("n1", job), cpu_usage(), &[(BEGIN_US, 1.0)]));
    }
    assert_eq!((watch.jobs.len(), watch.nodes), (50, 50));
    watch.take(&frame(&job_on("n1", 99), cpu_usage(), &[(BEGIN_US + 2 * SILENT_US, 1.0)]));
    assert_eq!((watch.jobs.len(), watch.nodes), (1, 1));
}

proptest! {
    /// Any frames: state is bounded, and the count of nodes is exact.
    #[test]
    fn state_is_bounded(
        events in prop::collection::vec(
            (0..12_i64, 0..12_u8, prop_oneof![-10..2000_i64, any::<i64>()], any::<u64>(), 0..10_u8), 0..400,
        ),
        nodes_max in 1..40_usize,
    ) {
        let mut watch = Watch::new(vec![StragglerRule::clone(&rule("straggler(cpu.usage)"))], nodes_max);
        let mut seen = HashSet::new();
        for (job, node, at_s, bits, what) in events {
            let record = job_on(&format!("n{node}"), job);
            let at_us = BEGIN_US.saturating_add(at_s.saturating_mul(SECOND_US));
            let mut one = frame(&record, cpu_usage(), &[]);
            one.received_us = at_us;
            match what {
                0 => one.job_ends.push((Arc::clone(&record), at_us)),
                1 => watch.job_lost(job),
                2 => {
                    seen.extend([(job, node), (job, node + 1)]);
                    let amount = f64::from_bits(bits);
                    let nodes = [node, node + 1].map(|node| NodeSum {
                        node: format!("n{node}").as_str().try_into().unwrap(),
                        amount,
                        weight: amount,
                    });
                    let (metric, nodes) = ("cpu.usage".to_owned(), nodes.to_vec());
                    let part = JobPart { job_key: job, metric, ended_us: at_us, nodes };
                    watch.add_parts(&[("other".to_owned(), part)]);
                    prop_assert!(watch.wanted(at_us).len() <= 5 * watch.jobs.len());
                    watch.take_shared(at_us);
                }
                _ => {
                    seen.insert((job, node));
                    let samples = &mut one.samples[0];
                    samples.times_us = vec![at_us];
                    samples.values = vec![bits];
                }
            }
            watch.take(&one);
            prop_assert!(watch.nodes <= nodes_max.min(seen.len()));
            prop_assert_eq!(watch.nodes, watch.jobs.values().map(JobState::nodes).sum::<usize>());
            prop_assert!(watch.jobs.len() <= watch.nodes.max(1));
            prop_assert!(watch.scratch.capacity() <= nodes_max.next_power_of_two().max(4));
        }
    }
}
