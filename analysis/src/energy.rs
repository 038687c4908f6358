//! Energy of a job, from the counters of its nodes. Pure.
//!
//! A counter measures a whole node. On a node that the job had alone the energy during the job is the job's.
//! On a shared one it is divided at each time by CPU time: the job's share of what all processes of the node
//! used, idle power included.

use std::collections::BTreeMap;
use std::ops::Range;

use polymeter_store::reader::JobNodeRow;

use crate::carbon::Intensities;
use crate::cumulative::Cumulative;
use crate::model::{CountedEnergy, Energy, EnergyPart, MeasuredPart, NodeEnergy, Report, SeriesReport};
use crate::resources::{CPU_TIME, first_of, of_metric};

struct Source {
    metric: &'static str,
    part: &'static str,
}

/// Energy or power of a whole node, the most accurate first. Where one was sampled, no other one counts.
const WHOLE: [Source; 2] =
    [Source { metric: "node.cray.energy", part: "node" }, Source { metric: "node.ipmi.power", part: "node" }];

/// Counters of parts of a node, none of which includes another one.
const PARTS: [Source; 2] = [
    Source { metric: "node.energy.package", part: "processors" },
    Source { metric: "node.energy.memory", part: "memory" },
];

/// The job's GPUs are not shared.
const GPUS: Source = Source { metric: "gpu.energy", part: "gpus" };

/// CPU time of a node in which it is not idle, by kind.
const BUSY: [&str; 5] =
    ["node.cpu.user", "node.cpu.nice", "node.cpu.system", "node.cpu.irq", "node.cpu.softirq"];

pub(crate) fn energy_metrics() -> impl Iterator<Item = &'static str> {
    WHOLE.iter().chain(&PARTS).map(|source| source.metric)
}

/// Metrics of nodes that are needed to divide their energy.
pub(crate) fn metrics() -> Vec<&'static str> {
    energy_metrics().chain(BUSY).collect()
}

pub(crate) fn is_of_gpus(series: &SeriesReport) -> bool {
    series.metric == GPUS.metric
}

/// Counters of one node, and the integrals of its powers, by metric; one for each device.
pub(crate) type NodeCounters = BTreeMap<String, Vec<Cumulative>>;

/// Energy of a job on a node with these counters; `series` are those of the job there. None if it is unknown.
pub(crate) fn of_node(
    row: &JobNodeRow,
    counters: &NodeCounters,
    series: &[&SeriesReport],
) -> Option<NodeEnergy> {
    let of = |metric: &str| counters.get(metric).map(Vec::as_slice).unwrap_or_default();
    let whole = WHOLE.iter().find(|source| !of(source.metric).is_empty());
    let sources: Vec<(&Source, &[Cumulative])> = if let Some(whole) = whole {
        vec![(whole, of(whole.metric))]
    } else {
        let parts = PARTS.iter().map(|source| (source, of(source.metric)));
        parts.filter(|(_, counters)| !counters.is_empty()).collect()
    };
    let measured = |(source, energy): (&Source, Cumulative)| MeasuredPart {
        part: source.part,
        source: source.metric.to_owned(),
        energy,
    };
    let mut parts = Vec::new();
    let mut is_estimate = false;
    if row.is_shared && !sources.is_empty() {
        let used: Vec<Cumulative> =
            first_of(series, &CPU_TIME).iter().map(|series| Cumulative::of_rates(&series.curve)).collect();
        let busy: Vec<&Cumulative> = BUSY.iter().flat_map(|metric| of(metric)).collect();
        if used.is_empty() || busy.is_empty() {
            return None;
        }
        is_estimate = true;
        let shares = sources.into_iter().map(|(source, counters)| (source, divided(counters, &used, &busy)));
        parts.extend(shares.map(measured));
    } else {
        let totals = sources.into_iter().map(|(source, counters)| (source, total(counters)));
        parts.extend(totals.map(measured));
    }
    if whole.is_none() {
        let gpus: Vec<Cumulative> =
            of_metric(series, GPUS.metric).map(|series| Cumulative::of_rates(&series.curve)).collect();
        if !gpus.is_empty() {
            parts.push(measured((&GPUS, total(&gpus))));
        }
    }
    (!parts.is_empty()).then_some(NodeEnergy { parts, is_estimate, error_joules: None })
}

/// Sources on a node that the job had alone, each with the name of its metric and its part of the node.
pub(crate) fn sources_of(
    counters: &NodeCounters,
    series: &[&SeriesReport],
) -> Vec<(&'static str, &'static str, Cumulative)> {
    let of_node = WHOLE.iter().chain(&PARTS).filter_map(|source| {
        let counters = counters.get(source.metric)?;
        Some((source.metric, source.part, total(counters)))
    });
    let gpus: Vec<Cumulative> =
        of_metric(series, GPUS.metric).map(|series| Cumulative::of_rates(&series.curve)).collect();
    let gpus = (!gpus.is_empty()).then(|| (GPUS.metric, GPUS.part, total(&gpus)));
    of_node.chain(gpus).collect()
}

