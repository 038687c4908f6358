//! All jobs, compared by all rules.

use std::collections::HashMap;
use std::sync::Arc;

use polymeter_proto::series::{Identifier, Kind};
use polymeter_proto::trigger::StragglerRule;
use polymeter_store::accepted::{Accepted, SampleBlock, SeriesRecord};
use polymeter_store::{JobPart, WantedParts};

use super::Straggler;
use super::comparison::{Comparison, NodeSamples, Scratch};
use super::node_state::{end_of, interval_of};

/// Nodes of all jobs and rules, about 40 MB. Further nodes are not compared.
pub(crate) const NODES: usize = 100_000;

/// Silence after which a job is forgotten, and time between two searches for such jobs.
const SILENT_US: i64 = 600_000_000;
const SEARCH_US: i64 = 60_000_000;

/// Age of an interval whose parts at other collectors are not asked for: they are kept for a minute.
const GONE_US: i64 = 300_000_000;

#[derive(Debug)]
struct JobState {
    /// One for each rule.
    comparisons: Vec<Comparison>,
    /// Time of its last frame, in microseconds since the epoch.
    heard_us: i64,
}

impl JobState {
    fn nodes(&self) -> usize {
        self.comparisons.iter().map(Comparison::nodes).sum()
    }

    /// Returns the first comparison of each metric, with the metric.
    fn of_metrics<'a>(
        &'a mut self,
        rules: &'a [Arc<StragglerRule>],
    ) -> impl Iterator<Item = (&'a str, &'a mut Comparison)> {
        let comparisons = rules.iter().zip(&mut self.comparisons).enumerate();
        comparisons.filter_map(|(position, (rule, comparison))| {
            let metric = rule.test.metric.as_str();
            let is_first = rules.iter().take(position).all(|earlier| earlier.test.metric != metric);
            is_first.then_some((metric, comparison))
        })
    }
}

#[derive(Debug)]
pub(crate) struct Watch {
    rules: Vec<Arc<StragglerRule>>,
    /// By the key in the store, which all nodes of a job share.
    jobs: HashMap<i64, JobState>,
    /// Nodes of all comparisons.
    nodes: usize,
    nodes_max: usize,
    searched_us: i64,
    /// Frames and parts with samples of nodes for which there was no room.
    ignored: u64,
    scratch: Scratch,
}

impl Watch {
    pub(crate) fn new(rules: Vec<StragglerRule>, nodes_max: usize) -> Self {
        Self {
            rules: rules.into_iter().map(Arc::new).collect(),
            jobs: HashMap::new(),
            nodes: 0,
            nodes_max,
            searched_us: 0,
            ignored: 0,
            scratch: Scratch::new(),
        }
    }

    /// Returns how often samples were ignored since the last call, because there was no room for their node.
    pub(crate) const fn take_ignored(&mut self) -> u64 {
        std::mem::replace(&mut self.ignored, 0)
    }

    /// Takes a stored frame. Returns nodes that became stragglers.
    pub(crate) fn take(&mut self, frame: &Accepted) -> Vec<Straggler> {
        let mut found = Vec::new();
        for block in &frame.samples {
            self.take_block(frame, block, &mut found);
        }
        for (job, _) in &frame.job_ends {
            if let Some(job_key) = job.key.get() {
                self.node_ended(job_key, job.node());
            }
        }
        if frame.received_us.saturating_sub(self.searched_us) >= SEARCH_US {
            self.searched_us = frame.received_us;
            self.jobs.retain(|_, job| frame.received_us.saturating_sub(job.heard_us) < SILENT_US);
            self.nodes = self.jobs.values().map(JobState::nodes).sum();
        }
        found
    }

    fn take_block(&mut self, frame: &Accepted, block: &SampleBlock, found: &mut Vec<Straggler>) {
        for (series, rows) in block.rows() {
            let Some(job_key) = series.job.as_ref().and_then(|job| job.key.get()) else { continue };
            let metric = series.metric.name.as_str();
            if !series.labels.is_empty() || !self.rules.iter().any(|rule| rule.test.metric == metric) {
                continue;
            }
            let is_gauge = series.metric.kind == Kind::Gauge;
            let samples = rows.map(|(time_us, value, window)| {
                let mean = window.filter(|_| is_gauge).and_then(|window| window.mean());
                (frame.corrected_us(time_us), mean.unwrap_or(value))
            });
            let samples: Vec<(i64, f64)> = samples.collect();
            self.compare(job_key, series, &samples, (frame.received_us, found));
        }
    }

