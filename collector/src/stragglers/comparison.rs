//! The nodes of one job, compared by one rule.

use std::collections::HashMap;
use std::sync::Arc;

use polymeter_proto::series::{Identifier, Kind, MetricDescriptor, Unit};
use polymeter_proto::trigger::{Side, StragglerRule};
use polymeter_store::NodeSum;
use polymeter_store::accepted::JobRecord;

use super::Straggler;
use super::median::{median, spread};
use super::node_state::{INTERVAL_US, NodeState, OPEN, Sum, end_of, interval_of};
use super::other_parts::OtherParts;

/// Time for samples to arrive after those of the fastest node. Agents flush once a second, and commits take
/// one more.
const LATE_US: i64 = 5_000_000;

/// Further time for the samples of other collectors, one of which may have been killed.
const OTHERS_LATE_US: i64 = 5_000_000;

/// Time after the end of an interval at which other collectors get its samples: half of that after which it
/// is compared. With long periods no later sample tells that it has ended, but the clock.
const SHARED_US: i64 = 2_500_000;
const SHARED_LATE_US: i64 = 4_000_000;

/// A median of fewer nodes says little.
const NODES_MIN: usize = 4;

/// Intervals that are compared before a node may be a straggler: at its start a job does not run on all of
/// its nodes at once.
const START: u32 = 12;

/// Fewest successive intervals in which a straggler is far from the others.
const FAR_MIN: u32 = 3;

/// Smallest distance of a straggler, in standard deviations of all nodes. Normal values of 1,000 nodes
/// exceed it once in weeks, even if they change slowly, so that successive ones are alike.
const SPREADS: f64 = 4.5;

/// The same for metrics with longer periods than an interval: only slow changes are left in their values, so
/// that several successive ones are no stronger sign than one.
const SPREADS_OF_LONG_PERIODS: f64 = 6.0;

/// By so many nodes the spread of few nodes may be too small: with four nodes the distance is doubled.
const UNCERTAIN_NODES: f64 = 4.0;

/// Spread of nodes that differ less, or not at all.
const SPREAD_MIN: f64 = 0.01;

/// Nodes do not enter a new phase of a program at the same time: an interval whose median has changed by
/// more than this part is not compared.
const PHASE: f64 = 0.25;

/// Nodes that are stragglers at the same time, as a part of all nodes: more of them are another part of the
/// program.
const FEW: usize = 10;

/// A job whose median is below this part of its highest one is idle, and its nodes differ by chance.
const IDLE_PART: f64 = 0.1;

/// CPU time below which a job is idle: a hundredth of one CPU.
const IDLE_NS_PER_SECOND: f64 = 1e7;

/// Silence after which a node is forgotten.
const SILENT_US: i64 = 120_000_000;

const DAY_US: i64 = 86_400_000_000;

/// Buffer for the values of all nodes.
pub(super) type Scratch = Vec<f64>;

#[derive(Debug)]
pub(super) struct Comparison {
    rule: Arc<StragglerRule>,
    /// The job, as one of its nodes announced it.
    job: Option<Arc<JobRecord>>,
    nodes: HashMap<Identifier, NodeState>,
    others: OtherParts,
    /// First interval that is not compared yet; none before the first sample.
    next: Option<i64>,
    /// Time of the newest sample of all nodes, in microseconds since the epoch.
    newest_us: i64,
    /// Last interval with values.
    last: Option<i64>,
    highest_median: f64,
    last_median: Option<f64>,
    idle_below: f64,
    /// Time of the last firing, in microseconds since the epoch.
    fired_us: Option<i64>,
    /// Number of a day, and the firings on it.
    day: (i64, u32),
}

/// Samples of a node to be compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeSamples<'a> {
    pub(super) job: &'a Arc<JobRecord>,
    pub(super) metric: &'a MetricDescriptor,
    /// Time at which they arrived, in microseconds since the epoch: a clock that is ahead does not end
    /// intervals.
    pub(super) received_us: i64,
}