/// Increases of several counters together, at the times of the first.
pub(crate) fn total(counters: &[Cumulative]) -> Cumulative {
    shares(counters, |_| 1.0)
}

/// Increases of several counters, each multiplied by the share of the CPU time of the node that the job used.
fn divided(counters: &[Cumulative], used: &[Cumulative], busy: &[&Cumulative]) -> Cumulative {
    shares(counters, |span_ns| {
        let used_s: f64 = used.iter().map(|counter| counter.within(span_ns)).sum();
        let busy_s = busy.iter().map(|counter| counter.within(span_ns)).sum::<f64>() / 1e9;
        if busy_s > 0.0 { (used_s / busy_s).min(1.0) } else { 0.0 }
    })
}

fn shares(counters: &[Cumulative], share: impl Fn(&Range<i64>) -> f64) -> Cumulative {
    let mut sum = Cumulative::default();
    let Some(first) = counters.first() else { return sum };
    let mut before_ns = None;
    for time_ns in first.times_ns() {
        let span_ns = before_ns.unwrap_or(time_ns)..time_ns;
        let increase: f64 = counters.iter().map(|counter| counter.within(&span_ns)).sum();
        sum.add(time_ns, if increase > 0.0 { increase * share(&span_ns) } else { 0.0 });
        before_ns = Some(time_ns);
    }
    sum
}

