//! State of the live view, which the agent's answers change.

use std::collections::{BTreeMap, BTreeSet};

use polymeter_proto::control::{
    Answer, LaggedLine, PlanAnswer, PlanLine, ProgressLine, Request, SamplesLine,
};
use polymeter_proto::ledger::Tally;
use polymeter_proto::name::Selector;
use polymeter_proto::step_level::StepLevel;

use super::recent_series::{RecentSeries, WINDOW_US};
use crate::local::JobFacts;
use crate::output::printable::printable;

/// Series in the view at most. Selectors choose among more.
const SERIES_MAX: usize = 4096;

/// A metric and its labels, `key=value,...`.
pub(super) type SeriesKey = (String, String);

/// A metric, and the level of its steps or tasks; none for the job as a whole, or the node.
pub(super) type PlanKey = (String, Option<StepLevel>);

#[derive(Debug, Clone, PartialEq)]
pub(in crate::commands::watch) enum ViewAction {
    None,
    Quit,
    Suspend,
    Ask(Box<Request>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Rows,
    Filter,
    Help,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    pub(super) seconds: f64,
    pub(super) tally: Tally,
    pub(super) cpu_percent: f64,
}

/// Metrics of the title, which are received in any case.
pub(in crate::commands::watch) const SUMMARY: [&str; 3] = ["cpu.usage", "memory.current", "memory.limit"];

#[derive(Debug)]
pub(in crate::commands::watch) struct View {
    pub(super) job: Option<String>,
    selectors: Vec<Selector>,
    series: BTreeMap<SeriesKey, RecentSeries>,
    pub(super) plan: BTreeMap<PlanKey, PlanLine>,
    pub(super) progress: Option<Progress>,
    /// Samples that arrived faster than they were read.
    pub(super) not_shown: u64,
    selected: Option<SeriesKey>,
    pub(super) filter: String,
    pub(super) mode: Mode,
    pub(super) message: String,
    pub(super) pending: Option<Request>,
    pub(super) has_ended: bool,
    pub(super) now_us: i64,
    pub(super) facts: JobFacts,
    pub(super) has_colours: bool,
}

/// A series, or a metric of the plan without samples.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) key: SeriesKey,
    pub(super) series: Option<&'a RecentSeries>,
    pub(super) plan: Option<&'a PlanLine>,
}

impl Row<'_> {
    pub(super) fn period(&self) -> Option<&str> {
        let planned = self.plan.map(|line| line.period.as_str());
        planned.or_else(|| self.series.and_then(|series| series.period.as_deref()))
    }
}

impl View {
    pub(in crate::commands::watch) fn new(job: Option<String>, selectors: Vec<Selector>) -> Self {
        Self {
            job,
            selectors,
            series: BTreeMap::new(),
            plan: BTreeMap::new(),
            progress: None,
            not_shown: 0,
            selected: None,
            filter: String::new(),
            mode: Mode::Rows,
            message: String::new(),
            pending: None,
            has_ended: false,
            now_us: 0,
            facts: JobFacts::default(),
            has_colours: false,
        }
    }

    pub(in crate::commands::watch) const fn set_facts(&mut self, facts: JobFacts, has_colours: bool) {
        self.facts = facts;
        self.has_colours = has_colours;
    }

    /// True if no more samples arrive.
    pub(in crate::commands::watch) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Sets the time, in microseconds since the epoch. It stops at the end of the job.
    pub(in crate::commands::watch) const fn tick(&mut self, now_us: i64) {
        if !self.has_ended {
            self.now_us = now_us;
        }
    }

    /// Processes an answer on the watch stream.
    #[expect(clippy::wildcard_enum_match_arm, reason = "a new verb must not need a line here")]
    pub(in crate::commands::watch) fn handle_answer(&mut self, answer: Answer) {
        match answer {
            Answer::Samples(SamplesLine { metric, labels, unit, kind, period, times_us, values }) => {
                let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
                let key = (metric, labels.join(","));
                if self.series.len() >= SERIES_MAX && !self.series.contains_key(&key) {
                    return;
                }
                let series = self
                    .series
                    .entry(key)
                    .or_insert_with(|| RecentSeries::new(unit.unwrap_or_default(), kind == "counter"));
                series.period = period;
                for (time_us, value) in times_us.into_iter().zip(values) {
                    if let Some(value) = value {
                        series.add(time_us, value);
                    }
                }
            }
            Answer::Plan(PlanAnswer { plan, .. }) => {
                let lines = plan.into_iter().filter(|line| self.selects(&line.metric));
                self.plan = lines.map(|line| ((line.metric.clone(), line.level), line)).collect();
                self.remove_old_series();
            }
            Answer::Progress(ProgressLine { seconds, tally, cpu_percent }) => {
                self.progress = Some(Progress { seconds, tally, cpu_percent });
                self.remove_old_series();
            }
            Answer::Lagged(LaggedLine { samples }) => self.not_shown += samples,
            Answer::Ended(_) => {
                self.has_ended = true;
                "the job has ended".clone_into(&mut self.message);
            }
            // Answers to other verbs, which an agent does not send on a watch stream.
            _ => {}
        }
    }

