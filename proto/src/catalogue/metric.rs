//! Metrics and their definitions.

use std::fmt;
use std::sync::Arc;

use super::origin::{DEVICE_KIND, Origin};
use super::perf_event::{self, PerfEvent};
use crate::name::MetricName;
use crate::period::Period;
use crate::series::{Kind, MetricDescriptor, Number, Unit};

/// A metric, or a family of metrics whose names end in an instance that only the machine knows.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// A family's name ends in `*`, which stands for the instance.
    pub name: &'static str,
    pub unit: Unit,
    pub kind: Kind,
    pub number: Number,
    pub scope: Scope,
    /// Ways to read it, the best first.
    pub origins: &'static [Origin],
    /// One sentence.
    pub help: &'static str,
    /// Longest lag of its values behind the counted quantity, where the origins do not state it.
    granularity: Option<Period>,
    /// True for a perf event with a series for each CPU, instead of their sum.
    pub is_per_cpu: bool,
    /// Value at which the kernel's counter begins at 0 again, in the unit of the metric; none for counters of
    /// 64 bits.
    pub wraps_at: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Read from cgroups, perf groups or processes of jobs.
    Job,
    Node,
    Agent,
}

impl Metric {
    pub(crate) const fn new(
        name: &'static str,
        unit: Unit,
        kind: Kind,
        scope: Scope,
        origins: &'static [Origin],
        help: &'static str,
    ) -> Self {
        Self {
            name,
            unit,
            kind,
            number: Number::Unsigned,
            scope,
            origins,
            help,
            granularity: None,
            is_per_cpu: false,
            wraps_at: None,
        }
    }

    /// Returns the time within which a counter is accurate: its increase over a window may include or miss
    /// the events within this time. A rate over a shorter window is meaningless. The coarsest of several
    /// origins counts. None if every read is exact, and for gauges that the kernel computes at every read.
    pub fn granularity(&self) -> Option<Period> {
        self.granularity.or_else(|| self.origins.iter().filter_map(Origin::granularity).max())
    }

    pub(crate) const fn counter(
        name: &'static str,
        unit: Unit,
        origins: &'static [Origin],
        help: &'static str,
    ) -> Self {
        Self::new(name, unit, Kind::Counter, Scope::Job, origins, help)
    }

    pub(crate) const fn gauge(
        name: &'static str,
        unit: Unit,
        origins: &'static [Origin],
        help: &'static str,
    ) -> Self {
        Self::new(name, unit, Kind::Gauge, Scope::Job, origins, help)
    }

    pub(crate) const fn of_node(self) -> Self {
        Self { scope: Scope::Node, ..self }
    }

    /// Sets how far values may lag behind, which overrides the granularity of the origins.
    pub(crate) const fn updated_every(self, granularity: Period) -> Self {
        Self { granularity: Some(granularity), ..self }
    }

    /// Marks a counter that the kernel shows with 32 bits in units of `factor`.
    pub(crate) const fn of_32_bits(self, factor: u64) -> Self {
        Self { wraps_at: Some((1 << 32) * factor), ..self }
    }

    /// Gives each CPU a series.
    pub(crate) const fn per_cpu(self) -> Self {
        Self { is_per_cpu: true, ..self }
    }

    /// Makes the values doubles.
    pub(crate) const fn float(self) -> Self {
        Self { number: Number::Float, ..self }
    }

    pub fn is_of_kind(&self, kind: &str) -> bool {
        self.origins.iter().any(|origin| origin.kind() == kind)
    }

    /// Returns the field that the source kind with this name reads; none if another kind reads the metric.
    pub fn field_of(&self, kind: &str) -> Option<&'static str> {
        self.origins.iter().find_map(|origin| origin.field_of(kind))
    }

    /// Returns the name of a family without its `*`.
    pub(crate) fn family_prefix(&self) -> Option<&'static str> {
        self.name.strip_suffix('*')
    }

    /// Returns true if `instance` is a valid instance name of this family. The machine need not have the
    /// instance.
    pub(crate) fn has_instance(&self, instance: &str) -> bool {
        match self.origins {
            [Origin::Perf(PerfEvent::Raw)] => perf_event::raw_config(instance).is_some(),
            [Origin::Perf(PerfEvent::Named)] => !instance.is_empty(),
            [Origin::Perf(PerfEvent::Unit)] => instance.contains('.'),
            [Origin::Perf(PerfEvent::Tracepoint)] => perf_event::tracepoint(instance).is_some(),
            [Origin::Source(field)] if field.kind == DEVICE_KIND => instance.contains('.'),
            _ => !instance.is_empty() && !instance.contains('.'),
        }
    }
}

/// Wanted metric: one of the catalogue, or one instance of a family. Two with the same name are equal, in
/// whatever unit they are measured.
#[derive(Clone)]
pub struct Definition {
    /// That of the catalogue, or its twin in another unit: [`super::measured_in`].
    pub metric: &'static Metric,
    /// Text that the family's `*` stands for. None for a plain metric, and for a whole family.
    pub instance: Option<Arc<str>>,
}

impl Definition {
    /// Selects a plain metric, or a whole family.
    pub const fn of(metric: &'static Metric) -> Self {
        Self { metric, instance: None }
    }

    /// Returns true for a family without a chosen instance, which stands for all instances of the machine.
    pub fn is_family(&self) -> bool {
        self.instance.is_none() && self.metric.family_prefix().is_some()
    }

    pub fn is_of_file(&self) -> bool {
        self.metric.origins.iter().any(|origin| matches!(origin, Origin::Text { .. }))
    }

    pub fn is_perf(&self) -> bool {
        self.metric.origins.iter().any(|origin| matches!(origin, Origin::Perf(_)))
    }

    /// Returns true for a perf event that takes a counter of the hardware.
    pub fn is_of_hardware(&self) -> bool {
        let mut origins = self.metric.origins.iter();
        origins.any(|origin| matches!(origin, Origin::Perf(event) if event.is_of_hardware()))
    }

    /// Returns the canonical name. That of a whole family ends in `*`, as in the catalogue.
    pub fn name(&self) -> String {
        match (&self.instance, self.metric.family_prefix()) {
            (Some(instance), Some(prefix)) => format!("{prefix}{instance}"),
            _ => self.metric.name.to_owned(),
        }
    }

    /// Returns the dictionary entry; none for a whole family.
    pub fn descriptor(&self) -> Option<MetricDescriptor> {
        let name = match &self.instance {
            None if self.is_family() => return None,
            None => MetricName::from_catalogue(self.metric.name),
            Some(_) => MetricName::new(self.name()).ok()?,
        };
        Some(MetricDescriptor {
            name,
            unit: self.metric.unit,
            kind: self.metric.kind,
            number: self.metric.number,
        })
    }
}

impl PartialEq for Definition {
    fn eq(&self, other: &Self) -> bool {
        self.metric.name == other.metric.name && self.instance == other.instance
    }
}

impl Eq for Definition {}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}
