//! The live view: what it knows, and what keys do. Pure: it sees no terminal, no socket and no clock.

mod draw;
mod keys;
mod ladder;
mod series;

use std::collections::BTreeMap;

use polymeter_agent::control::{Answer, Lease, PlanLine, Refusal, Subject, Verb};
use polymeter_proto::ledger::Tally;
use polymeter_proto::name::Selector;
use polymeter_proto::period::Period;
use ratatui::crossterm::event::{KeyCode, KeyEvent};

use crate::printable::printable;
use keys::Press;
use series::Series;

/// How long a period that was chosen by a key is wished for.
const LEASE: &str = "10min";

/// Series that are shown; a job with more is watched by selectors.
const SERIES: usize = 4096;

/// Rows that a page key goes.
const PAGE: usize = 10;

/// A metric and its labels, as people read them.
type Key = (String, String);

/// What a key was pressed for, that the view cannot do by itself.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Wish {
    /// Nothing.
    Nothing,
    /// To end.
    Quit,
    /// To stop, and to go on later.
    Suspend,
    /// To ask the agent, and to tell the answer.
    Ask(Box<Verb>),
}

/// What keys mean now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Rows,
    Filter,
    Help,
}

/// How sampling goes.
#[derive(Debug, Clone, Copy)]
struct Progress {
    seconds: f64,
    tally: Tally,
    cpu_percent: f64,
}

/// The view.
#[derive(Debug)]
pub(super) struct View {
    job: Option<String>,
    selectors: Vec<Selector>,
    series: BTreeMap<Key, Series>,
    plan: BTreeMap<String, PlanLine>,
    progress: Option<Progress>,
    /// Samples that came faster than they were read.
    passed_by: u64,
    selected: Option<Key>,
    filter: String,
    mode: Mode,
    message: String,
    /// What was asked and has no answer yet.
    asked: Option<Verb>,
    has_ended: bool,
    now_us: i64,
}

/// One row: a series, or a metric of the plan that has none yet.
#[derive(Debug)]
struct Row<'a> {
    key: Key,
    series: Option<&'a Series>,
    plan: Option<&'a PlanLine>,
}

impl Row<'_> {
    /// The period at which it is sampled, as people write it.
    fn period(&self) -> Option<&str> {
        let planned = self.plan.map(|line| line.period.as_str());
        planned.or_else(|| self.series.and_then(|series| series.period.as_deref()))
    }
}

impl View {
    /// A view of a job, or of the node, that knows nothing yet.
    pub(super) fn new(job: Option<String>, selectors: Vec<Selector>) -> Self {
        Self {
            job,
            selectors,
            series: BTreeMap::new(),
            plan: BTreeMap::new(),
            progress: None,
            passed_by: 0,
            selected: None,
            filter: String::new(),
            mode: Mode::Rows,
            message: String::new(),
            asked: None,
            has_ended: false,
            now_us: 0,
        }
    }

    /// Whether the job has ended, so that nothing more will come.
    pub(super) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Time goes on, in microseconds since the epoch.
    pub(super) const fn tick(&mut self, now_us: i64) {
        // What is shown at the end stays.
        if !self.has_ended {
            self.now_us = now_us;
        }
    }

    /// Takes a line of the agent's.
    pub(super) fn told(&mut self, answer: Answer) {
        match answer {
            Answer::Samples { metric, labels, unit, kind, period, times_us, values } => {
                let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
                let key = (metric, labels.join(","));
                if self.series.len() >= SERIES && !self.series.contains_key(&key) {
                    return;
                }
                let new = || Series::new(unit.unwrap_or_default(), kind == "counter");
                let series = self.series.entry(key).or_insert_with(new);
                series.period = period;
                for (time_us, value) in times_us.into_iter().zip(values) {
                    if let Some(value) = value {
                        series.add(time_us, value);
                    }
                }
            }
            Answer::Plan { plan, .. } => {
                let wanted = |line: &PlanLine| {
                    self.selectors.is_empty()
                        || self.selectors.iter().any(|selector| selector.matches(&line.metric))
                };
                let lines = plan.into_iter().filter(wanted);
                self.plan = lines.map(|line| (line.metric.clone(), line)).collect();
                self.forget_old();
            }
            Answer::Progress { seconds, tally, cpu_percent } => {
                self.progress = Some(Progress { seconds, tally, cpu_percent });
                self.forget_old();
            }
            Answer::Lagged { samples } => self.passed_by += samples,
            Answer::Ended {} => {
                self.has_ended = true;
                "the job has ended".clone_into(&mut self.message);
            }
            // None of these comes on this way from an agent of this version.
            Answer::Status(_)
            | Answer::Registered { .. }
            | Answer::Started { .. }
            | Answer::Granted { .. }
            | Answer::Metrics { .. }
            | Answer::Reset { .. }
            | Answer::Done {}
            | Answer::Refused(_) => {}
        }
    }

