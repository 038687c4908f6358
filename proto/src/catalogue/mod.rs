//! Every metric, declared once, as data: its name, unit, kind, help, and how it is found in a source's text.
//!
//! Documents (`docs/reference/metrics.md`), ids, units in the database and the agent's parsers follow from these tables.

mod agent;
mod cgroup;
mod memory;
mod node;
pub mod perf;
mod process;
mod text;

use std::fmt;

use crate::name::{MetricName, Selector};
use crate::period::Period;
use crate::series::{Kind, MetricDescriptor, Number, Unit};

pub use agent::AgentField;
pub use process::ProcessField;
pub use text::{Cell, Field, Form, Hierarchy, Row, Scale, TextFile};

/// A metric, or a family of metrics whose names end in something that only the machine knows.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// The canonical name. A family's ends in `*`, which stands for the instance.
    pub name: &'static str,
    /// The unit of its values.
    pub unit: Unit,
    /// Whether it counts or measures a level.
    pub kind: Kind,
    /// What the bits of its values are.
    pub number: Number,
    /// Whose it is.
    pub scope: Scope,
    /// Where it can be read, the best first.
    pub origins: &'static [Origin],
    /// What it is, in one sentence.
    pub help: &'static str,
    /// How far its values may be behind what they count, where that is not what its origins say.
    granularity: Option<Period>,
}

/// The longest time between two updates of the CPU time of a running task: a tick of the scheduler where the kernel's
/// `HZ` is 100, which is the lowest. With 250 it is 4 ms, with 1000 it is 1 ms. Values in ticks of `USER_HZ` are as coarse.
pub(crate) const TICK: Period = Period::TEN_MILLISECONDS;

/// Whose a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A job's: read from its cgroups, perf groups or processes.
    Job,
    /// The node's.
    Node,
    /// The agent's own.
    Agent,
}

/// Where a metric can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A field of a kernel file.
    Text {
        /// The file.
        file: &'static TextFile,
        /// Where in it.
        field: Field,
    },
    /// A perf event.
    Perf(perf::Event),
    /// A sum over the processes of a job that has no cgroup of its own.
    Processes(ProcessField),
    /// A sum over the processes in a job's cgroup and below it, where no file of the cgroup counts it.
    CgroupProcesses(ProcessField),
    /// The agent itself.
    Agent(AgentField),
}

impl Origin {
    /// How far its values may be behind what they count.
    fn granularity(&self) -> Option<Period> {
        match self {
            Self::Text { field: Field { scale: Scale::Times(text::TICK_NS), .. }, .. } => Some(TICK),
            Self::Text { file, .. } => file.granularity,
            Self::Processes(field) | Self::CgroupProcesses(field) => field.granularity(),
            // A read of a perf event brings it up to date; the agent's counts are its own.
            Self::Perf(_) | Self::Agent(_) => None,
        }
    }
}

impl Metric {
    const fn new(
        name: &'static str,
        unit: Unit,
        kind: Kind,
        scope: Scope,
        origins: &'static [Origin],
        help: &'static str,
    ) -> Self {
        Self { name, unit, kind, number: Number::Unsigned, scope, origins, help, granularity: None }
    }

    /// The time within which a counter is accurate: its increase over a window is that of the window's length, give or
    /// take what happened within this time. A rate over a shorter window means nothing. Of several origins the coarsest
    /// counts. None where every read is exact, and of gauges that the kernel computes at every read.
    pub fn granularity(&self) -> Option<Period> {
        self.granularity.or_else(|| self.origins.iter().filter_map(Origin::granularity).max())
    }

    const fn counter(name: &'static str, unit: Unit, origins: &'static [Origin], help: &'static str) -> Self {
        Self::new(name, unit, Kind::Counter, Scope::Job, origins, help)
    }

    const fn gauge(name: &'static str, unit: Unit, origins: &'static [Origin], help: &'static str) -> Self {
        Self::new(name, unit, Kind::Gauge, Scope::Job, origins, help)
    }

    const fn of_node(self) -> Self {
        Self { scope: Scope::Node, ..self }
    }

    /// The same metric, updated only so often, whatever else its origins have.
    const fn updated_every(self, granularity: Period) -> Self {
        Self { granularity: Some(granularity), ..self }
    }

    const fn float(self) -> Self {
        Self { number: Number::Float, ..self }
    }

    /// The name of a family without its `*`.
    fn family_prefix(&self) -> Option<&'static str> {
        self.name.strip_suffix('*')
    }
}

/// A metric that somebody asked for: one of the catalogue, or one instance of a family of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Definition {
    /// Its line in the catalogue.
    pub metric: &'static Metric,
    /// What stands for the family's `*`. None for a plain metric, and for a whole family.
    pub instance: Option<Box<str>>,
}

