//! Rules of one job. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use polymeter_proto::batch::{Job, Shape};
use polymeter_proto::ledger::Firing;
use polymeter_proto::series::{SeriesId, ShapeId};
use polymeter_proto::trigger::{JobEvent, OOM_KILL, OOM_METRIC};

use super::rule_state::{RuleState, Sample};

/// Shapes whose columns are remembered; beyond that they are matched anew.
const SHAPES: usize = 1024;

/// Series of the OOM counter that are remembered: a job's, and those of its steps and tasks.
const OOM_SERIES: usize = 1024;

/// Firings that are remembered for lists.
const FIRINGS: usize = 32;

/// What samples are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Voice {
    Plan,
    Ring,
}

#[derive(Debug, Clone, Copy)]
enum Use {
    Oom,
    /// Numbers of a rule, and of one of its tests.
    Test(usize, usize),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Chosen {
    pub(super) column: usize,
    used: Use,
}

/// A rule of the job that should fire, by its number.
pub(super) type Due = (usize, i64, String);

#[derive(Debug)]
pub(super) struct JobTriggers {
    pub(super) job: Arc<Job>,
    pub(super) rules: Vec<RuleState>,
    chosen: BTreeMap<ShapeId, Arc<[Chosen]>>,
    oom_kills: BTreeMap<SeriesId, f64>,
    /// True if the job may have had OOM kills before its first sample.
    is_older: bool,
    /// Microseconds since the epoch; none while the job runs.
    pub(super) ended_us: Option<i64>,
    pub(super) fired: VecDeque<Firing>,
}

impl JobTriggers {
    pub(super) fn new(job: Arc<Job>, rules: Vec<RuleState>, is_older: bool) -> Self {
        Self {
            job,
            rules,
            chosen: BTreeMap::new(),
            oom_kills: BTreeMap::new(),
            is_older,
            ended_us: None,
            fired: VecDeque::new(),
        }
    }

    pub(super) fn rules_changed(&mut self) {
        self.chosen.clear();
    }

    /// Columns of a shape that rules are about.
    pub(super) fn choose(&mut self, shape: &Shape, voice: Voice) -> Arc<[Chosen]> {
        if let Some(chosen) = self.chosen.get(&shape.id) {
            return Arc::clone(chosen);
        }
        // A counter has one order in time: that of the plan.
        let wants_oom = voice == Voice::Plan
            && self.rules.iter().any(|state| state.rule.when.event() == Some(JobEvent::Oom));
        let mut chosen = Vec::new();
        for (column, series) in shape.columns.iter().enumerate() {
            let metric = series.metric.1.name.as_str();
            if wants_oom && metric == OOM_METRIC {
                chosen.push(Chosen { column, used: Use::Oom });
            }
            for (rule, state) in self.rules.iter().enumerate() {
                let tests = state.tests_of(metric).into_iter();
                chosen.extend(tests.map(|test| Chosen { column, used: Use::Test(rule, test) }));
            }
        }
        if self.chosen.len() >= SHAPES {
            self.chosen.clear();
        }
        let chosen: Arc<[Chosen]> = chosen.into();
        self.chosen.insert(shape.id, Arc::clone(&chosen));
        chosen
    }

    pub(super) fn sample(&mut self, chosen: Chosen, sample: Sample) -> Vec<Due> {
        match chosen.used {
            Use::Oom if self.is_oom(sample) => self.event(JobEvent::Oom, sample.time_us, OOM_KILL),
            Use::Oom => Vec::new(),
            Use::Test(number, test) => {
                let why = self.rules.get_mut(number).and_then(|state| state.sample(test, sample));
                why.map(|why| (number, sample.time_us, why)).into_iter().collect()
            }
        }
    }

    /// Tells whether the counter has risen. The first value of a job that is younger than the agent counts
    /// from 0.
    fn is_oom(&mut self, sample: Sample) -> bool {
        if self.oom_kills.len() >= OOM_SERIES && !self.oom_kills.contains_key(&sample.series) {
            return false;
        }
        match self.oom_kills.insert(sample.series, sample.value) {
            Some(before) => sample.value > before,
            None => sample.value > 0.0 && !self.is_older,
        }
    }

    pub(super) fn event(&self, event: JobEvent, at_us: i64, why: &str) -> Vec<Due> {
        let rules = self.rules.iter().enumerate();
        rules.filter_map(|(number, state)| Some((number, at_us, state.event(event, why)?))).collect()
    }

    pub(super) fn note(&mut self, firing: Firing) {
        if self.fired.len() >= FIRINGS {
            self.fired.pop_front();
        }
        self.fired.push_back(firing);
    }
}
