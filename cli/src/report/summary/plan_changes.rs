//! Changes of the plan: those that differ in the metric only are one.

use polymeter_analysis::model::PlanChange;

/// Groups successive changes that differ in the metric only.
pub(crate) fn groups<'a>(
    changes: impl IntoIterator<Item = &'a PlanChange>,
) -> Vec<(&'a PlanChange, Vec<&'a str>)> {
    let mut groups: Vec<(&PlanChange, Vec<&str>)> = Vec::new();
    for change in changes {
        match groups.last_mut() {
            Some((first, metrics)) if is_same(first, change) => metrics.push(change.metric.as_str()),
            _ => groups.push((change, vec![change.metric.as_str()])),
        }
    }
    groups
}

pub(crate) fn names(metrics: &[&str]) -> String {
    match metrics {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
    }
}

fn is_same(one: &PlanChange, other: &PlanChange) -> bool {
    (one.at_s - other.at_s).abs() < 1e-9
        && one.node == other.node
        && one.level == other.level
        && one.old == other.old
        && one.new == other.new
        && one.cause == other.cause
        && one.actor == other.actor
}
