//! Declaration of every metric as data, with its name, unit, kind, help, and origins.
//!
//! The reference (`docs/reference/metrics.md`), ids, units in the database and the agent's sources are
//! derived from these tables. A new table is a file in `tables/` and a line of `tables::ALL`.

pub mod derived;
mod formula;
mod lookup;
mod metric;
mod origin;
mod perf_event;
mod supplied;
mod tables;
mod text_file;

use crate::name::Selector;
use crate::suggest;

pub use lookup::{DeviceValue, all, devices, find, measured_in, of_device, select};
pub use metric::{Definition, Metric, Scope};
pub use origin::{
    BLOCKING_FILE_KIND, DEVICE_KIND, Origin, PERF_KIND, STACKS_DWARF_KIND, STACKS_KIND, STACKS_WAIT_KIND,
    SourceField, TEXT_FILE_KIND,
};
pub use supplied::{PROCESS_RANK, REGIONS};
pub use text_file::{
    Cell, Devices, Field, Form, Hierarchy, LabelFile, RefreshFile, RefreshUnit, Row, Scale, TextFile,
    pattern_match,
};

/// Numbers of perf events, and the instance names of families.
pub mod perf {
    pub use super::perf_event::{PerfEvent, raw_config, tracepoint};
}

/// Kinds whose samples are call stacks.
const STACKS_KINDS: [&str; 3] = [STACKS_KIND, STACKS_DWARF_KIND, STACKS_WAIT_KIND];

/// Returns the source under which the ledger counts the samples of a metric of call stacks.
pub fn stacks_source(metric: &str) -> &'static str {
    let found = find(metric);
    STACKS_KINDS
        .into_iter()
        .find(|kind| found.as_ref().is_some_and(|found| found.metric.is_of_kind(kind)))
        .unwrap_or(STACKS_KIND)
}

/// Name under which the ledger counts the last readings of a source of call stacks that were given up. The
/// number of samples that they would have had is unknown.
pub fn unread_source(source: &str) -> String {
    format!("{source}.unread")
}

/// Beginning of the names under which the ledger counts samples that go to the ring.
pub const RING_SOURCES: &str = "ring/";

/// Beginning of the names under which plans list the metrics that are sampled into the ring.
pub const RING_METRICS: &str = "ring.";

/// Name under which the ledger counts the samples of a source that go to the ring.
pub fn ring_source(source: &str) -> String {
    format!("{RING_SOURCES}{source}")
}

pub fn is_ring_source(source: &str) -> bool {
    source.starts_with(RING_SOURCES)
}

pub fn is_stacks_source(source: &str) -> bool {
    STACKS_KINDS.contains(&source)
}

/// Returns true if a selector selects a metric, sampled or derived.
pub fn is_known(selector: &Selector) -> bool {
    !select(selector).is_empty() || derived::select(selector).next().is_some()
}