impl Comparison {
    pub(super) fn new(rule: Arc<StragglerRule>) -> Self {
        Self {
            rule,
            job: None,
            nodes: HashMap::new(),
            others: OtherParts::default(),
            next: None,
            newest_us: i64::MIN,
            last: None,
            highest_median: 0.0,
            last_median: None,
            idle_below: 0.0,
            fired_us: None,
            day: (0, 0),
        }
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn has_own_nodes(&self) -> bool {
        self.nodes.values().any(NodeState::is_own)
    }

    pub(super) fn remove(&mut self, node: &Identifier) {
        self.nodes.remove(node);
    }

    /// Takes samples of a node: times in microseconds since the epoch, and values. Compares the intervals for
    /// which there is no further room: with long periods the next sample is many intervals later. Returns
    /// false if the node is new and there is no room for it.
    pub(super) fn samples(
        &mut self,
        of: NodeSamples<'_>,
        samples: &[(i64, f64)],
        has_room: bool,
        (scratch, found): (&mut Scratch, &mut Vec<Straggler>),
    ) -> bool {
        let NodeSamples { job, metric, received_us } = of;
        if !self.nodes.contains_key(job.node()) {
            if !has_room {
                return false;
            }
            self.nodes.insert(job.node().clone(), NodeState::new());
        }
        if self.job.is_none() {
            self.job = Some(Arc::clone(job));
        }
        if metric.kind == Kind::Counter && metric.unit == Unit::Nanoseconds {
            self.idle_below = IDLE_NS_PER_SECOND;
        }
        for samples in samples.chunk_by(|(a_us, _), (b_us, _)| interval_of(*a_us) == interval_of(*b_us)) {
            let Some((time_us, _)) = samples.first() else { continue };
            found.extend(self.make_room((*time_us).min(received_us), scratch));
            // It may have been silent for so long that it was forgotten.
            let state = self.nodes.entry(job.node().clone()).or_insert_with(NodeState::new);
            for &(time_us, value) in samples {
                let arrived_us = time_us.min(received_us);
                let next = *self.next.get_or_insert_with(|| interval_of(arrived_us));
                state.sample(metric.kind, time_us, value, next);
                self.newest_us = self.newest_us.max(arrived_us);
            }
        }
        true
    }

    /// Compares intervals until there is room for that of a time.
    fn make_room(&mut self, arrived_us: i64, scratch: &mut Scratch) -> Option<Straggler> {
        let mut next = self.next?;
        let first = interval_of(arrived_us).saturating_sub(OPEN - 1);
        let mut found = None;
        for _ in 0..OPEN {
            if next >= first {
                break;
            }
            found = self.pass(next, scratch).or(found);
            next += 1;
        }
        self.next = Some(next.max(first));
        found
    }

    /// Returns the intervals that ended a while ago, with the samples of this collector, for other collectors:
    /// each interval once.
    pub(super) fn take_shared(&mut self, now_us: i64) -> Vec<(i64, Vec<NodeSum>)> {
        let mut shared = Vec::new();
        for number in self.others.take_shared(self.shared_before(now_us)) {
            let sum = |(node, state): (&Identifier, &NodeState)| {
                let Sum { amount, weight } = state.own(number)?;
                Some(NodeSum { node: node.clone(), amount, weight })
            };
            let nodes: Vec<NodeSum> = self.nodes.iter().filter_map(sum).collect();
            if !nodes.is_empty() {
                shared.push((number, nodes));
            }
        }
        shared
    }

    /// Returns the intervals that are to be compared with samples of other collectors, each with the
    /// collectors whose samples are known.
    pub(super) fn wanted(&self, now_us: i64) -> Vec<(i64, Vec<String>)> {
        let Some(next) = self.next else { return Vec::new() };
        let end = self.shared_before(now_us).min(next.saturating_add(OPEN));
        let wanted = (next..end).filter(|number| self.has_own(*number));
        wanted.map(|number| (number, self.others.known(number))).collect()
    }

    /// First interval that has not ended, or too recently for other collectors to need it.
    fn shared_before(&self, now_us: i64) -> i64 {
        interval_of(self.newest_us.saturating_sub(SHARED_US).max(now_us.saturating_sub(SHARED_LATE_US)))
    }

    fn has_own(&self, number: i64) -> bool {
        self.nodes.values().any(|state| state.own(number).is_some())
    }

    /// Takes the samples that another collector has of an interval, once. Returns how many nodes are new and
    /// found no room.
    pub(super) fn add_part(&mut self, collector: &str, number: i64, nodes: &[NodeSum], room: usize) -> usize {
        let Some(next) = self.next.filter(|next| number >= *next) else { return 0 };
        if !self.others.take(collector, number) {
            return 0;
        }
        let nodes_max = self.nodes.len().saturating_add(room);
        let mut ignored = 0;
        for NodeSum { node, amount, weight } in nodes {
            if !self.nodes.contains_key(node) {
                if self.nodes.len() >= nodes_max {
                    ignored += 1;
                    continue;
                }
                self.nodes.insert(node.clone(), NodeState::new());
            }
            let sum = Sum { amount: *amount, weight: *weight };
            if let Some(state) = self.nodes.get_mut(node).filter(|_| sum.is_valid()) {
                state.add_other(number, sum, next);
            }
        }
        ignored
    }

    /// Compares as the only collector from now on, until another one has samples.
    pub(super) fn forget_others(&mut self) {
        self.others = OtherParts::default();
    }

    /// Compares the intervals whose samples should have arrived. Returns a node that became a straggler.
    pub(super) fn compare_due(&mut self, scratch: &mut Scratch) -> Option<Straggler> {
        let mut found = None;
        let mut next = self.next?;
        let due = interval_of(self.newest_us.saturating_sub(LATE_US));
        let overdue = interval_of(self.newest_us.saturating_sub(LATE_US + OTHERS_LATE_US));
        while next < due {
            if next >= overdue && !self.others.are_known(next) && self.has_own(next) {
                break;
            }
            found = self.pass(next, scratch).or(found);
            next += 1;
        }
        self.next = Some(next);
        found
    }

    fn pass(&mut self, number: i64, scratch: &mut Scratch) -> Option<Straggler> {
        if !self.others.is_empty() && self.has_own(number) {
            self.others.compared(number);
        }
        self.compare(number, scratch)
    }

    fn compare(&mut self, number: i64, scratch: &mut Scratch) -> Option<Straggler> {
        let end_us = end_of(number);
        self.nodes.retain(|_, state| {
            state.newest_us().is_none_or(|newest_us| end_us.saturating_sub(newest_us) < SILENT_US)
        });
        scratch.clear();
        scratch.extend(self.nodes.values().filter_map(|state| state.value(number)));
        let values = scratch.len();
        if values < NODES_MIN || values * 2 < self.nodes.len() {
            return None;
        }
        let has_long_period = self.last.replace(number).is_some_and(|last| number.saturating_sub(last) > 1);
        let middle = median(scratch)?;
        self.highest_median = self.highest_median.max(middle);
        let before = self.last_median.replace(middle);
        if middle <= self.idle_below.max(self.highest_median * IDLE_PART) {
            self.nodes.values_mut().for_each(NodeState::skip);
            return None;
        }
        if before.is_none_or(|before| (middle - before).abs() > before.abs() * PHASE) {
            return None;
        }
        let deviation = spread(scratch, middle)? / middle;
        let spreads = if has_long_period { SPREADS_OF_LONG_PERIODS } else { SPREADS };
        self.take_values(number, middle, deviation.max(SPREAD_MIN) * spreads);
        self.fire(number, middle)
    }

    /// Compares the value of each node with the median. `least` is the smallest distance of a straggler among
    /// many nodes, as a part of the median.
    fn take_values(&mut self, number: i64, median: f64, least: f64) {
        let test = &self.rule.test;
        let few = UNCERTAIN_NODES / f64::from(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        let least = least * (1.0 + few);
        let bound = f64::from(test.percent) / 100.0;
        let successive = successive(test.lasts_us);
        for state in self.nodes.values_mut() {
            let Some(value) = state.value(number) else {
                state.skip();
                continue;
            };
            let part = value / median;
            let is_far = match test.side {
                Side::Below => part < bound && 1.0 - part >= least,
                Side::Above => part > bound && part - 1.0 >= least,
            };
            state.compare(number, is_far, successive);
        }
    }

    fn fire(&mut self, number: i64, median: f64) -> Option<Straggler> {
        let test = &self.rule.test;
        let successive = successive(test.lasts_us);
        let is_straggler = |state: &NodeState| {
            state.compared > START && state.far.is_some_and(|(_, count)| count >= successive)
        };
        let stragglers = || self.nodes.iter().filter(|(_, state)| is_straggler(state));
        let (count, values) = (stragglers().count(), self.nodes.len());
        if count > (values / FEW).max(1) {
            return None;
        }
        let distance = |state: &NodeState| state.value(number).map_or(0.0, |value| (value - median).abs());
        let unreported = stragglers().filter(|(_, state)| !state.is_reported);
        let (node, farthest) = unreported.max_by(|(_, a), (_, b)| distance(a).total_cmp(&distance(b)))?;
        let (since, _) = farthest.far?;
        let side = match test.side {
            Side::Below => "below",
            Side::Above => "above",
        };
        let lasted_s = end_of(number).saturating_sub(end_of(since.saturating_sub(1))) / 1_000_000;
        let last = farthest.value(number)? / median * 100.0;
        let mut why = format!(
            "{} was {side} {} % of the median of {values} nodes for {lasted_s} s, lastly {last:.1} %",
            test.metric, test.percent
        );
        if count > 1 {
            why.push_str(&format!("; on {count} nodes"));
        }
        let at_us = end_of(number);
        let (job, node) = (Arc::clone(self.job.as_ref()?), node.clone());
        if !self.try_fire(at_us) {
            return None;
        }
        for state in self.nodes.values_mut().filter(|state| is_straggler(state)) {
            state.is_reported = true;
        }
        Some(Straggler { job, node, rule: Arc::clone(&self.rule), at_us, why })
    }

    /// False if the rule has fired too recently, or too often on that day.
    fn try_fire(&mut self, at_us: i64) -> bool {
        let day = at_us.div_euclid(DAY_US);
        if self.day.0 != day {
            self.day = (day, 0);
        }
        let is_held_off =
            self.fired_us.is_some_and(|fired_us| at_us < fired_us.saturating_add(self.rule.hold_off_us));
        if is_held_off || self.day.1 >= self.rule.firings {
            return false;
        }
        self.fired_us = Some(at_us);
        self.day.1 += 1;
        true
    }
}

/// Number of successive intervals in a time.
fn successive(lasts_us: i64) -> u32 {
    u32::try_from(lasts_us / INTERVAL_US).unwrap_or(u32::MAX).max(FAR_MIN)
}
