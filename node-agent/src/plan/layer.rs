//! Layers: the rules of one origin. Pure.

use polymeter_proto::name::Selector;
use polymeter_proto::period::Period;

/// The begins of the names of perf events.
const PERF: [&str; 2] = ["perf.", "perf_per_cpu."];

/// The begin of the names of call stacks.
const STACKS: &str = "stacks.";

/// A rule: the period of the selected metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The metrics.
    pub selector: Selector,
    /// The period; none switches them off.
    pub period: Option<Period>,
}

/// The rules of one origin. For each metric the most specific rule applies: its name before a glob, a glob
/// with more letters before one with fewer, and of equal ones the last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layer {
    rules: Vec<Rule>,
}

impl Layer {
    /// Creates a layer of these rules.
    pub const fn new(rules: Vec<Rule>) -> Self {
        Self { rules }
    }

    /// Returns whether it has no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the period of the metric `name` in this layer; none if it is off or not mentioned.
    pub fn period(&self, name: &str) -> Option<Period> {
        self.period_where(|selector| selects(selector, name))
    }

    /// Returns the period of the metric `name` in this layer, if it is one of steps or tasks.
    pub(super) fn step_period(&self, name: &str) -> Option<Period> {
        self.period_where(|selector| selects_of_steps(selector, name))
    }

    fn period_where(&self, is_selected: impl Fn(&Selector) -> bool) -> Option<Period> {
        let fitting = self.rules.iter().filter(|rule| is_selected(&rule.selector));
        fitting.max_by_key(|rule| specificity(&rule.selector)).and_then(|rule| rule.period)
    }
}

/// Returns true if a selector selects the metric `name`. Call stacks are selected only by name, or by a glob
/// that begins like it: they tell far more than a value does, and cost more.
pub(crate) fn selects(selector: &Selector, name: &str) -> bool {
    selector.matches(name) && (!name.starts_with(STACKS) || selector.as_str().starts_with(STACKS))
}

/// Returns true if a selector for steps or tasks selects the metric `name`.
pub(super) fn selects_of_steps(selector: &Selector, name: &str) -> bool {
    selector.matches(name) && (!is_of_perf(name) || names_perf(selector))
}

/// Returns true if a selector selects nothing but perf events. Only such a one selects those of steps and
/// tasks: each takes descriptors on every CPU for every step.
pub fn names_perf(selector: &Selector) -> bool {
    is_of_perf(selector.as_str())
}

fn is_of_perf(name: &str) -> bool {
    PERF.iter().any(|begin| name.starts_with(begin))
}

fn specificity(selector: &Selector) -> (bool, usize) {
    let letters = selector.as_str().bytes().filter(|byte| !matches!(byte, b'*' | b'?')).count();
    (selector.is_exact(), letters)
}
