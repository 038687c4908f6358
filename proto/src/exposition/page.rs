//! Pages of values in the text format 0.0.4 and in OpenMetrics 1.0.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::names::{LabelSet, Part, divisor, metric_name, unit_suffix};
use crate::series::{Kind, MetricDescriptor};

const TOTAL: &str = "_total";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text format 0.0.4 of Prometheus.
    Text,
    OpenMetrics,
}

impl Format {
    /// Chooses the format from the header `Accept`. A client that names none gets text, which all read; one
    /// that names both the one with the higher weight, and OpenMetrics if the weights are equal.
    pub fn negotiate(accept: &str) -> Self {
        let (mut text, mut open_metrics) = (0.0_f64, 0.0_f64);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let weight = parts.find_map(|part| part.strip_prefix("q=")?.trim().parse().ok()).unwrap_or(1.0);
            match kind.to_ascii_lowercase().as_str() {
                "application/openmetrics-text" => open_metrics = open_metrics.max(weight),
                "text/plain" | "text/*" | "*/*" => text = text.max(weight),
                _ => {}
            }
        }
        if open_metrics > 0.0 && open_metrics >= text { Self::OpenMetrics } else { Self::Text }
    }

    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

#[derive(Debug)]
struct Family {
    kind: Kind,
    unit: Option<&'static str>,
    help: &'static str,
    /// Values and their times by the text of the labels.
    values: BTreeMap<String, (i64, f64)>,
}

/// Values by metric. Each series is on the page once, with its newest value.
#[derive(Debug, Default)]
pub struct Page {
    /// By the name without `_total`.
    families: BTreeMap<String, Family>,
}

impl Page {
    /// Adds a value in the unit of the store. Returns false if the name of the metric is taken by one of
    /// another kind or unit, as two users may choose it.
    pub fn add(
        &mut self,
        metric: &MetricDescriptor,
        help: &'static str,
        labels: LabelSet,
        (time_us, value): (i64, f64),
    ) -> bool {
        let name = metric_name(metric, Part::Last);
        let unit = unit_suffix(metric.unit);
        let Some(family) = self.family(&name, metric.kind, unit, help) else { return false };
        family.put(label_text(labels), time_us, value / divisor(metric.unit));
        true
    }

    /// Adds a value of a metric outside of the catalogue, by its name on the page, which ends in `_total` for
    /// counters only.
    pub fn add_named(
        &mut self,
        (name, kind): (&str, Kind),
        help: &'static str,
        labels: LabelSet,
        value: f64,
    ) {
        if let Some(family) = self.family(name, kind, None, help) {
            family.put(label_text(labels), 0, value);
        }
    }

    fn family(
        &mut self,
        name: &str,
        kind: Kind,
        unit: Option<&'static str>,
        help: &'static str,
    ) -> Option<&mut Family> {
        let base = match kind {
            Kind::Counter => name.strip_suffix(TOTAL).unwrap_or(name),
            Kind::Gauge => name,
        };
        let family = self.families.entry(base.to_owned()).or_insert_with(|| Family {
            kind,
            unit,
            help,
            values: BTreeMap::new(),
        });
        (family.kind == kind && family.unit == unit).then_some(family)
    }

    pub fn series(&self) -> usize {
        self.families.values().map(|family| family.values.len()).sum()
    }

    pub fn to_text(&self, format: Format) -> String {
        let mut text = String::new();
        for (base, family) in &self.families {
            family.write(base, format, &mut text);
        }
        if format == Format::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }
}

impl Family {
    fn put(&mut self, labels: String, time_us: i64, value: f64) {
        let newest = self.values.entry(labels).or_insert((time_us, value));
        if newest.0 <= time_us {
            *newest = (time_us, value);
        }
    }

    fn write(&self, base: &str, format: Format, text: &mut String) {
        let total = if self.kind == Kind::Counter { TOTAL } else { "" };
        let family_total = if format == Format::Text { total } else { "" };
        let kind = self.kind.as_str();
        let is_open_metrics = format == Format::OpenMetrics;
        // Writing to a string cannot fail.
        writeln!(text, "# HELP {base}{family_total} {}", escaped(self.help, is_open_metrics)).ok();
        writeln!(text, "# TYPE {base}{family_total} {kind}").ok();
        // The unit must end the name, behind which user-supplied metrics may have words.
        if let Some(unit) = self.unit.filter(|unit| is_open_metrics && base.ends_with(unit)) {
            writeln!(text, "# UNIT {base} {unit}").ok();
        }
        for (labels, (_, value)) in &self.values {
            writeln!(text, "{base}{total}{labels} {}", number(*value)).ok();
        }
    }
}

fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() }
    } else if value != 0.0 && !(1e-6..1e17).contains(&value.abs()) {
        format!("{value:e}")
    } else {
        value.to_string()
    }
}

fn label_text(labels: LabelSet) -> String {
    let mut text = String::new();
    for (name, value) in labels.into_pairs() {
        text.push(if text.is_empty() { '{' } else { ',' });
        write!(text, "{name}=\"{}\"", escaped(&value, true)).ok();
    }
    if !text.is_empty() {
        text.push('}');
    }
    text
}