    /// Compares the samples by all rules about the metric.
    fn compare(
        &mut self,
        job_key: i64,
        series: &SeriesRecord,
        samples: &[(i64, f64)],
        (received_us, found): (i64, &mut Vec<Straggler>),
    ) {
        let Some(job) = &series.job else { return };
        let rules = &self.rules;
        let state = self.jobs.entry(job_key).or_insert_with(|| JobState {
            comparisons: rules.iter().map(|rule| Comparison::new(Arc::clone(rule))).collect(),
            heard_us: received_us,
        });
        state.heard_us = received_us;
        for (rule, comparison) in rules.iter().zip(&mut state.comparisons) {
            if rule.test.metric != series.metric.name.as_str() {
                continue;
            }
            let others = self.nodes.saturating_sub(comparison.nodes());
            let of = NodeSamples { job, metric: &series.metric, received_us };
            let has_room = self.nodes < self.nodes_max;
            if !comparison.samples(of, samples, has_room, (&mut self.scratch, found)) {
                self.ignored += 1;
            }
            found.extend(comparison.compare_due(&mut self.scratch));
            self.nodes = others + comparison.nodes();
        }
        if state.nodes() == 0 {
            self.jobs.remove(&job_key);
        }
    }

    fn node_ended(&mut self, job_key: i64, node: &Identifier) {
        let Some(state) = self.jobs.get_mut(&job_key) else { return };
        let before = state.nodes();
        for comparison in &mut state.comparisons {
            comparison.remove(node);
        }
        self.nodes = (self.nodes + state.nodes()).saturating_sub(before);
        if !state.comparisons.iter().any(Comparison::has_own_nodes) {
            self.job_lost(job_key);
        }
    }

    /// Returns what other collectors need, once.
    pub(crate) fn take_shared(&mut self, now_us: i64) -> Vec<JobPart> {
        let mut parts = Vec::new();
        for (job_key, state) in &mut self.jobs {
            for (metric, comparison) in state.of_metrics(&self.rules) {
                let shared = comparison.take_shared(now_us).into_iter();
                parts.extend(shared.map(|(number, nodes)| JobPart {
                    job_key: *job_key,
                    metric: metric.to_owned(),
                    ended_us: end_of(number),
                    nodes,
                }));
            }
        }
        parts
    }

    /// Returns what is needed of other collectors. Those of intervals that ended long ago are gone.
    pub(crate) fn wanted(&mut self, now_us: i64) -> Vec<WantedParts> {
        let mut parts = Vec::new();
        for (job_key, state) in &mut self.jobs {
            for (metric, comparison) in state.of_metrics(&self.rules) {
                let wanted = comparison.wanted(now_us).into_iter();
                parts.extend(wanted.map(|(number, known)| WantedParts {
                    job_key: *job_key,
                    metric: metric.to_owned(),
                    ended_us: end_of(number),
                    known,
                }));
            }
        }
        parts.retain(|wanted| now_us.saturating_sub(wanted.ended_us) < GONE_US);
        parts
    }

    /// Takes parts of other collectors, in the order of their ends. Returns nodes that became stragglers.
    pub(crate) fn add_parts(&mut self, parts: &[(String, JobPart)]) -> Vec<Straggler> {
        let mut found = Vec::new();
        for (collector, part) in parts {
            let Some(state) = self.jobs.get_mut(&part.job_key) else { continue };
            let number = interval_of(part.ended_us.saturating_sub(1));
            for (rule, comparison) in self.rules.iter().zip(&mut state.comparisons) {
                if rule.test.metric != part.metric {
                    continue;
                }
                let others = self.nodes.saturating_sub(comparison.nodes());
                let room = self.nodes_max.saturating_sub(self.nodes);
                let ignored = comparison.add_part(collector, number, &part.nodes, room);
                self.ignored += u64::from(ignored > 0);
                found.extend(comparison.compare_due(&mut self.scratch));
                self.nodes = others + comparison.nodes();
            }
        }
        found
    }

    /// Compares as the only collector.
    pub(crate) fn forget_others(&mut self) {
        for state in self.jobs.values_mut() {
            state.comparisons.iter_mut().for_each(Comparison::forget_others);
        }
    }

    /// Forgets a job that has ended since its agents were lost.
    pub(crate) fn job_lost(&mut self, job_key: i64) {
        if let Some(state) = self.jobs.remove(&job_key) {
            self.nodes = self.nodes.saturating_sub(state.nodes());
        }
    }
}

#[cfg(test)]
mod tests;
