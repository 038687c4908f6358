//! The page of a mock exporter: the values that a mock agent of the same number sends, in Prometheus' text
//! format, 0.0.4.

use std::io::Write;
use std::sync::Arc;

use polymeter_benches::mock::Script;
use polymeter_proto::batch::Shape;
use polymeter_proto::catalogue;
use polymeter_proto::series::{Kind, MetricDescriptor, Number};

/// Parts that all pages share: for each shape of a script, its columns.
#[derive(Debug)]
pub(crate) struct Page {
    shapes: Vec<Vec<Family>>,
}

/// A metric with a single sample.
#[derive(Debug)]
struct Family {
    /// Name in Prometheus.
    name: String,
    /// Text before the value.
    head: String,
    number: Number,
}

impl Page {
    pub(crate) fn of(script: &Script) -> Self {
        let families =
            |shape: &Arc<Shape>| shape.columns.iter().map(|column| Family::of(&column.metric.1)).collect();
        Self { shapes: script.shapes().iter().map(families).collect() }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.shapes.iter().flatten().map(|family| family.name.as_str())
    }

    /// Appends the page of one tick. Absent values are left out.
    pub(crate) fn write(&self, script: &Script, tick: usize, text: &mut Vec<u8>) {
        for (shape, values) in script.rows(tick) {
            for (family, value) in self.shapes.get(shape).into_iter().flatten().zip(values) {
                if let Some(bits) = value {
                    family.write(*bits, text);
                }
            }
        }
    }
}

impl Family {
    fn of(metric: &MetricDescriptor) -> Self {
        let name = name(metric);
        let canonical = metric.name.to_string();
        let help = catalogue::find(&canonical).map_or(canonical, |found| found.metric.help.to_owned());
        let kind = metric.kind.as_str();
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        Self {
            head: format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} "),
            name,
            number: metric.number,
        }
    }

    fn write(&self, bits: u64, text: &mut Vec<u8>) {
        text.extend_from_slice(self.head.as_bytes());
        // Writing to a vector does not fail.
        match self.number {
            Number::Unsigned => writeln!(text, "{bits}"),
            Number::Signed => writeln!(text, "{}", bits.cast_signed()),
            Number::Float => writeln!(text, "{}", f64::from_bits(bits)),
        }
        .ok();
    }
}

/// Names a metric by Prometheus' conventions: underscores for dots, the unit as a suffix, and `_total` after
/// a counter's.
fn name(metric: &MetricDescriptor) -> String {
    let mut name = metric.name.to_string().replace('.', "_");
    let unit = metric.unit.as_str();
    if !matches!(unit, "count" | "labelled") && !name.ends_with(unit) {
        name.push('_');
        name.push_str(unit);
    }
    if metric.kind == Kind::Counter {
        name.push_str("_total");
    }
    name
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use polymeter_benches::recording::RECORDED;
    use polymeter_proto::name::MetricName;
    use polymeter_proto::period::Period;
    use polymeter_proto::series::Unit;

    use super::*;

    fn metric(name: &'static str, unit: Unit, kind: Kind, number: Number) -> MetricDescriptor {
        MetricDescriptor { name: MetricName::new(name).unwrap(), unit, kind, number }
    }

    #[test]
    fn names_are_as_prometheus_wants_them() {
        let named = |text, unit, kind| name(&metric(text, unit, kind, Number::Unsigned));
        assert_eq!(named("cpu.usage", Unit::Nanoseconds, Kind::Counter), "cpu_usage_nanoseconds_total");
        assert_eq!(named("io.read.bytes", Unit::Bytes, Kind::Counter), "io_read_bytes_total");
        assert_eq!(named("memory.anon", Unit::Bytes, Kind::Gauge), "memory_anon_bytes");
        assert_eq!(named("perf.page_faults", Unit::Count, Kind::Counter), "perf_page_faults_total");
    }

    #[test]
    fn a_family_has_help_type_and_one_sample() {
        let unknown = Family::of(&metric("no.such", Unit::Count, Kind::Gauge, Number::Signed));
        assert_eq!(text_of(&unknown, u64::MAX), "# HELP no_such no.such\n# TYPE no_such gauge\nno_such -1\n");
        let float = Family::of(&metric("no.such", Unit::Count, Kind::Gauge, Number::Float));
        assert!(text_of(&float, 0.5_f64.to_bits()).ends_with("\nno_such 0.5\n"));
        assert!(text_of(&float, f64::NAN.to_bits()).ends_with("\nno_such NaN\n"));
    }

    fn text_of(family: &Family, bits: u64) -> String {
        let mut text = Vec::new();
        family.write(bits, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_page_has_the_values_that_an_agent_sends() {
        let script = Script::read(Path::new(RECORDED), Period::SECOND).unwrap();
        let page = Page::of(&script);
        let names: BTreeSet<&str> = page.names().collect();
        assert_eq!((names.len(), page.names().count()), (50, script.samples_per_tick()));
        let sent: Vec<String> =
            script.rows(7).flat_map(|(_, values)| values.iter().flatten().map(u64::to_string)).collect();
        let shown: Vec<String> = lines_of(&page, &script, 7)
            .iter()
            .map(|line| line.split_once(' ').unwrap().1.to_owned())
            .collect();
        assert_eq!(shown, sent);
        assert_eq!(shown.len(), 50);
        assert_ne!(
            lines_of(&page, &script, script.tick_after(7)),
            lines_of(&page, &script, 7),
            "values change"
        );
    }

    fn lines_of(page: &Page, script: &Script, tick: usize) -> Vec<String> {
        let mut text = Vec::new();
        page.write(script, tick, &mut text);
        let text = String::from_utf8(text).unwrap();
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(str::to_owned).collect::<Vec<_>>()
    }
}