pub(crate) fn add_to(
    report: &mut Report,
    rows: &[JobNodeRow],
    nodes: BTreeMap<String, NodeEnergy>,
    intensities: &Intensities,
) {
    let (start_ns, end_ns) = report.time_ns();
    let (mut joules, mut node_count, mut is_estimate, mut error_joules) = (0.0, 0, false, Some(0.0));
    let mut carbon_grams = Some(0.0);
    let mut parts: BTreeMap<&'static str, f64> = BTreeMap::new();
    for row in rows {
        let Some(energy) = nodes.get(&row.node) else { continue };
        let span_ns =
            row.started_ns.max(start_ns)..row.ended_ns.map_or(end_ns, |ended_ns| ended_ns.min(end_ns));
        let Some(of_node) = energy.joules(&span_ns) else { continue };
        joules += of_node;
        node_count += 1;
        is_estimate |= energy.is_estimate;
        let grams = intensities.grams(&row.node, energy, &span_ns);
        carbon_grams = carbon_grams.zip(grams).map(|(sum, of_node)| sum + of_node);
        error_joules = error_joules.zip(energy.error_joules).map(|(sum, of_node)| sum + of_node);
        for MeasuredPart { part, source, energy: counter } in &energy.parts {
            let joules = counter.increase(&span_ns).unwrap_or_default();
            *parts.entry(part).or_default() += joules;
            report.counted_energy.push(CountedEnergy {
                node: row.node.clone(),
                part,
                source: source.clone(),
                joules,
                is_estimate: energy.is_estimate && *part != GPUS.part,
            });
        }
        if let Some(node) = report.by_node.iter_mut().find(|node| node.node == row.node) {
            node.energy_joules = Some(of_node);
        }
    }
    if node_count > 0 {
        let parts = parts.into_iter().map(|(part, joules)| EnergyPart { part, joules }).collect();
        let watts_mean = (report.wall_s > 0.0).then(|| joules / report.wall_s);
        let nodes = node_count;
        report.energy =
            Some(Energy { joules, error_joules, watts_mean, carbon_grams, is_estimate, nodes, parts });
    }
    report.node_energy = nodes;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Phase;
    use crate::phases;
    use crate::testing::{START_S, busy, on, report};

    const S: i64 = 1_000_000_000;

    fn time_ns(second: i64) -> i64 {
        (START_S + second) * S
    }

    /// Has this increase per second, with a sample every 10 s from a minute before the start of the job on.
    fn counter(seconds: i64, per_second: impl Fn(i64) -> f64) -> Cumulative {
        let mut total = 1e6;
        Cumulative::of_samples(
            &(-6..=seconds / 10 + 6)
                .map(|number| number * 10)
                .map(|second: i64| {
                    total += per_second(second) * 10.0;
                    (time_ns(second), total)
                })
                .collect::<Vec<_>>(),
        )
    }

    fn counters(of: Vec<(&str, Cumulative)>) -> NodeCounters {
        let mut counters = NodeCounters::new();
        for (metric, counter) in of {
            counters.entry(metric.to_owned()).or_default().push(counter);
        }
        counters
    }

    fn row(node: &str, is_shared: bool) -> JobNodeRow {
        let (started_ns, ended_ns) = (time_ns(0), Some(time_ns(3600)));
        JobNodeRow { node: node.to_owned(), started_ns, ended_ns, is_shared, clock_offset_us: None }
    }

    fn near(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value - expected).abs() < 0.01 * expected.max(1.0))
    }

    fn phase(name: &str, begin: i64, end: i64) -> Phase {
        Phase {
            name: name.to_owned(),
            node: "n1".to_owned(),
            begin_us: Some(time_ns(begin) / 1000),
            end_us: Some(time_ns(end) / 1000),
            ..Phase::default()
        }
    }

    #[test]
    fn a_job_has_the_energy_of_its_own_node() {
        let mut report = report(60, 8, vec![busy("n1", &[4.0; 60])]);
        let node = counters(vec![
            ("node.energy.package", counter(3600, |_| 100.0)),
            ("node.energy.package", counter(3600, |_| 120.0)),
            ("node.energy.memory", counter(3600, |_| 30.0)),
        ]);
        let series: Vec<&SeriesReport> = report.series.iter().collect();
        let energy = of_node(&row("n1", false), &node, &series).unwrap();
        report.phases =
            vec![phase("solve", 600, 1203), phase("solve", 1800, 1803), phase("late", 9000, 9010)];
        let energies = BTreeMap::from([("n1".to_owned(), energy)]);
        add_to(&mut report, &[row("n1", false)], energies, &Intensities::default());
        let energy = report.energy.clone().unwrap();
        assert!(near(Some(energy.joules), 250.0 * 3600.0) && near(energy.watts_mean, 250.0), "{energy:?}");
        assert_eq!((energy.is_estimate, energy.nodes), (false, 1));
        let parts: Vec<_> =
            energy.parts.iter().map(|part| (part.part, (part.joules / 3600.0).round())).collect();
        assert_eq!(parts, [("memory", 30.0), ("processors", 220.0)]);
        assert!(near(report.by_node[0].energy_joules, 250.0 * 3600.0));
        let totals = phases::totals(&report);
        let of = |name: &str| totals.iter().find(|totals| totals.name == name).unwrap().energy_joules;
        assert!(near(of("solve"), 250.0 * 606.0), "{totals:?}");
        assert_eq!(of("late"), None);
    }

    #[test]
    fn the_energy_of_a_shared_node_is_divided_by_cpu_time_at_each_time() {
        // The job uses 1 of 4 busy cores in the first half, with 100 W, and 3 of 4 in the second, with 200 W.
        let cores: Vec<f64> = (0..60).map(|minute| if minute < 30 { 1.0 } else { 3.0 }).collect();
        let report = report(60, 8, vec![busy("n1", &cores)]);
        let series: Vec<&SeriesReport> = report.series.iter().collect();
        let power = |second: i64| if second <= 1800 { 100.0 } else { 200.0 };
        let node = counters(vec![
            ("node.energy.package", counter(3600, power)),
            ("node.cpu.user", counter(3600, |_| 3e9)),
            ("node.cpu.system", counter(3600, |_| 1e9)),
        ]);
        let energy = of_node(&row("n1", true), &node, &series).unwrap();
        assert!(energy.is_estimate);
        let joules = energy.joules(&(time_ns(0)..time_ns(3600)));
        let expected = 1800.0 * (100.0 * 0.25 + 200.0 * 0.75);
        assert!(
            joules.is_some_and(|joules| (joules / expected - 1.0).abs() < 0.03),
            "{joules:?}, not {expected}"
        );
        let energy_only = counters(vec![("node.energy.package", counter(3600, power))]);
        assert_eq!(of_node(&row("n1", true), &energy_only, &series), None, "the share is unknown");
        assert!(of_node(&row("n1", false), &energy_only, &series).is_some());
    }

    fn gpus(node: &str) -> SeriesReport {
        let series = busy(node, &[300.0; 60]);
        on(node, SeriesReport { metric: "gpu.energy".to_owned(), ..series })
    }

    #[test]
    fn the_counter_of_a_whole_node_replaces_those_of_its_parts() {
        let report = report(60, 8, vec![busy("n1", &[4.0; 60]), gpus("n1")]);
        let series: Vec<&SeriesReport> = report.series.iter().collect();
        let whole = counters(vec![
            ("node.cray.energy", counter(3600, |_| 900.0)),
            ("node.energy.package", counter(3600, |_| 100.0)),
        ]);
        let of = |counters: &NodeCounters| {
            of_node(&row("n1", false), counters, &series).unwrap().joules(&(time_ns(60)..time_ns(3500)))
        };
        assert!(near(of(&whole), 900.0 * 3440.0));
        let of_controller = counters(vec![
            ("node.ipmi.power", counter(3600, |_| 800.0)),
            ("node.energy.package", counter(3600, |_| 100.0)),
        ]);
        assert!(near(of(&of_controller), 800.0 * 3440.0));
        let parts = counters(vec![("node.energy.package", counter(3600, |_| 100.0))]);
        assert!(near(of(&parts), 400.0 * 3440.0), "processors and GPUs: {:?}", of(&parts));
        assert!(near(of(&NodeCounters::new()), 300.0 * 3440.0), "GPUs alone");
        assert_eq!(of_node(&row("n1", false), &NodeCounters::new(), &[]), None);
    }
}