impl Definition {
    /// Whether this is a family of which no instance is chosen yet: all that the machine has are meant.
    pub fn is_family(&self) -> bool {
        self.instance.is_none() && self.metric.family_prefix().is_some()
    }

    /// Whether a kernel file has it.
    pub fn is_of_file(&self) -> bool {
        self.metric.origins.iter().any(|origin| matches!(origin, Origin::Text { .. }))
    }

    /// The canonical name. Of a whole family it ends in `*`, as in the catalogue.
    pub fn name(&self) -> String {
        match (&self.instance, self.metric.family_prefix()) {
            (Some(instance), Some(prefix)) => format!("{prefix}{instance}"),
            _ => self.metric.name.to_owned(),
        }
    }

    /// What the dictionary says of it; none for a whole family.
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

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// All metrics, in the order of the documentation.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    [
        cgroup::CPU,
        memory::STAT,
        memory::USAGE,
        cgroup::OTHER,
        cgroup::PRESSURE,
        perf::METRICS,
        process::METRICS,
        node::METRICS,
        agent::METRICS,
    ]
    .into_iter()
    .flatten()
}

/// The metric with exactly this name, be it an instance of a family.
pub fn find(name: &str) -> Option<Definition> {
    if let Some(metric) = all().find(|metric| metric.name == name && metric.family_prefix().is_none()) {
        return Some(Definition { metric, instance: None });
    }
    MetricName::new(name.to_owned()).ok()?;
    all().find_map(|metric| {
        let instance = name.strip_prefix(metric.family_prefix()?)?;
        let valid = !instance.is_empty() && perf::instance_is_valid(metric, instance);
        valid.then(|| Definition { metric, instance: Some(instance.into()) })
    })
}

/// The metrics that a selector chooses. A wildcard chooses whole families; a plain name may be an instance of one.
pub fn select(selector: &Selector) -> Vec<Definition> {
    if selector.is_exact() {
        return find(selector.as_str()).into_iter().collect();
    }
    let chosen = all().filter(|metric| selector.matches(metric.name));
    chosen.map(|metric| Definition { metric, instance: None }).collect()
}

/// The name in the catalogue that is nearest to `name`, if any is near enough to be what was meant.
pub fn nearest(name: &str) -> Option<&'static str> {
    let near_enough = name.len() / 3 + 1;
    let candidates = all().map(|metric| (edit_distance(name, metric.name), metric.name));
    let (distance, nearest) = candidates.min_by_key(|(distance, _)| *distance)?;
    (distance <= near_enough).then_some(nearest)
}

/// The Levenshtein distance, in bytes.
pub fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, to) in row.iter_mut().skip(1).zip(b.bytes()) {
            let substituted = diagonal + usize::from(from != to);
            diagonal = *cell;
            left = substituted.min(*cell + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_is_valid_and_stands_once() {
        let mut names = BTreeSet::new();
        for metric in all() {
            assert!(names.insert(metric.name), "{} stands twice", metric.name);
            let plain = metric
                .name
                .strip_suffix(".*")
                .or_else(|| metric.name.strip_suffix("_*"))
                .unwrap_or(metric.name);
            assert!(MetricName::new(plain).is_ok(), "{}", metric.name);
            assert!(!metric.origins.is_empty(), "{} comes from nowhere", metric.name);
            assert!(metric.help.ends_with('.'), "{}: help is a sentence", metric.name);
        }
    }

    #[test]
    fn there_are_more_than_the_67_of_the_best_predecessor() {
        assert!(all().filter(|metric| metric.scope == Scope::Job).count() > 67);
    }

    #[test]
    fn a_field_belongs_to_one_metric() {
        let mut fields = Vec::new();
        for metric in all() {
            for origin in metric.origins {
                assert!(
                    !fields.contains(&origin),
                    "{}: {origin:?} is read by another metric as well",
                    metric.name
                );
                fields.push(origin);
            }
        }
    }

    #[test]
    fn a_counter_says_within_which_time_it_is_accurate() {
        let granularity = |name: &str| find(name).unwrap().metric.granularity().map(|time| time.to_string());
        for tick in ["cpu.usage", "cpu.user", "cpu.usage.per_cpu", "process.cpu.usage", "node.cpu.user"] {
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
            let exact = |origin: &Origin| match origin {
                Origin::Perf(_) | Origin::Agent(_) => true,
                Origin::Text { file, .. } => file.form == Form::Pairs || file.path == "diskstats",
                Origin::Processes(_) | Origin::CgroupProcesses(_) => false,
            };
            let is_exact = metric.origins.iter().all(exact);
            assert_eq!(metric.granularity().is_none(), is_exact, "{}", metric.name);
        }
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
    }
}
