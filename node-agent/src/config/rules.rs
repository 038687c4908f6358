//! Lists of a configuration: the rules of a plan, and the patterns of jobs' cgroups.

use polymeter_proto::catalogue::derived;
use polymeter_proto::catalogue::{self, Scope};
use polymeter_proto::name::Selector;
use polymeter_service::keys::Value;

use crate::cgroups::Pattern;
use crate::plan::{Layer, Rule, names_perf};

/// Each pattern costs a walk over the hierarchies.
const PATTERNS_MAX: usize = 64;

/// Takes the patterns of jobs' cgroups, each of which may be listed once.
pub(super) fn patterns(mut value: Value<'_, '_, '_>) -> Option<Vec<Pattern>> {
    let texts = value.strings()?;
    let reporter = value.reporter;
    if let Some((_, span)) = texts.get(PATTERNS_MAX) {
        reporter.fault(span, format_args!("`jobs`: expected at most {PATTERNS_MAX} patterns"));
    }
    let mut patterns = Vec::new();
    for (text, span) in texts.into_iter().take(PATTERNS_MAX) {
        match text.parse::<Pattern>() {
            Ok(pattern) if patterns.contains(&pattern) => {
                reporter.fault(&span, format_args!("`jobs`: `{}` is listed twice", pattern.as_str()));
            }
            Ok(pattern) => patterns.push(pattern),
            Err(error) => reporter.fault(&span, format_args!("`jobs`: {error}")),
        }
    }
    Some(patterns)
}

pub(super) fn layer(
    mut value: Value<'_, '_, '_>,
    rule: fn(&str, &str) -> Result<Rule, InvalidRule>,
) -> Option<Layer> {
    let section = value.table()?;
    let reporter = value.reporter;
    let mut rules: Vec<Rule> = Vec::new();
    for (key, value) in section.into_entries() {
        let Some(text) = value.get_ref().as_str() else {
            let expected = "expected a period in quotes, such as \"10ms\", or \"off\"";
            reporter.fault(&value.span(), format_args!("`{}`: {expected}", key.get_ref()));
            continue;
        };
        match rule(key.get_ref(), text) {
            Ok(rule) => rules.push(rule),
            Err(InvalidRule::Selector(error)) => reporter.fault(&key.span(), error),
            Err(InvalidRule::Period(error)) => reporter.fault(&value.span(), error),
        }
    }
    Some(Layer::new(rules))
}

/// Parses a rule that bounds the periods of users' requests: it has no window.
pub(super) fn bound(selector: &str, period: &str) -> Result<Rule, InvalidRule> {
    let rule = rule(selector, period)?;
    match rule.sampling.and_then(|sampling| sampling.window) {
        None => Ok(rule),
        Some(window) => {
            let error = format!("`{selector}`: a bound has no window; leave out `/{window}`");
            Err(InvalidRule::Period(error))
        }
    }
}

/// Parses a rule for steps or tasks, of which only the files of cgroups are read, and the perf events that a
/// rule names.
pub(super) fn cgroup_rule(selector: &str, period: &str) -> Result<Rule, InvalidRule> {
    let rule = rule(selector, period)?;
    let has_derived = names_perf(&rule.selector)
        && derived::select(&rule.selector).any(|derived| derived.scope == Scope::Job);
    let is_selected = catalogue::select(&rule.selector).iter().any(|definition| {
        definition.metric.scope == Scope::Job
            && (definition.is_of_file() || (names_perf(&rule.selector) && definition.is_perf()))
    });
    if has_derived || is_selected {
        return Ok(rule);
    }
    let error = format!(
        "`{selector}` is not available for steps and tasks, only metrics from cgroup files and perf events are"
    );
    Err(InvalidRule::Selector(error))
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRule {
    #[error("{0}")]
    Selector(String),
    #[error("{0}")]
    Period(String),
}

/// Parses the rule that samples the metrics of `selector` at `period`, which may be `off` or have a window. A selector without
/// a metric in the catalogue is refused, with the nearest name.
pub fn rule(selector: &str, period: &str) -> Result<Rule, InvalidRule> {
    let parsed: Selector = selector
        .parse()
        .map_err(|error| InvalidRule::Selector(format!("invalid selector `{selector}`: {error}")))?;
    if !catalogue::is_known(&parsed) {
        let hint = catalogue::nearest(selector).map_or_else(
            || "`polymeter metrics` lists all metrics".to_owned(),
            |name| format!("did you mean `{name}`?"),
        );
        return Err(InvalidRule::Selector(format!("unknown metric `{selector}`; {hint}")));
    }
    let sampling = match period {
        "off" => None,
        text => Some(text.parse().map_err(|error| InvalidRule::Period(format!("`{selector}`: {error}")))?),
    };
    Ok(Rule { selector: parsed, sampling })
}
