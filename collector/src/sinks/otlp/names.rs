//! Names and units of metrics: those of the catalogue, and the Unified Code for Units of Measure (UCUM).
//!
//! Receivers that turn them into names of Prometheus find those of remote_write: `polymeter.cpu.usage`, a sum
//! in `s`, becomes `polymeter_cpu_usage_seconds_total`.

use polymeter_proto::exposition::Part;
use polymeter_proto::series::{Kind, Unit};

use crate::sinks::outbound::Named;

/// Labels that become no attributes.
pub(super) const UNIT: &str = "__unit__";
pub(super) const TYPE: &str = "__type__";

/// Type of a cumulative monotonic sum; others are gauges.
pub(super) const COUNTER: &str = "counter";

pub(super) fn names(named: Named<'_>) -> Vec<(&'static str, String)> {
    let Named::Metric(metric, part) = named else {
        return vec![("__name__", "polymeter.job.info".to_owned())];
    };
    let end = match part {
        Part::Last => "",
        Part::Min => ".min",
        Part::Max => ".max",
    };
    let mut names = vec![("__name__", format!("polymeter.{}{end}", metric.name.as_str()))];
    if let Some(unit) = ucum(metric.unit) {
        names.push((UNIT, unit.to_owned()));
    }
    if metric.kind == Kind::Counter && part == Part::Last {
        names.push((TYPE, COUNTER.to_owned()));
    }
    names
}

/// Unit of the values that are sent; none if a label states it. Nanoseconds are sent as seconds.
const fn ucum(unit: Unit) -> Option<&'static str> {
    Some(match unit {
        Unit::Bytes => "By",
        Unit::Nanoseconds => "s",
        Unit::Percent => "%",
        Unit::Pages => "{page}",
        Unit::Sectors => "{sector}",
        Unit::Cycles => "{cycle}",
        // "1" would mean a ratio.
        Unit::Count => "{count}",
        Unit::Labelled => return None,
        Unit::Celsius => "Cel",
        Unit::Joules => "J",
        Unit::Watts => "W",
        Unit::Hertz => "Hz",
        Unit::Volts => "V",
        Unit::Amperes => "A",
        Unit::RevolutionsPerMinute => "{revolution}/min",
        Unit::BytesPerSecond => "By/s",
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use polymeter_proto::catalogue;
    use polymeter_proto::name::MetricName;
    use polymeter_proto::series::{MetricDescriptor, Number};

    use super::*;

    /// The names that `docs/how-to/otlp.md` states.
    #[test]
    fn names_are_those_of_the_catalogue() {
        let of = |name: &'static str, unit, kind, part| {
            let name = MetricName::new(name).unwrap();
            names(Named::Metric(&MetricDescriptor { name, unit, kind, number: Number::Float }, part))
        };
        let pairs = |list: &[(&'static str, &str)]| {
            list.iter().map(|(name, value)| (*name, (*value).to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(
            of("cpu.usage", Unit::Nanoseconds, Kind::Counter, Part::Last),
            pairs(&[("__name__", "polymeter.cpu.usage"), ("__unit__", "s"), ("__type__", "counter")])
        );
        assert_eq!(
            of("cpu.usage", Unit::Nanoseconds, Kind::Counter, Part::Max),
            pairs(&[("__name__", "polymeter.cpu.usage.max"), ("__unit__", "s")])
        );
        assert_eq!(
            of("user.loss", Unit::Labelled, Kind::Gauge, Part::Last),
            pairs(&[("__name__", "polymeter.user.loss")])
        );
        assert_eq!(names(Named::JobInfo), pairs(&[("__name__", "polymeter.job.info")]));
    }

    #[test]
    fn names_of_the_catalogue_are_distinct() {
        let mut known = BTreeSet::from([names(Named::JobInfo).swap_remove(0).1]);
        for declared in catalogue::all() {
            let name = MetricName::new(declared.name.replace('*', "x")).unwrap();
            let metric =
                MetricDescriptor { name, unit: declared.unit, kind: declared.kind, number: Number::Float };
            for part in [Part::Last, Part::Min, Part::Max] {
                let name = names(Named::Metric(&metric, part)).swap_remove(0).1;
                assert!(known.insert(name.clone()), "{name}");
            }
        }
    }
}
