//! Names of metrics and labels in the data model of OpenMetrics.
//!
//! `cpu.usage`, a counter of nanoseconds, becomes `polymeter_cpu_usage_seconds_total`: the unit is a suffix,
//! and so is `_total` of a counter. Nanoseconds become seconds, the base unit; all other values are those of
//! the store.

use polymeter_proto::series::{Kind, Labels, MetricDescriptor, Unit};

const PREFIX: &str = "polymeter_";

pub(super) const JOB_INFO: &str = "polymeter_job_info";

pub(super) const NODE: &str = "node";
pub(super) const JOB: &str = "jobid";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Value of a series without windows, too.
    Last,
    Min,
    Max,
}

/// `_min` and `_max` are behind the unit. Such a series is a gauge, also that of a counter.
pub(super) fn metric_name(metric: &MetricDescriptor, part: Part) -> String {
    let mut name = String::from(PREFIX);
    name.extend(metric.name.as_str().chars().map(|c| if c == '.' { '_' } else { c }));
    if let Some(unit) = unit_suffix(metric.unit) {
        let has_unit = name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_'));
        if !has_unit {
            name.push('_');
            name.push_str(unit);
        }
    }
    match (part, metric.kind) {
        (Part::Last, Kind::Counter) => name.push_str("_total"),
        (Part::Last, Kind::Gauge) => {}
        (Part::Min, _) => name.push_str("_min"),
        (Part::Max, _) => name.push_str("_max"),
    }
    name
}

/// None for numbers, and for units that a label states.
const fn unit_suffix(unit: Unit) -> Option<&'static str> {
    match unit {
        Unit::Nanoseconds => Some("seconds"),
        Unit::BytesPerSecond => Some("bytes_per_second"),
        Unit::Count | Unit::Labelled => None,
        Unit::Bytes
        | Unit::Percent
        | Unit::Pages
        | Unit::Sectors
        | Unit::Cycles
        | Unit::Celsius
        | Unit::Joules
        | Unit::Watts
        | Unit::Hertz
        | Unit::Volts
        | Unit::Amperes
        | Unit::RevolutionsPerMinute => Some(unit.as_str()),
    }
}

/// Values are divided by it: 10^9 for nanoseconds, which become seconds.
pub(super) const fn divisor(unit: Unit) -> f64 {
    if matches!(unit, Unit::Nanoseconds) { 1e9 } else { 1.0 }
}

/// Makes a text the name of a label: `[a-zA-Z_][a-zA-Z0-9_]*`. Other characters become `_`. Names that begin
/// with `__` are reserved in Prometheus.
fn label_name(text: &str) -> String {
    let mut name: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        name.insert(0, '_');
    }
    if name.starts_with("__") { format!("label{name}") } else { name }
}

#[derive(Debug, Clone, Default)]
pub(super) struct LabelSet(Vec<(String, String)>);

impl LabelSet {
    /// Node and job, the configured labels, and the series' own. One of its own with a name that is taken
    /// gets the prefix `exported_`, as in Prometheus.
    pub(super) fn new(node: &str, job: Option<&str>, configured: &[(String, String)], own: &Labels) -> Self {
        let mut set = Self(vec![(NODE.to_owned(), node.to_owned())]);
        set.0.extend(job.map(|job| (JOB.to_owned(), job.to_owned())));
        for (name, value) in configured {
            set.add(name, value);
        }
        for (name, value) in own.iter() {
            set.add(name, value);
        }
        set
    }

    /// An empty value is the same as no label.
    pub(super) fn add(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        let mut name = label_name(name);
        // `jobid` of a node's own series is kept free, too, so that it means the same everywhere.
        while name == JOB || self.0.iter().any(|(known, _)| *known == name) {
            name.insert_str(0, "exported_");
        }
        self.0.push((name, value.to_owned()));
    }

    pub(super) fn encode(&mut self, name: &str) -> Vec<u8> {
        self.0.sort();
        // Sorted by bytes: `_` is behind all capital letters.
        let before = self.0.partition_point(|(label, _)| label.as_str() < "__name__");
        let (first, second) = self.0.split_at_checked(before).unwrap_or((&self.0, &[]));
        let pair = |(name, value): &'_ (String, String)| (name.clone(), value.clone());
        let all: Vec<_> = first
            .iter()
            .map(pair)
            .chain([("__name__".to_owned(), name.to_owned())])
            .chain(second.iter().map(pair))
            .collect();
        super::request::encode_labels(all.iter().map(|(name, value)| (name.as_str(), value.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use polymeter_proto::catalogue;
    use polymeter_proto::name::MetricName;
    use polymeter_proto::series::Number;

    use super::*;

    fn metric(name: &'static str, unit: Unit, kind: Kind) -> MetricDescriptor {
        MetricDescriptor { name: MetricName::new(name).unwrap(), unit, kind, number: Number::Unsigned }
    }

    #[test]
    fn names_have_the_unit_and_total() {
        for (name, unit, kind, expected) in [
            ("cpu.usage", Unit::Nanoseconds, Kind::Counter, "polymeter_cpu_usage_seconds_total"),
            ("memory.anon", Unit::Bytes, Kind::Gauge, "polymeter_memory_anon_bytes"),
            ("io.read.bytes", Unit::Bytes, Kind::Counter, "polymeter_io_read_bytes_total"),
            (
                "node.network.speed",
                Unit::BytesPerSecond,
                Kind::Gauge,
                "polymeter_node_network_speed_bytes_per_second",
            ),
            ("memory.events.max", Unit::Count, Kind::Counter, "polymeter_memory_events_max_total"),
            ("user.loss", Unit::Labelled, Kind::Gauge, "polymeter_user_loss"),
        ] {
            assert_eq!(metric_name(&metric(name, unit, kind), Part::Last), expected);
        }
        let usage = metric("cpu.usage", Unit::Nanoseconds, Kind::Counter);
        assert_eq!(metric_name(&usage, Part::Min), "polymeter_cpu_usage_seconds_min");
        assert_eq!(metric_name(&usage, Part::Max), "polymeter_cpu_usage_seconds_max");
    }

    #[test]
    fn names_of_the_catalogue_are_valid_and_distinct() {
        let mut names = BTreeMap::new();
        for declared in catalogue::all() {
            let plain = declared.name.replace('*', "x");
            let of = MetricDescriptor {
                name: MetricName::new(plain).unwrap(),
                unit: declared.unit,
                kind: declared.kind,
                number: Number::Float,
            };
            for part in [Part::Last, Part::Min, Part::Max] {
                let name = metric_name(&of, part);
                assert!(
                    name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                    "{name}"
                );
                let other = names.insert(name.clone(), declared.name);
                assert_eq!(other, None, "{name} is also the name of {}", declared.name);
            }
        }
    }

    #[test]
    fn labels_are_sorted_valid_and_unique() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let own =
            Labels::new(vec![pair("cpu", "3"), pair("node", "1"), pair("0-a", "ü"), pair("jobid", "x")])
                .unwrap();
        let mut set = LabelSet::new("n1", None, &[pair("Site", "here")], &own);
        let mut body = super::super::request::RequestBuilder::default();
        body.add(&set.encode("up"), &[(1, 0)]);
        let (labels, _) = super::super::request::decode_v1(body.body()).unwrap().remove(0);
        let expected = [
            ("Site", "here"),
            ("_0_a", "ü"),
            ("__name__", "up"),
            ("cpu", "3"),
            ("exported_jobid", "x"),
            ("exported_node", "1"),
            ("node", "n1"),
        ];
        assert_eq!(labels, expected.map(|(name, value)| pair(name, value)));
    }
}
