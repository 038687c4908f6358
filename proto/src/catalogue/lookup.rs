//! Search for metrics by name.

use super::metric::{Definition, Metric};
use super::tables;
use crate::name::{MetricName, Selector};
use crate::series::Unit;

/// Returns all metrics, in the order of the documentation.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    tables::ALL.iter().copied().flatten()
}

/// Finds a metric by exactly this name, which may be an instance of a family.
pub fn find(name: &str) -> Option<Definition> {
    if let Some(metric) = all().find(|metric| metric.name == name && metric.family_prefix().is_none()) {
        return Some(Definition::of(metric));
    }
    MetricName::new(name.to_owned()).ok()?;
    all().find_map(|metric| {
        let instance = name.strip_prefix(metric.family_prefix()?)?;
        metric.has_instance(instance).then(|| Definition { metric, instance: Some(instance.into()) })
    })
}

/// A named perf event whose values are doubles of a unit. Other metrics stay as they are.
pub fn measured_in(definition: Definition, unit: Unit) -> Definition {
    let mut scaled = tables::SCALED_EVENTS.iter();
    let found = scaled.find(|metric| metric.name == definition.metric.name && metric.unit == unit);
    Definition { metric: found.unwrap_or(definition.metric), ..definition }
}

/// Returns the metrics that a selector matches. A wildcard selects whole families; a plain name may be an
/// instance of one.
pub fn select(selector: &Selector) -> Vec<Definition> {
    if selector.is_exact() {
        return find(selector.as_str()).into_iter().collect();
    }
    all().filter(|metric| selector.matches(metric.name)).map(Definition::of).collect()
}
