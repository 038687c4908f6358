//! Quantities of a job that are drawn, and the series from which they are computed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use polymeter_proto::period::Sampling;
use serde::Serialize;

use super::cells::{NodeCells, Span};
use crate::curve::Interval;
use crate::model::{Report, SeriesReport};

/// Important quantity: the first choice of which a metric was sampled counts.
#[derive(Debug, Serialize)]
pub struct Main {
    id: &'static str,
    choices: &'static [Choice],
}

impl Main {
    /// Id in pages and requests.
    pub const fn id(&self) -> &'static str {
        self.id
    }

    /// Metric of each choice, the first choice first.
    pub fn first_metrics(&self) -> impl Iterator<Item = &'static str> {
        self.choices.iter().map(|choice| choice.metric)
    }

    /// Metrics whose sum the quantity is, and those that are subtracted, of the first choice that was
    /// sampled; none if the job lacks the quantity.
    pub fn metrics(
        &self,
        is_sampled: impl Fn(&str) -> bool,
    ) -> Option<(Vec<&'static str>, Vec<&'static str>)> {
        let choice = self.choices.iter().find(|choice| is_sampled(choice.metric))?;
        let sampled =
            |metrics: &'static [&'static str]| metrics.iter().copied().filter(|metric| is_sampled(metric));
        Some((
            std::iter::once(choice.metric).chain(sampled(choice.plus)).collect(),
            sampled(choice.minus).collect(),
        ))
    }
}

/// Title, metric, metrics that are added to it, and metrics that are subtracted.
#[derive(Debug, Serialize)]
struct Choice {
    title: &'static str,
    metric: &'static str,
    plus: &'static [&'static str],
    minus: &'static [&'static str],
}

const fn just(title: &'static str, metric: &'static str) -> Choice {
    Choice { title, metric, plus: &[], minus: &[] }
}

/// Listed in the order in which they are shown.
pub const MAIN: &[Main] = &[
    Main {
        id: "cores",
        choices: &[
            just("Cores in use", "cpu.usage"),
            just("Cores in use", "process.cpu.usage"),
            just("Cores in use", "perf.task_clock"),
        ],
    },
    Main {
        id: "memory",
        choices: &[
            Choice {
                title: "Memory in use: anonymous and shared",
                metric: "memory.anon",
                plus: &["memory.shmem"],
                minus: &[],
            },
            just("Memory in use: resident, sum of processes", "process.memory.resident"),
            just("Memory of the cgroup, with page cache", "memory.current"),
        ],
    },
    Main {
        id: "cache",
        choices: &[Choice {
            title: "Page cache",
            metric: "memory.file",
            plus: &[],
            minus: &["memory.shmem"],
        }],
    },
    Main {
        id: "gpu_utilization",
        choices: &[
            just("GPU utilization", "gpu.utilization"),
            just("GPU activity: multiprocessors", "gpu.gpm.sm.active"),
        ],
    },
    Main { id: "gpu_memory", choices: &[just("GPU memory in use", "gpu.memory.used")] },
    Main { id: "gpu_power", choices: &[just("GPU power", "gpu.power")] },
    Main {
        id: "read",
        choices: &[
            just("Read from devices", "io.read.bytes"),
            just("Read by processes", "process.io.read.bytes"),
        ],
    },
    Main {
        id: "write",
        choices: &[
            just("Written to devices", "io.write.bytes"),
            just("Written by processes", "process.io.write.bytes"),
        ],
    },
    Main {
        id: "receive",
        choices: &[
            just("Received by the node: InfiniBand", "node.infiniband.receive.bytes"),
            just("Received by the node", "node.network.receive.bytes"),
        ],
    },
    Main {
        id: "transmit",
        choices: &[
            just("Transmitted by the node: InfiniBand", "node.infiniband.transmit.bytes"),
            just("Transmitted by the node", "node.network.transmit.bytes"),
        ],
    },
    Main {
        id: "cpu_pressure",
        choices: &[just("CPU pressure: time with waiting tasks", "pressure.cpu.some.total")],
    },
    Main {
        id: "memory_pressure",
        choices: &[just("Memory pressure: time with waiting tasks", "pressure.memory.some.total")],
    },
    Main {
        id: "io_pressure",
        choices: &[just("I/O pressure: time with waiting tasks", "pressure.io.some.total")],
    },
];

