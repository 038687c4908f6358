//! Names of metrics and labels in the data model of OpenMetrics.
//!
//! `cpu.usage`, a counter of nanoseconds, becomes `polymeter_cpu_usage_seconds_total`: the unit is a suffix,
//! and so is `_total` of a counter. A gauge whose name ends like a counter's gets `_value`. Nanoseconds become
//! seconds, the base unit; all other values are those of the store.

use crate::series::{Kind, Labels, MetricDescriptor, Unit};

/// Of all metrics of the project.
const PREFIX: &str = "polymeter_";

/// A gauge of 1 whose labels are facts of a job.
pub const JOB_INFO: &str = "polymeter_job_info";

/// Ends of names that only counters, histograms and summaries may have.
const RESERVED_ENDS: [&str; 5] = ["_total", "_created", "_count", "_sum", "_bucket"];

const NODE: &str = "node";
const JOB: &str = "jobid";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Value of a series without windows, too.
    Last,
    Min,
    Max,
}

/// `_min` and `_max` are behind the unit. Such a series is a gauge, also that of a counter.
pub fn metric_name(metric: &MetricDescriptor, part: Part) -> String {
    let mut name = String::from(PREFIX);
    name.extend(metric.name.as_str().chars().map(|c| if c == '.' { '_' } else { c }));
    // The kernel's abbreviation would be read as seconds.
    if name.contains("_sec_") {
        name = name.replace("_sec_", "_secondary_");
    }
    if let Some(unit) = unit_suffix(metric.unit) {
        let has_unit = name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_'));
        if !has_unit {
            name.push('_');
            name.push_str(unit);
        }
    }
    match (part, metric.kind) {
        (Part::Last, Kind::Counter) => name.push_str("_total"),
        (Part::Last, Kind::Gauge) if RESERVED_ENDS.iter().any(|end| name.ends_with(end)) => {
            name.push_str("_value");
        }
        (Part::Last, Kind::Gauge) => {}
        (Part::Min, _) => name.push_str("_min"),
        (Part::Max, _) => name.push_str("_max"),
    }
    name
}

/// None for numbers, and for units that a label states.
pub const fn unit_suffix(unit: Unit) -> Option<&'static str> {
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
pub const fn divisor(unit: Unit) -> f64 {
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
pub struct LabelSet(Vec<(String, String)>);

impl LabelSet {
    /// Node and job, the configured labels, and the series' own. One of its own with a name that is taken
    /// gets the prefix `exported_`, as in Prometheus.
    pub fn new(node: &str, job: Option<&str>, configured: &[(String, String)], own: &Labels) -> Self {
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
    pub fn add(&mut self, name: &str, value: &str) {
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

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Pairs of a name and a value, sorted by name, with `__name__` among them.
    pub fn with_name(mut self, name: &str) -> Vec<(String, String)> {
        self.0.push(("__name__".to_owned(), name.to_owned()));
        self.0.sort();
        self.0
    }

    /// Sorts the labels by name.
    pub fn into_pairs(mut self) -> Vec<(String, String)> {
        self.0.sort();
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::catalogue;
    use crate::name::MetricName;
    use crate::series::Number;

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
            ("process.count", Unit::Count, Kind::Gauge, "polymeter_process_count_value"),
            (
                "node.numa.hugepages.total",
                Unit::Count,
                Kind::Gauge,
                "polymeter_node_numa_hugepages_total_value",
            ),
            (
                "memory.sec_pagetables",
                Unit::Bytes,
                Kind::Gauge,
                "polymeter_memory_secondary_pagetables_bytes",
            ),
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
        let set = LabelSet::new("n1", None, &[pair("Site", "here")], &own);
        let labels = set.with_name("up");
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
