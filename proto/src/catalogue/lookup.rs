//! Search for metrics by name.

use super::metric::{Definition, Metric};
use super::origin::DEVICE_KIND;
use super::tables;
use crate::name::{MetricName, Selector};
use crate::series::{DEVICE_METRICS, Kind, Number, Unit};

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

/// Type of the values of a metric of a device outside the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceValue {
    Gauge,
    /// Counter of whole numbers.
    Count,
    /// Counter of whole numbers that begins at 0 again behind 32 bits.
    Count32,
    /// Counter of doubles.
    Sum,
}

/// Returns the metric `device.DEVICE.VALUE` with this unit and type; none for a name that is not valid.
pub fn of_device(device: &str, value: &str, unit: Unit, of_type: DeviceValue) -> Option<Definition> {
    let (kind, number, wraps) = match of_type {
        DeviceValue::Gauge => (Kind::Gauge, Number::Float, false),
        DeviceValue::Count => (Kind::Counter, Number::Unsigned, false),
        DeviceValue::Count32 => (Kind::Counter, Number::Unsigned, true),
        DeviceValue::Sum => (Kind::Counter, Number::Float, false),
    };
    let mut instances = tables::DEVICE_INSTANCES.iter().filter(|metric| metric.unit == unit);
    let metric = instances
        .find(|metric| (metric.kind, metric.number, metric.wraps_at.is_some()) == (kind, number, wraps))?;
    let definition = Definition { metric, instance: Some(format!("{device}.{value}").into()) };
    definition.descriptor().is_some().then_some(definition)
}

/// Returns the family of all metrics of devices outside the nodes.
pub fn devices() -> Option<Definition> {
    all().find(|metric| metric.is_of_kind(DEVICE_KIND)).map(Definition::of)
}

/// Returns the metrics that a selector matches. A wildcard selects whole families; a plain name may be an
/// instance of one. The family of devices is selected by each wildcard behind `device.`: what devices there
/// are, agents know.
pub fn select(selector: &Selector) -> Vec<Definition> {
    if selector.is_exact() {
        return find(selector.as_str()).into_iter().collect();
    }
    let is_of_devices = selector.as_str().starts_with(DEVICE_METRICS);
    all()
        .filter(|metric| selector.matches(metric.name) || (is_of_devices && metric.is_of_kind(DEVICE_KIND)))
        .map(Definition::of)
        .collect()
}