/// Returns the most similar name in the catalogue; none if none is similar enough.
pub fn nearest(name: &str) -> Option<&'static str> {
    let derived = derived::all().map(|derived| derived.name);
    suggest::nearest(name, all().map(|metric| metric.name).chain(derived))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::name::MetricName;
    use crate::series::{Kind, Unit};

    #[test]
    fn names_are_valid_and_unique() {
        let mut names = BTreeSet::new();
        for metric in all() {
            assert!(names.insert(metric.name), "{} is declared twice", metric.name);
            let plain = metric
                .name
                .strip_suffix(".*")
                .or_else(|| metric.name.strip_suffix("_*"))
                .unwrap_or(metric.name);
            assert!(MetricName::new(plain).is_ok(), "{}", metric.name);
            assert!(!metric.origins.is_empty(), "{} has no origin", metric.name);
            assert!(metric.help.ends_with('.'), "{}: help is a sentence", metric.name);
        }
    }

    #[test]
    fn a_pattern_of_devices_selects_their_family() {
        let names = |selector: &str| -> Vec<String> {
            select(&selector.parse().unwrap()).iter().map(Definition::name).collect()
        };
        for selector in ["device.*", "device.pdu3.*", "device.*.power"] {
            assert_eq!(names(selector), ["device.*"], "{selector}");
        }
        assert_eq!(names("device.pdu3.power"), ["device.pdu3.power"]);
        assert!(names("d*.nothing").is_empty() && !is_known(&"devices.*".parse().unwrap()));
    }

    #[test]
    fn jobs_have_more_than_67_metrics() {
        assert!(all().filter(|metric| metric.scope == Scope::Job).count() > 67);
    }

    #[test]
    fn paths_have_a_label_for_each_wildcard() {
        let files = all().flat_map(|metric| metric.origins).filter_map(|origin| match origin {
            Origin::Text { file, .. } => Some(*file),
            Origin::Perf(_) | Origin::Source(_) => None,
        });
        for file in files {
            assert_eq!(file.path.matches('*').count(), file.path_labels.len(), "{}", file.path);
            let in_one = file.path.split('/').map(|component| component.matches('*').count()).max();
            assert!(in_one <= Some(1), "{}: one `*` in each component", file.path);
            assert!(!file.is_blocking || file.form == Form::Values, "{}", file.path);
            assert!(file.label_files.is_empty() || file.is_blocking, "{}", file.path);
        }
    }

    #[test]
    fn no_two_metrics_share_a_field() {
        let mut fields = Vec::new();
        for metric in all() {
            for origin in metric.origins {
                // An event may be summed, and have a series for each CPU.
                let field = (origin, metric.is_per_cpu);
                assert!(
                    !fields.contains(&field),
                    "{}: {origin:?} is a field of another metric, too",
                    metric.name
                );
                fields.push(field);
            }
        }
    }

    #[test]
    fn counters_declare_their_granularity() {
        let granularity = |name: &str| find(name).unwrap().metric.granularity().map(|time| time.to_string());
        for tick in [
            "cpu.usage",
            "cpu.user",
            "cpu.usage.per_cpu",
            "process.cpu.usage",
            "node.cpu.user",
            "agent.job.cpu.time",
        ] {
            assert_eq!(granularity(tick).as_deref(), Some("10ms"), "{tick}");
        }
        for exact in
            ["perf.task_clock", "io.read.bytes", "pids.current", "process.io.read.bytes", "node.forks"]
        {
            assert_eq!(granularity(exact), None, "{exact}");
        }
        assert_eq!(granularity("cpu.throttled.time").as_deref(), Some("100ms"));
        assert_eq!(granularity("memory.pgfault").as_deref(), Some("2s"));
        assert_eq!(granularity("node.vm.pgfault").as_deref(), Some("1s"));
        for metric in all().filter(|metric| metric.kind == Kind::Counter && metric.unit == Unit::Nanoseconds)
        {
            let is_exact = metric.origins.iter().all(|origin| match origin {
                Origin::Perf(_) => true,
                Origin::Text { file, .. } => file.form == Form::Pairs || file.path == "diskstats",
                Origin::Source(field) if field.kind == "agent" => field.field != "job_cpu_time",
                Origin::Source(field) if field.kind == "taskstats" => field.field.ends_with("_delay"),
                // Times of completed operations and waits are exact, as those of disks. Drivers of GPUs add
                // the work that is under way.
                Origin::Source(field) => ["lustre", "nfs", "drm", "kfd", "ebpf"].contains(&field.kind),
            });
            assert_eq!(metric.granularity().is_none(), is_exact, "{}", metric.name);
        }
    }

    #[test]
    fn metrics_of_call_stacks_have_their_sources() {
        for (metric, source) in [
            ("stacks.cpu", "stacks"),
            ("stacks.cpu_dwarf", "stacks_dwarf"),
            ("stacks.wait", "stacks_wait"),
            ("stacks.x", "stacks"),
        ] {
            assert_eq!(stacks_source(metric), source);
            assert!(is_stacks_source(source));
        }
        assert!(!is_stacks_source("perf"));
    }

    #[test]
    fn finds_metrics_and_instances_of_families() {
        assert_eq!(find("memory.anon").unwrap().name(), "memory.anon");
        assert_eq!(find("node.vm.pgfault").unwrap().name(), "node.vm.pgfault");
        assert_eq!(find("node.vm.nr_dirty").unwrap().metric.kind, Kind::Gauge);
        assert!(find("perf.raw.r01c2").is_some());
        assert!(find("perf.raw.hello").is_none());
        assert!(find("perf.tracepoint.sched.sched_switch").is_some());
        assert!(find("perf.tracepoint.sched").is_none());
        assert!(find("device.pdu3.power").is_some() && find("device.pdu3").is_none());
        let power = of_device("pdu3", "outlet.power", Unit::Watts, DeviceValue::Gauge).unwrap();
        assert_eq!((power.name().as_str(), power.metric.unit), ("device.pdu3.outlet.power", Unit::Watts));
        assert!(of_device("PDU", "power", Unit::Watts, DeviceValue::Gauge).is_none());
        assert!(find("memory.*").is_none());
        assert!(find("nothing").is_none());
        let family = select(&"node.vm.*".parse().unwrap());
        assert_eq!(family.iter().filter(|definition| definition.is_family()).count(), 2);
    }

    #[test]
    fn suggests_the_nearest_name() {
        assert_eq!(nearest("memory.curent"), Some("memory.current"));
        assert_eq!(nearest("cpu.usge"), Some("cpu.usage"));
        assert_eq!(nearest("xyzzy"), None);
        assert_eq!(nearest(""), None);
    }
}