    /// Drops series of which nothing came for as long as the chart is, and nothing will.
    fn forget_old(&mut self) {
        let begin_us = self.now_us - series::WINDOW_US;
        let plan = &self.plan;
        self.series.retain(|(metric, _), series| {
            plan.contains_key(metric) || series.last_us().is_none_or(|last_us| last_us > begin_us)
        });
    }

    /// Takes the answer to what was asked, or why there is none.
    pub(super) fn answered(&mut self, answer: Result<Answer, String>) -> Wish {
        let asked = self.asked.take();
        match (answer, asked) {
            (Ok(Answer::Granted { metrics, cost, until_us, .. }), Some(Verb::Set(lease))) => {
                let effective = metrics.iter().next();
                self.message = match (effective, lease.plan.values().next()) {
                    (Some((metric, period)), Some(wanted)) if period != wanted => {
                        format!("{metric} stays at {period}: somebody else asks for that")
                    }
                    (Some((metric, period)), _) => format!(
                        "{metric} every {period} for {}; all sampling of the job costs {:.2} % of a CPU",
                        lease.duration.unwrap_or_default(),
                        cost.cpu_percent
                    ),
                    (None, _) => "granted".to_owned(),
                };
                for (metric, period) in metrics {
                    // The agent tells the plan within a second; until then this is what is known of it.
                    if let Some(line) = self.plan.get_mut(&metric).filter(|line| line.period != period) {
                        *line = PlanLine {
                            period,
                            cause: "lease".to_owned(),
                            until_us: Some(until_us),
                            ..line.clone()
                        };
                    }
                }
            }
            (Ok(Answer::Reset { ended }), _) => self.message = format!("{ended} leases ended"),
            (Ok(Answer::Refused(Refusal { code, instead: Some(instead), .. })), Some(Verb::Set(lease)))
                if code == "longest_lease" && lease.duration.as_deref() == Some(LEASE) =>
            {
                // For as long as is allowed, then.
                return self.ask(Verb::Set(Lease { duration: Some(instead), ..lease }));
            }
            (Ok(Answer::Refused(refusal)), _) => self.message = format!("refused: {}", refusal.message),
            (Ok(_), _) => "the agent answers something else than was asked".clone_into(&mut self.message),
            (Err(why), _) => self.message = why,
        }
        Wish::Nothing
    }

    fn ask(&mut self, verb: Verb) -> Wish {
        if self.asked.is_some() {
            "the agent has not answered yet".clone_into(&mut self.message);
            return Wish::Nothing;
        }
        if self.has_ended {
            "the job has ended".clone_into(&mut self.message);
            return Wish::Nothing;
        }
        self.asked = Some(verb.clone());
        Wish::Ask(Box::new(verb))
    }

    /// What a key does.
    pub(super) fn pressed(&mut self, key: KeyEvent) -> Wish {
        if !keys::goes_down(key) {
            return Wish::Nothing;
        }
        if let Some(code) = keys::with_control(key) {
            let wishes = [('c', Wish::Quit), ('d', Wish::Quit), ('z', Wish::Suspend)];
            let wish = wishes.into_iter().find(|(letter, _)| code == KeyCode::Char(*letter));
            return wish.map_or(Wish::Nothing, |(_, wish)| wish);
        }
        match self.mode {
            Mode::Filter => self.type_filter(key.code),
            Mode::Help => self.mode = Mode::Rows,
            Mode::Rows => {
                self.message.clear();
                return Press::of(key.code).map_or(Wish::Nothing, |press| self.do_it(press));
            }
        }
        Wish::Nothing
    }

