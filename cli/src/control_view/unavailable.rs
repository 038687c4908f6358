//! Unavailable metrics, grouped by the reason. Pure.

/// The maximum number of metrics that a group names; of the others it states the number.
const NAMED: usize = 3;

/// Groups metrics by the reason, in the order in which the reasons occur first.
pub(crate) fn by_reason(unavailable: &[(String, String)]) -> Vec<(&str, Vec<&str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (metric, reason) in unavailable {
        match groups.iter_mut().find(|(known, _)| known == reason) {
            Some((_, metrics)) => metrics.push(metric),
            None => groups.push((reason, vec![metric])),
        }
    }
    groups
}

/// Names the first metrics of a group, and the number of the others.
pub(crate) fn named(metrics: &[&str]) -> String {
    let names = metrics.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match metrics.len().saturating_sub(NAMED) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}