fn escaped(text: &str, with_quotes: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '"' if with_quotes => escaped.push_str("\\\""),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::MetricName;
    use crate::series::{Labels, Number, Unit};

    fn metric(name: &'static str, unit: Unit, kind: Kind) -> MetricDescriptor {
        MetricDescriptor { name: MetricName::new(name).unwrap(), unit, kind, number: Number::Unsigned }
    }

    fn labels(job: Option<&str>, own: &[(&str, &str)]) -> LabelSet {
        let pairs = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        LabelSet::new("n1", job, &[], &Labels::new(pairs.collect()).unwrap())
    }

    fn page() -> Page {
        let mut page = Page::default();
        let usage = metric("cpu.usage", Unit::Nanoseconds, Kind::Counter);
        assert!(page.add(&usage, "CPU time.", labels(Some("7"), &[]), (2, 1_500_000_000.0)));
        assert!(page.add(&usage, "CPU time.", labels(Some("7"), &[]), (1, 0.0)), "an older one");
        let current = metric("memory.current", Unit::Bytes, Kind::Gauge);
        assert!(page.add(&current, "A \"b\" \\.", labels(None, &[("path", "C:\\a \"b\"")]), (1, 3.0)));
        let own = metric("user.loss", Unit::Labelled, Kind::Gauge);
        assert!(page.add(&own, "x.", labels(Some("7"), &[("rank", "0")]), (1, f64::NAN)));
        assert!(page.add(&own, "x.", labels(Some("7"), &[("rank", "1")]), (1, f64::NEG_INFINITY)));
        page
    }

    #[test]
    fn both_formats_have_the_same_samples() {
        assert_eq!(
            page().to_text(Format::Text),
            "# HELP polymeter_cpu_usage_seconds_total CPU time.\n\
             # TYPE polymeter_cpu_usage_seconds_total counter\n\
             polymeter_cpu_usage_seconds_total{jobid=\"7\",node=\"n1\"} 1.5\n\
             # HELP polymeter_memory_current_bytes A \"b\" \\\\.\n\
             # TYPE polymeter_memory_current_bytes gauge\n\
             polymeter_memory_current_bytes{node=\"n1\",path=\"C:\\\\a \\\"b\\\"\"} 3\n\
             # HELP polymeter_user_loss x.\n\
             # TYPE polymeter_user_loss gauge\n\
             polymeter_user_loss{jobid=\"7\",node=\"n1\",rank=\"0\"} NaN\n\
             polymeter_user_loss{jobid=\"7\",node=\"n1\",rank=\"1\"} -Inf\n"
        );
        assert_eq!(
            page().to_text(Format::OpenMetrics),
            "# HELP polymeter_cpu_usage_seconds CPU time.\n\
             # TYPE polymeter_cpu_usage_seconds counter\n\
             # UNIT polymeter_cpu_usage_seconds seconds\n\
             polymeter_cpu_usage_seconds_total{jobid=\"7\",node=\"n1\"} 1.5\n\
             # HELP polymeter_memory_current_bytes A \\\"b\\\" \\\\.\n\
             # TYPE polymeter_memory_current_bytes gauge\n\
             # UNIT polymeter_memory_current_bytes bytes\n\
             polymeter_memory_current_bytes{node=\"n1\",path=\"C:\\\\a \\\"b\\\"\"} 3\n\
             # HELP polymeter_user_loss x.\n\
             # TYPE polymeter_user_loss gauge\n\
             polymeter_user_loss{jobid=\"7\",node=\"n1\",rank=\"0\"} NaN\n\
             polymeter_user_loss{jobid=\"7\",node=\"n1\",rank=\"1\"} -Inf\n\
             # EOF\n"
        );
    }

    #[test]
    fn a_name_has_one_meaning() {
        let mut page = Page::default();
        let mut add =
            |name, unit, kind| page.add(&metric(name, unit, kind), "x.", labels(None, &[]), (1, 1.0));
        assert!(add("user.a", Unit::Labelled, Kind::Counter));
        assert!(!add("user.a", Unit::Labelled, Kind::Gauge), "the family of OpenMetrics is the same");
        assert!(add("user.a.total", Unit::Labelled, Kind::Gauge), "it does not end in _total");
        assert!(add("user.c.bytes", Unit::Labelled, Kind::Gauge));
        assert!(!add("user.c", Unit::Bytes, Kind::Gauge));
        assert_eq!(page.series(), 3);
    }

    #[test]
    fn the_accepted_format_is_chosen() {
        for (accept, format) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/html, image/png;q=x", Format::Text),
            ("application/openmetrics-text; version=1.0.0", Format::OpenMetrics),
            (
                "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Format::OpenMetrics,
            ),
            ("application/openmetrics-text;q=0.2, text/plain;q=0.5", Format::Text),
            ("application/openmetrics-text;q=0", Format::Text),
        ] {
            assert_eq!(Format::negotiate(accept), format, "{accept}");
        }
    }

    #[test]
    fn numbers_are_read_back() {
        for value in [0.0, -0.0, 1.0, 1e-7, -2.5e300, 1.25e17, 9_007_199_254_740_993.0, f64::MIN_POSITIVE] {
            assert_eq!(number(value).parse::<f64>().unwrap().to_bits(), value.to_bits());
        }
    }
}
