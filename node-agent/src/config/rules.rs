//! What a configuration lists: wishes for metrics, and where jobs are.

use std::fmt;

use polymeter_proto::catalogue::{self, Definition, Scope};
use polymeter_proto::name::Selector;

use super::document::{Reporter, Section, Span};
use crate::cgroups::Pattern;
use crate::plan::{Layer, Rule};

/// The most patterns of job cgroups; each costs a walk.
const PATTERNS: usize = 64;
/// Patterns of job cgroups, each of them once.
pub(super) fn patterns(texts: Vec<(String, Span)>, reporter: &mut Reporter<'_>) -> Vec<Pattern> {
    if let Some((_, span)) = texts.get(PATTERNS) {
        reporter.fault(span, format!("`jobs`: at most {PATTERNS} patterns"));
    }
    let mut patterns = Vec::new();
    for (text, span) in texts.into_iter().take(PATTERNS) {
        match text.parse::<Pattern>() {
            Ok(pattern) if patterns.contains(&pattern) => {
                reporter.fault(&span, format!("`jobs`: `{}` stands twice", pattern.as_str()));
            }
            Ok(pattern) => patterns.push(pattern),
            Err(error) => reporter.fault(&span, format!("`jobs`: {error}")),
        }
    }
    patterns
}

/// A table of selectors and periods.
pub(super) fn layer(
    section: Section<'_>,
    rule: fn(&str, &str) -> Result<Rule, RuleError>,
    reporter: &mut Reporter<'_>,
) -> Layer {
    let mut rules: Vec<Rule> = Vec::new();
    for (key, value) in section.drain() {
        let Some(text) = value.get_ref().as_str() else {
            let expected = "a period is a string in quotes, such as \"10ms\", or \"off\"";
            reporter.fault(&value.span(), format!("`{}`: {expected}", key.get_ref()));
            continue;
        };
        match rule(key.get_ref(), text) {
            Ok(rule) => rules.push(rule),
            Err(RuleError::Selector(error)) => reporter.fault(&key.span(), error),
            Err(RuleError::Period(error)) => reporter.fault(&value.span(), error),
        }
    }
    Layer::new(rules)
}

/// The wish for a metric of each part of a job, of which only the files of cgroups are read.
pub(super) fn part_rule(selector: &str, period: &str) -> Result<Rule, RuleError> {
    let rule = rule(selector, period)?;
    let is_of_cgroup =
        |definition: &Definition| definition.metric.scope == Scope::Job && definition.is_of_file();
    if catalogue::select(&rule.selector).iter().any(is_of_cgroup) {
        return Ok(rule);
    }
    let error = format!("`{selector}` is in no file of a cgroup, and parts of jobs have nothing else");
    Err(RuleError::Selector(error))
}

/// What is wrong with a wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleError {
    /// It names no metric.
    Selector(String),
    /// It has no period.
    Period(String),
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Selector(error) | Self::Period(error) => f.write_str(error),
        }
    }
}

/// The wish for the metrics of `selector` at `period`, which may be `off`.
///
/// # Errors
/// When the selector chooses no metric of the catalogue, with the nearest name, or the period is none.
pub fn rule(selector: &str, period: &str) -> Result<Rule, RuleError> {
    let parsed: Selector = selector
        .parse()
        .map_err(|error| RuleError::Selector(format!("`{selector}` selects nothing: {error}")))?;
    if catalogue::select(&parsed).is_empty() {
        let meant = catalogue::nearest(selector).map_or_else(
            || "`polymeter metrics` lists them all".to_owned(),
            |name| format!("did you mean `{name}`?"),
        );
        return Err(RuleError::Selector(format!("no metric is called `{selector}`; {meant}")));
    }
    let period = match period {
        "off" => None,
        text => Some(text.parse().map_err(|error| RuleError::Period(format!("`{selector}`: {error}")))?),
    };
    Ok(Rule { selector: parsed, period })
}
