//! Units and kinds of the series of exporters.
//!
//! `node_cpu_seconds_total` is a counter in seconds, stored as nanoseconds: the end of a name states the
//! unit, or the end of the help does, as NVIDIA's exporter writes it. A type that the page does not state is
//! a gauge, unless the name ends in `_total`. Names that Polymeter gives a series are lower case, without the
//! unit of a time.

use std::collections::HashMap;

use super::parser::FamilyKind;
use crate::series::{Kind, Unit};

#[derive(Debug, Clone, Copy, Default)]
struct Family {
    kind: Option<FamilyKind>,
    help_unit: Option<(Unit, f64)>,
}

#[derive(Debug, Default)]
pub(super) struct Families<'a> {
    known: HashMap<&'a str, Family>,
    /// Family of those beyond the limit.
    ignored: Family,
}

/// Ends of the names of samples that their family's name lacks.
const SAMPLE_ENDS: [&str; 8] =
    ["_total", "_created", "_bucket", "_sum", "_count", "_gsum", "_gcount", "_info"];

fn without_sample_end(name: &str) -> &str {
    SAMPLE_ENDS.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

impl<'a> Families<'a> {
    /// Notes what a page states about a family; of those beyond the limit nothing is kept.
    pub(super) fn note_kind(&mut self, name: &'a str, limit: usize, kind: FamilyKind) {
        self.family(name, limit).kind = Some(kind);
    }

    pub(super) fn note_help(&mut self, name: &'a str, limit: usize, text: &str) {
        self.family(name, limit).help_unit = help_unit(text);
    }

    fn family(&mut self, name: &'a str, limit: usize) -> &mut Family {
        if self.known.len() >= limit && !self.known.contains_key(name) {
            return &mut self.ignored;
        }
        self.known.entry(name).or_default()
    }

    /// Unit of the series of a name, the factor to it, and their kind. In OpenMetrics a family's name is
    /// shorter than that of its counter.
    pub(super) fn describe(&self, name: &str) -> ((Unit, f64), Kind) {
        let family = self.known.get(name).or_else(|| self.known.get(without_sample_end(name)));
        let family = family.copied().unwrap_or_default();
        let unit = name_unit(name).or(family.help_unit).unwrap_or((Unit::Count, 1.0));
        (unit, kind(name, family.kind))
    }
}

fn kind(name: &str, family: Option<FamilyKind>) -> Kind {
    let is_counter = match family {
        Some(FamilyKind::Counter) => !name.ends_with("_created"),
        Some(FamilyKind::Histogram | FamilyKind::Summary) => {
            ["_bucket", "_sum", "_count"].iter().any(|end| name.ends_with(end))
        }
        Some(FamilyKind::Unknown) | None => name.ends_with("_total"),
        Some(FamilyKind::Gauge | FamilyKind::GaugeHistogram | FamilyKind::Info | FamilyKind::StateSet) => {
            false
        }
    };
    if is_counter { Kind::Counter } else { Kind::Gauge }
}

/// Units at the end of names, with the factor to that of the catalogue.
const NAME_UNITS: [(&str, Unit, f64); 13] = [
    ("_milliseconds", Unit::Nanoseconds, 1e6),
    ("_microseconds", Unit::Nanoseconds, 1e3),
    ("_nanoseconds", Unit::Nanoseconds, 1.0),
    ("_seconds", Unit::Nanoseconds, 1e9),
    ("_bytes_per_second", Unit::BytesPerSecond, 1.0),
    ("_bytes", Unit::Bytes, 1.0),
    ("_celsius", Unit::Celsius, 1.0),
    ("_joules", Unit::Joules, 1.0),
    ("_watts", Unit::Watts, 1.0),
    ("_hertz", Unit::Hertz, 1.0),
    ("_volts", Unit::Volts, 1.0),
    ("_amperes", Unit::Amperes, 1.0),
    ("_rpm", Unit::RevolutionsPerMinute, 1.0),
];

fn name_unit(name: &str) -> Option<(Unit, f64)> {
    if ["_count", "_bucket", "_gcount", "_info"].iter().any(|end| name.ends_with(end)) {
        return Some((Unit::Count, 1.0));
    }
    let base = without_sample_end(name);
    let found = NAME_UNITS.iter().find(|(end, ..)| base.ends_with(end));
    found.map(|(_, unit, factor)| (*unit, *factor)).or_else(|| {
        let is_time = name.ends_with("_created");
        is_time.then_some((Unit::Nanoseconds, 1e9))
    })
}

/// Units in parentheses at the end of a help, as NVIDIA's exporter states them.
fn help_unit(text: &str) -> Option<(Unit, f64)> {
    let (_, rest) = text.rsplit_once("(in ")?;
    Some(match rest.trim_end_matches('.').strip_suffix(')')? {
        "W" => (Unit::Watts, 1.0),
        "mJ" => (Unit::Joules, 1e-3),
        "C" => (Unit::Celsius, 1.0),
        "MHz" => (Unit::Hertz, 1e6),
        "%" => (Unit::Percent, 1.0),
        "MiB" => (Unit::Bytes, 1_048_576.0),
        _ => return None,
    })
}

/// Name in the catalogue's form. A word that states a unit of time is left out, as values are nanoseconds.
pub fn catalogue_name(name: &str) -> String {
    let base = without_sample_end(name);
    let end = name.strip_prefix(base).unwrap_or_default();
    let unit = NAME_UNITS.iter().find(|(end, ..)| base.ends_with(end));
    let base = match unit {
        Some((end, Unit::Nanoseconds, _)) => base.strip_suffix(end).unwrap_or(base),
        _ => base,
    };
    format!("{base}{end}").chars().map(|c| if c == ':' { '_' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_catalogue() {
        for (name, expected) in [
            ("node_cpu_seconds_total", "node_cpu_total"),
            ("node_memory_MemFree_bytes", "node_memory_memfree_bytes"),
            ("go_gc_duration_seconds_sum", "go_gc_duration_sum"),
            ("job:up:rate5m", "job_up_rate5m"),
            ("DCGM_FI_DEV_GPU_UTIL", "dcgm_fi_dev_gpu_util"),
        ] {
            assert_eq!(catalogue_name(name), expected);
        }
    }
}