    fn type_filter(&mut self, code: KeyCode) {
        if let KeyCode::Char(letter) = code {
            self.filter.push(letter);
        } else if code == KeyCode::Backspace {
            self.filter.pop();
        } else if code == KeyCode::Enter {
            self.mode = Mode::Rows;
        } else if code == KeyCode::Esc {
            self.filter.clear();
            self.mode = Mode::Rows;
        }
    }

    fn do_it(&mut self, press: Press) -> Wish {
        match press {
            Press::Quit => return Wish::Quit,
            Press::Help => self.mode = Mode::Help,
            Press::Filter => self.mode = Mode::Filter,
            Press::NoFilter => self.filter.clear(),
            Press::Up => self.select(|at| at.saturating_sub(1)),
            Press::Down => self.select(|at| at + 1),
            Press::PageUp => self.select(|at| at.saturating_sub(PAGE)),
            Press::PageDown => self.select(|at| at + PAGE),
            Press::First => self.select(|_| 0),
            Press::Last => self.select(|_| usize::MAX),
            Press::Faster => return self.step(ladder::shorter),
            Press::Slower => return self.step(ladder::longer),
            Press::Reset => return self.ask(Verb::Reset(Subject { job: self.job.clone() })),
        }
        Wish::Nothing
    }

    /// Wishes another period for the metric that is selected.
    fn step(&mut self, next: fn(Period) -> Option<Period>) -> Wish {
        let rows = self.rows();
        let Some(row) = self.position(&rows).and_then(|at| rows.get(at)) else { return Wish::Nothing };
        let metric = row.key.0.clone();
        let Some(period) = row.period().and_then(|period| period.parse::<Period>().ok()) else {
            self.message = format!("{metric} has no period: its user gives its values");
            return Wish::Nothing;
        };
        let Some(wanted) = next(period) else {
            self.message = format!("there is no period beyond {period}");
            return Wish::Nothing;
        };
        let plan = [(metric, wanted.to_string())].into();
        self.ask(Verb::Set(Lease { job: self.job.clone(), plan, duration: Some(LEASE.to_owned()) }))
    }

    fn select(&mut self, to: impl FnOnce(usize) -> usize) {
        let rows = self.rows();
        let at = to(self.position(&rows).unwrap_or(0)).min(rows.len().saturating_sub(1));
        self.selected = rows.get(at).map(|row| row.key.clone());
    }

    /// Where in the rows the selected one is; the first where it is not there any more.
    fn position(&self, rows: &[Row<'_>]) -> Option<usize> {
        let selected = self.selected.as_ref();
        let found = rows.iter().position(|row| Some(&row.key) == selected);
        found.or_else(|| (!rows.is_empty()).then_some(0))
    }

    /// The rows that the filter lets through, by metric and labels.
    fn rows(&self) -> Vec<Row<'_>> {
        let of_series = self.series.iter().map(|(key, series)| Row {
            key: key.clone(),
            series: Some(series),
            plan: self.plan.get(&key.0),
        });
        let is_new = |metric: &str| !self.series.keys().any(|(known, _)| known == metric);
        let waiting = self.plan.values().filter(|line| is_new(&line.metric)).map(|line| Row {
            key: (line.metric.clone(), String::new()),
            series: None,
            plan: Some(line),
        });
        let mut rows: Vec<Row<'_>> =
            of_series.chain(waiting).filter(|row| shown(&row.key).contains(&self.filter)).collect();
        rows.sort_by(|one, other| one.key.cmp(&other.key));
        rows
    }
}

/// A metric and its labels, as people read them.
fn shown((metric, labels): &Key) -> String {
    let name = if labels.is_empty() { metric.clone() } else { format!("{metric}{{{labels}}}") };
    printable(&name).into_owned()
}

#[cfg(test)]
mod tests;