    /// Removes series whose chart is empty and whose metric is no longer sampled.
    fn remove_old_series(&mut self) {
        let begin_us = self.now_us - WINDOW_US;
        let plan = &self.plan;
        self.series.retain(|key, series| {
            plan.contains_key(&plan_key(key)) || series.last_us().is_none_or(|last_us| last_us > begin_us)
        });
    }

    /// Selects another row: `to` maps the index of the selected row to the new index.
    pub(super) fn select(&mut self, to: impl FnOnce(usize) -> usize) {
        let rows = self.rows();
        let at = to(self.position(&rows).unwrap_or(0)).min(rows.len().saturating_sub(1));
        self.selected = rows.get(at).map(|row| row.key.clone());
    }

    /// Falls back to the first if the selected row no longer exists.
    pub(super) fn position(&self, rows: &[Row<'_>]) -> Option<usize> {
        let selected = self.selected.as_ref();
        let found = rows.iter().position(|row| Some(&row.key) == selected);
        found.or_else(|| (!rows.is_empty()).then_some(0))
    }

    pub(super) fn rows(&self) -> Vec<Row<'_>> {
        let of_series = self.series.iter().map(|(key, series)| Row {
            key: key.clone(),
            series: Some(series),
            plan: self.plan.get(&plan_key(key)),
        });
        let sampled: BTreeSet<PlanKey> = self.series.keys().map(plan_key).collect();
        let without_samples = self
            .plan
            .values()
            .filter(|line| !sampled.contains(&(line.metric.clone(), line.level)))
            .map(|line| Row { key: key_of_line(line), series: None, plan: Some(line) });
        let rows = of_series.chain(without_samples);
        let rows = rows.filter(|row| self.selects(&row.key.0) && name(&row.key).contains(&self.filter));
        let mut rows: Vec<Row<'_>> = rows.collect();
        rows.sort_by(|one, other| one.key.cmp(&other.key));
        rows
    }
}

impl View {
    fn selects(&self, metric: &str) -> bool {
        self.selectors.is_empty() || self.selectors.iter().any(|selector| selector.matches(metric))
    }

    /// Sum of the current values of a metric over the nodes of the job, without steps and tasks; none if a
    /// node has none.
    pub(super) fn job_total(&self, metric: &str) -> Option<f64> {
        let series = self.series.iter().filter(|((name, labels), _)| {
            name == metric && labels.split(',').all(|label| label.is_empty() || label.starts_with("node="))
        });
        let values: Option<Vec<f64>> = series.map(|(_, series)| series.current()).collect();
        values.filter(|values| !values.is_empty()).map(|values| values.iter().sum())
    }

    /// Microseconds since the epoch.
    pub(super) fn newest_us(&self) -> Option<i64> {
        self.series.values().filter_map(RecentSeries::last_us).max()
    }
}

/// Key of the line of the plan that determines the period of a series.
pub(super) fn plan_key((metric, labels): &SeriesKey) -> PlanKey {
    let mut keys = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0));
    let labels: Vec<&str> = keys.by_ref().collect();
    (metric.clone(), StepLevel::of_labels(|label| labels.contains(&label)))
}

/// Key of a row without samples: the labels of a step or task, without values.
fn key_of_line(line: &PlanLine) -> SeriesKey {
    let labels = match line.level {
        None => "",
        Some(StepLevel::Step) => "step=",
        Some(StepLevel::Task) => "step=,task=",
    };
    (line.metric.clone(), labels.to_owned())
}

pub(super) fn name((metric, labels): &SeriesKey) -> String {
    let name = if labels.is_empty() { metric.clone() } else { format!("{metric}{{{labels}}}") };
    printable(&name).into_owned()
}
