//! Verdict about a subject: its figures, judged by thresholds, as one line of a plugin for Nagios.

use std::process::ExitCode;

use super::range::Range;
use super::threshold::Thresholds;
use crate::failure::Failure;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    Ok,
    Warning,
    Critical,
}

impl State {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
        }
    }

    pub(super) fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Ok => 0,
            Self::Warning => 1,
            Self::Critical => 2,
        })
    }
}

#[derive(Debug)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    /// None if it cannot be told.
    pub(super) value: Option<f64>,
    /// Unit of performance data: s, %, B, or empty.
    pub(super) unit: &'static str,
    /// For people.
    pub(super) text: String,
    /// Usual thresholds.
    pub(super) warning: Option<Range>,
    pub(super) critical: Option<Range>,
    pub(super) max: Option<u64>,
}

impl Figure {
    fn state(&self) -> (State, Option<&Range>) {
        let Some(value) = self.value else { return (State::Ok, None) };
        let alerting = |range: &&Range| range.alerts(value);
        if let Some(range) = self.critical.as_ref().filter(alerting) {
            return (State::Critical, Some(range));
        }
        match self.warning.as_ref().filter(alerting) {
            Some(range) => (State::Warning, Some(range)),
            None => (State::Ok, None),
        }
    }

    /// `label=value[unit];[warning];[critical];[min];[max]`
    fn performance(&self) -> String {
        let text = |range: &Option<Range>| range.as_ref().map_or_else(String::new, Range::to_string);
        let value = self.value.map_or_else(|| "U".to_owned(), |value| decimal(value) + self.unit);
        let max = self.max.map_or_else(String::new, |max| max.to_string());
        format!("{}={value};{};{};0;{max}", self.name, text(&self.warning), text(&self.critical))
    }
}

/// At most three places behind the point, and no exponent.
fn decimal(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) subject: String,
    /// What is wrong beside figures.
    pub(super) problems: Vec<(State, String)>,
    pub(super) figures: Vec<Figure>,
}

impl Verdict {
    /// Verdict about a subject that gives no figures.
    pub(super) fn critical(subject: String, problem: String) -> Self {
        Self { subject, problems: vec![(State::Critical, problem)], figures: Vec::new() }
    }

    /// Replaces the usual thresholds by those of the user.
    pub(super) fn apply(&mut self, thresholds: &Thresholds) -> Result<(), Failure> {
        for (figure, range) in thresholds.warnings() {
            self.figure(figure)?.warning = Some(range.clone());
        }
        for (figure, range) in thresholds.criticals() {
            self.figure(figure)?.critical = Some(range.clone());
        }
        Ok(())
    }

    fn figure(&mut self, name: &str) -> Result<&mut Figure, Failure> {
        let names: Vec<&str> = self.figures.iter().map(|figure| figure.name).collect();
        let names = names.join(", ");
        self.figures.iter_mut().find(|figure| figure.name == name).ok_or_else(|| {
            Failure::Usage(format!(
                "cannot judge `{name}`: this check has no such figure; use one of {names}"
            ))
        })
    }

    pub(super) fn state(&self) -> State {
        let problems = self.problems.iter().map(|(state, _)| *state);
        let figures = self.figures.iter().map(|figure| figure.state().0);
        problems.chain(figures).max().unwrap_or(State::Ok)
    }

    /// The line, without its end: what is wrong comes first.
    pub(super) fn line(&self) -> String {
        let mut wrong: Vec<(State, String)> = self.problems.clone();
        let mut others = Vec::new();
        for figure in &self.figures {
            match figure.state() {
                (state, Some(range)) => wrong.push((state, format!("{} (range {range})", figure.text))),
                (_, None) => others.push(figure.text.as_str()),
            }
        }
        wrong.sort_by(|(one, _), (other, _)| other.cmp(one));
        let texts: Vec<&str> = wrong.iter().map(|(_, text)| text.as_str()).chain(others).collect();
        let text = one_line(&format!("{}: {}", self.subject, texts.join(", ")));
        let performance: Vec<String> = self.figures.iter().map(Figure::performance).collect();
        let bar = if performance.is_empty() { "" } else { " | " };
        format!("POLYMETER {} - {text}{bar}{}", self.state().as_str(), performance.join(" "))
    }
}

/// A bar would begin the performance data.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "/")
}
