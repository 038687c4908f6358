//! Availability of metrics for a target.

use std::collections::BTreeMap;

use polymeter_proto::catalogue::Scope;
use polymeter_proto::catalogue::derived::{self, Derived, Machine, Quantity};

use super::pricing::ReadTimes;
use crate::plan::is_of_hardware;
use crate::request::{Availability, MetricView};
use crate::sources::RELEASED;
use crate::targets::TrackedTarget;

/// Metrics of the catalogue with their availability for a target whose sources have these read times.
/// `counters_owner` is another user that has reserved the hardware's counters.
pub(crate) fn metrics_of(
    target: &TrackedTarget,
    read_times: &ReadTimes,
    counters_owner: Option<u32>,
) -> Vec<MetricView> {
    let mut all: BTreeMap<String, Availability> = target.findings.found().clone();
    let missing = target.sources.unavailable();
    all.extend(missing.map(|(name, reason)| (name.clone(), Availability::No(reason.clone()))));
    let recent_ns = read_times.get(&target.handle());
    for (name, sources) in target.sources.sampled() {
        let Some((source, _)) = sources.last() else { continue };
        let read_ns = recent_ns.and_then(|recent| recent.get(*source)).copied().unwrap_or_default();
        // The shortest interval counts; one of several sources may have none.
        if source.starts_with(RELEASED)
            && let Some(release) = target.release()
        {
            all.insert(name, Availability::No(release.reason()));
            continue;
        }
        let refresh_interval = sources.iter().map(|(_, interval)| *interval).min().flatten();
        all.insert(name, Availability::From { source: (*source).to_owned(), read_ns, refresh_interval });
    }
    if let Some(owner) = counters_owner {
        note_owner(&mut all, owner);
    }
    let in_force: BTreeMap<String, _> = target.plan_in_force().into_iter().collect();
    let units = target.sources.measured_units();
    let computed = derived_metrics(target, &all);
    all.into_iter()
        .map(|(name, availability)| {
            let period = in_force.get(&name).map(|in_force| in_force.sampling);
            let unit = units.get(&name).copied();
            MetricView { name, unit, availability, period }
        })
        .chain(computed)
        .collect()
}

/// Says at hardware events that another user has reserved the counters.
fn note_owner(all: &mut BTreeMap<String, Availability>, owner: u32) {
    for (name, availability) in all {
        if let Availability::From { source, .. } = availability
            && is_of_hardware(name)
        {
            source.push_str(&format!("; uid {owner} has reserved the counters by likwid.lock"));
        }
    }
}

/// Derived metrics of a target, whose other metrics are `all`.
fn derived_metrics(target: &TrackedTarget, all: &BTreeMap<String, Availability>) -> Vec<MetricView> {
    let is_job = target.job.is_some();
    let of_target = derived::all().filter(|derived| (derived.scope == Scope::Job) == is_job);
    of_target
        .map(|derived| MetricView {
            name: derived.name.to_owned(),
            unit: None,
            availability: computed(derived, target.plan.machine, all),
            period: None,
        })
        .collect()
}

fn computed(derived: &Derived, machine: Machine, all: &BTreeMap<String, Availability>) -> Availability {
    let Some(formula) = derived.formula(machine) else {
        let known: Vec<&str> = derived.formulas.iter().map(|formula| formula.machine.as_str()).collect();
        return Availability::No(format!("there are formulas for {} only", known.join(", ")));
    };
    let mut from = Vec::new();
    for input in formula.inputs {
        let name = match input.quantity {
            Quantity::Energy => "the energy of the job",
            Quantity::Pushed => "the user's metric of this name",
            Quantity::Metric(name) | Quantity::Lines(name) => name,
        };
        match all.get(name) {
            Some(Availability::No(reason)) => return Availability::No(format!("it needs {name}: {reason}")),
            Some(Availability::From { .. } | Availability::NotNow | Availability::Computed { .. }) | None => {
            }
        }
        from.push(name.to_owned());
    }
    Availability::Computed { from }
}
