//! A rule, and the finding that it makes. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::expression::{Expression, Lookup, Scope, Statistic, Type, Value};
use super::facts::{FactScope, Facts};
use super::template::Template;

/// The severity of a finding, the most severe last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A remark.
    Note,
    /// Resources were wasted, or the job was slower than necessary.
    Warning,
    /// The job failed, or most of its resources were wasted.
    Critical,
}

impl Severity {
    /// All severities, the most severe first.
    pub const ALL: [Self; 3] = [Self::Critical, Self::Warning, Self::Note];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// The schedulers for which a rule may have a remedy. `Any` is for all others, and for an unknown one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduler {
    /// Any scheduler.
    Any,
    /// Slurm.
    Slurm,
    /// OAR.
    Oar,
}

impl Scheduler {
    /// All schedulers.
    pub const ALL: [Self; 3] = [Self::Any, Self::Slurm, Self::Oar];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Slurm => "slurm",
            Self::Oar => "oar",
        }
    }
}

/// A rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The id.
    pub id: String,
    /// The severity of its findings.
    pub severity: Severity,
    /// The condition as it was written.
    pub condition: String,
    /// The parsed condition.
    pub when: Expression,
    /// The thresholds that the condition and the texts use, by name.
    pub thresholds: BTreeMap<String, f64>,
    /// The shortest job to which it applies, in seconds.
    pub elapsed_min_s: f64,
    /// The final states of jobs to which it does not apply.
    pub except_states: Vec<String>,
    /// The rules whose findings suppress its own.
    pub suppressed_by: Vec<String>,
    /// The finding in a sentence.
    pub sentence: Template,
    /// The figures on which it is based.
    pub evidence: Template,
    /// The command or directive for next time.
    pub remedies: BTreeMap<Scheduler, Template>,
}

/// The result of a rule about a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The severity.
    pub severity: Severity,
    /// The id of the rule.
    pub id: String,
    /// The finding in a sentence.
    pub sentence: String,
    /// The figures on which it is based, as text.
    pub evidence: String,
    /// The facts and thresholds of the condition and the evidence that are numbers.
    pub figures: BTreeMap<String, f64>,
    /// The command or directive for next time, by scheduler.
    pub remedies: BTreeMap<Scheduler, String>,
}

impl Finding {
    /// Returns the remedy for a scheduler; if it is unknown or has none, that for all schedulers, or else those of all.
    pub fn remedy(&self, scheduler: Option<Scheduler>) -> Option<String> {
        let own = scheduler.and_then(|scheduler| self.remedies.get(&scheduler));
        if let Some(found) = own.or_else(|| self.remedies.get(&Scheduler::Any)) {
            return Some(found.clone());
        }
        let others = self.remedies.iter().filter(|_| scheduler.is_none());
        let named: Vec<String> =
            others.map(|(scheduler, text)| format!("{}: {text}", scheduler.name())).collect();
        (!named.is_empty()).then(|| named.join("; "))
    }
}

impl Rule {
    /// Applies the rule; none if its condition is not known to be true.
    pub(super) fn apply(&self, facts: &Facts) -> Option<Finding> {
        let is_excepted =
            facts.text("state").is_some_and(|state| self.except_states.iter().any(|one| one == state));
        let is_long = self.elapsed_min_s <= 0.0
            || facts.number("elapsed").is_some_and(|elapsed| elapsed >= self.elapsed_min_s);
        let lookup = RuleLookup { facts, thresholds: &self.thresholds };
        if is_excepted || !is_long || !self.when.is_true(&lookup) {
            return None;
        }
        let names = self.when.names().iter().map(String::as_str).chain(self.evidence.names());
        let figures = names.filter_map(|name| match lookup.value(name) {
            Some(Value::Number(number)) => Some((name.to_owned(), number)),
            _ => None,
        });
        let remedies = self.remedies.iter();
        Some(Finding {
            severity: self.severity,
            id: self.id.clone(),
            sentence: self.sentence.text(&lookup),
            evidence: self.evidence.text(&lookup),
            figures: figures.collect(),
            remedies: remedies
                .filter_map(|(scheduler, text)| Some((*scheduler, text.known_text(&lookup)?)))
                .collect(),
        })
    }
}

/// The facts, and the thresholds of one rule.
struct RuleLookup<'a> {
    facts: &'a Facts,
    thresholds: &'a BTreeMap<String, f64>,
}

impl Lookup for RuleLookup<'_> {
    fn value(&self, name: &str) -> Option<Value> {
        self.thresholds.get(name).map(|number| Value::Number(*number)).or_else(|| self.facts.value(name))
    }

    fn metric(&self, statistic: Statistic, metric: &str) -> Option<f64> {
        self.facts.metric(statistic, metric)
    }
}

/// The names of the facts, and of the thresholds of one rule.
pub(super) struct RuleScope<'a> {
    pub(super) thresholds: &'a BTreeMap<String, f64>,
}

impl Scope for RuleScope<'_> {
    fn type_of(&self, name: &str) -> Option<Type> {
        self.thresholds.get(name).map(|_| Type::Number).or_else(|| FactScope.type_of(name))
    }

    fn names(&self) -> Vec<&str> {
        let thresholds = self.thresholds.keys().map(String::as_str);
        thresholds.chain(super::facts::FACTS.iter().map(|definition| definition.name)).collect()
    }
}
