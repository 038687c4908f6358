//! A rule, which makes findings. Pure.

use std::collections::BTreeMap;

use super::facts::{FactScope, Facts};
use super::template::Template;
use crate::expression::{Expression, Lookup, Scope, Statistic, Type, Value};
use crate::model::{Finding, Resource, Scheduler, Severity};

#[derive(Debug, Clone)]
pub struct Rule {
    pub id: String,
    /// None if the findings are not about a single resource.
    pub resource: Option<Resource>,
    pub severity: Severity,
    /// Text as it was written.
    pub condition: String,
    pub when: Expression,
    /// Used by the condition and the texts, by name.
    pub thresholds: BTreeMap<String, f64>,
    /// Shortest job to which the rule applies.
    pub elapsed_min_s: f64,
    /// Final states of jobs to which it does not apply.
    pub except_states: Vec<String>,
    pub suppressed_by: Vec<String>,
    pub sentence: Template,
    /// Figures on which the finding is based.
    pub evidence: Template,
    /// Command or directive for next time.
    pub remedies: BTreeMap<Scheduler, Template>,
}

impl Rule {
    /// Tells whether the rule would have a finding if the job were not too short for it.
    pub(super) fn is_withheld(&self, facts: &Facts) -> bool {
        !self.is_long(facts) && self.holds(facts)
    }

    fn is_long(&self, facts: &Facts) -> bool {
        self.elapsed_min_s <= 0.0
            || facts.number("elapsed").is_some_and(|elapsed| elapsed >= self.elapsed_min_s)
    }

    fn holds(&self, facts: &Facts) -> bool {
        let is_excepted =
            facts.text("state").is_some_and(|state| self.except_states.iter().any(|one| one == state));
        !is_excepted && self.when.is_true(&RuleLookup { facts, thresholds: &self.thresholds })
    }

    /// None if the condition is not known to be true.
    pub(super) fn apply(&self, facts: &Facts) -> Option<Finding> {
        if !self.is_long(facts) || !self.holds(facts) {
            return None;
        }
        let lookup = RuleLookup { facts, thresholds: &self.thresholds };
        let names = self.when.names().iter().map(String::as_str).chain(self.evidence.names());
        let figures = names.filter_map(|name| match lookup.value(name) {
            Some(Value::Number(number)) => Some((name.to_owned(), number)),
            _ => None,
        });
        let remedies = self.remedies.iter();
        Some(Finding {
            severity: self.severity,
            id: self.id.clone(),
            resource: self.resource,
            sentence: self.sentence.text(&lookup),
            evidence: self.evidence.text(&lookup),
            figures: figures.collect(),
            remedies: remedies
                .filter_map(|(scheduler, text)| Some((*scheduler, text.known_text(&lookup)?)))
                .collect(),
        })
    }
}

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