/// Most important first.
pub(crate) fn main_metrics() -> impl Iterator<Item = &'static str> {
    MAIN.iter().flat_map(|main| main.choices).flat_map(|choice| {
        std::iter::once(choice.metric).chain(choice.plus.iter().copied()).chain(choice.minus.iter().copied())
    })
}

/// Series of a node, each with its factor: 1 for one that is added, -1 for one that is subtracted.
#[derive(Debug)]
pub(super) struct NodeSeries<'a> {
    terms: Vec<(&'a SeriesReport, f64)>,
    /// True if the mean of the series counts, not their sum.
    is_mean: bool,
    spacing: Spacing,
}

#[derive(Debug, Clone, Copy)]
struct Spacing {
    /// Time between frequent samples, which is the resolution of a chart.
    short_ns: i64,
    /// Time between rare samples: three times as much is a gap.
    long_ns: i64,
}

impl NodeSeries<'_> {
    pub(super) fn cells(&self, span: Span, columns: usize) -> NodeCells {
        let cells = |series: &SeriesReport| {
            let is_rate = series.rate_unit.is_some();
            NodeCells::of(&series.curve, is_rate, self.spacing.long_ns, span, columns)
        };
        if let [(series, _)] = self.terms.as_slice() {
            return cells(series);
        }
        let mut sum = NodeCells::empty(columns);
        let share =
            if self.is_mean { 1.0 / polymeter_proto::units::to_f64(self.terms.len() as u64) } else { 1.0 };
        for (series, factor) in &self.terms {
            sum.add_scaled(&cells(series), factor * share);
        }
        if self.terms.iter().any(|(_, factor)| *factor < 0.0) {
            sum.raise_to_zero();
        }
        sum
    }
}

#[derive(Debug)]
pub(super) struct Quantity<'a> {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) unit: String,
    pub(super) metrics: Vec<String>,
    pub(super) is_main: bool,
    pub(super) nodes: Vec<NodeSeries<'a>>,
}

impl Quantity<'_> {
    /// Time between frequent samples of the node with the most frequent ones.
    pub(super) fn resolution_ns(&self) -> i64 {
        let of_nodes = self.nodes.iter().filter(|node| !node.terms.is_empty());
        of_nodes.map(|node| node.spacing.short_ns).min().unwrap_or(1)
    }
}

/// Grouped by the position of their node.
type ByMetric<'a> = BTreeMap<&'a str, Vec<(usize, &'a SeriesReport)>>;

/// Important quantities, then all other metrics by name.
pub(super) fn of<'a>(report: &'a Report, nodes: &[&str]) -> Vec<Quantity<'a>> {
    let by_metric = by_metric(report, nodes);
    let mut quantities = Vec::new();
    let mut drawn: BTreeSet<&str> = BTreeSet::new();
    for main in MAIN {
        let Some(choice) = main.choices.iter().find(|choice| by_metric.contains_key(choice.metric)) else {
            continue;
        };
        if choice.plus.is_empty() && choice.minus.is_empty() {
            drawn.insert(choice.metric);
        }
        quantities.push(main_quantity(main.id, choice, &by_metric, nodes.len()));
    }
    for (metric, series) in by_metric.iter().filter(|(metric, _)| !drawn.contains(**metric)) {
        let terms = [(series.as_slice(), 1.0)];
        let (id, title) = (format!("metric:{metric}"), (*metric).to_owned());
        let metrics = vec![title.clone()];
        quantities.push(quantity(Quantity { id, title, metrics, ..empty(false) }, &terms, nodes.len()));
    }
    quantities
}

fn empty<'a>(is_main: bool) -> Quantity<'a> {
    let (id, title, unit) = (String::new(), String::new(), String::new());
    Quantity { id, title, unit, metrics: Vec::new(), is_main, nodes: Vec::new() }
}

