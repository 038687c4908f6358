//! The availability of metrics for a target.

use std::collections::BTreeMap;

use super::pricing::ReadTimes;
use crate::request::{Availability, MetricView};
use crate::targets::TrackedTarget;

/// Returns the metrics of the catalogue with their availability for a target whose sources have these read
/// times.
pub(crate) fn metrics_of(target: &TrackedTarget, read_times: &ReadTimes) -> Vec<MetricView> {
    let mut all: BTreeMap<String, Availability> = target.findings.found().clone();
    let missing = target.sources.unavailable().iter();
    all.extend(missing.map(|(name, reason)| (name.clone(), Availability::No(reason.clone()))));
    let recent_ns = read_times.get(&target.handle());
    for (name, sources) in target.sources.sampled() {
        let Some((source, _)) = sources.last() else { continue };
        let read_ns = recent_ns.and_then(|recent| recent.get(*source)).copied().unwrap_or_default();
        // The shortest interval counts; one of several sources may have none.
        let refresh_interval = sources.iter().map(|(_, interval)| *interval).min().flatten();
        all.insert(name, Availability::From { source: (*source).to_owned(), read_ns, refresh_interval });
    }
    let in_force: BTreeMap<String, _> = target.plan_in_force().into_iter().collect();
    let view = |(name, availability): (String, Availability)| {
        let period = in_force.get(&name).map(|in_force| in_force.period);
        MetricView { name, availability, period }
    };
    all.into_iter().map(view).collect()
}