fn main_quantity<'a>(id: &str, choice: &Choice, by_metric: &ByMetric<'a>, nodes: usize) -> Quantity<'a> {
    let with =
        |metrics: &'static [&'static str], factor: f64| metrics.iter().map(move |metric| (*metric, factor));
    let all =
        std::iter::once((choice.metric, 1.0)).chain(with(choice.plus, 1.0)).chain(with(choice.minus, -1.0));
    let sampled: Vec<_> = all
        .filter_map(|(metric, factor)| Some((metric, by_metric.get(metric)?.as_slice(), factor)))
        .collect();
    let metrics = sampled.iter().map(|(metric, ..)| (*metric).to_owned()).collect();
    let terms: Vec<_> = sampled.iter().map(|(_, series, factor)| (*series, *factor)).collect();
    let (id, title) = (id.to_owned(), choice.title.to_owned());
    quantity(Quantity { id, title, metrics, ..empty(true) }, &terms, nodes)
}

fn quantity<'a>(
    base: Quantity<'a>,
    terms: &[(&[(usize, &'a SeriesReport)], f64)],
    nodes: usize,
) -> Quantity<'a> {
    let first = terms.first().and_then(|(series, _)| series.first()).map(|(_, series)| *series);
    let unit = first.map_or_else(String::new, |series| {
        series.rate_unit.map_or_else(|| series.unit.clone(), str::to_owned)
    });
    let is_mean = matches!(unit.as_str(), "percent" | "celsius");
    let mut by_node: Vec<NodeSeries<'a>> = Vec::new();
    let spacing = Spacing { short_ns: i64::MAX, long_ns: 1 };
    by_node.resize_with(nodes, || NodeSeries { terms: Vec::new(), is_mean, spacing });
    for (series, factor) in terms {
        for (node, series) in *series {
            if let Some(node) = by_node.get_mut(*node) {
                let Spacing { short_ns, long_ns } = spacing_of(series);
                node.spacing.short_ns = node.spacing.short_ns.min(short_ns);
                node.spacing.long_ns = node.spacing.long_ns.max(long_ns);
                node.terms.push((series, *factor));
            }
        }
    }
    Quantity { unit, nodes: by_node, ..base }
}

fn level(series: &SeriesReport) -> u8 {
    match (&series.task, series.is_of_step) {
        (Some(_), _) => 2,
        (None, true) => 1,
        (None, false) => 0,
    }
}

/// Sorts the series by metric. The series of steps are contained in those of the job, and the series of tasks
/// in those of their step: they count only for a metric without the former. Devices that contain others do
/// not count.
fn by_metric<'a>(report: &'a Report, nodes: &[&str]) -> ByMetric<'a> {
    let positions: HashMap<&str, usize> =
        nodes.iter().enumerate().map(|(position, node)| (*node, position)).collect();
    let mut levels: HashMap<&str, u8> = HashMap::new();
    for series in &report.series {
        let known = levels.entry(&series.metric).or_insert(u8::MAX);
        *known = level(series).min(*known);
    }
    let mut by_metric = ByMetric::new();
    for series in &report.series {
        let is_contained = series.is_contained || levels.get(series.metric.as_str()) != Some(&level(series));
        if let Some(position) = positions.get(series.node.as_str()).filter(|_| !is_contained) {
            by_metric.entry(&series.metric).or_default().push((*position, series));
        }
    }
    by_metric
}

/// Usual time between two points of a series: the lower quartile, and the median or the longest period that
/// was in force.
fn spacing_of(series: &SeriesReport) -> Spacing {
    let intervals = series.curve.intervals();
    let mut spacings: Vec<i64> = intervals
        .iter()
        .zip(intervals.iter().skip(1))
        .map(|(one, next): (&Interval, &Interval)| next.time_ns.saturating_sub(one.time_ns))
        .collect();
    spacings.sort_unstable();
    let quantile = |part: usize| spacings.get(spacings.len() / part).map(|spacing| (*spacing).max(1));
    let periods = series.periods.iter().filter_map(|using| period_ns(&using.period));
    Spacing {
        // A single sample has no resolution.
        short_ns: quantile(4).unwrap_or(i64::MAX),
        long_ns: periods.chain(quantile(2)).max().unwrap_or(1),
    }
}

fn period_ns(text: &str) -> Option<i64> {
    let sampling: Sampling = text.parse().ok()?;
    i64::try_from(sampling.row_period().as_nanos()).ok()
}
