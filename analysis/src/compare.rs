//! Comparison of two jobs, or of two groups of jobs, by metric and phase. Pure.
//!
//! The value of a job is the mean over its nodes: of a gauge's values, or of a counter's rates. With two or
//! more jobs on both sides, the interval of a difference is that of Welch's test over the jobs. With a single
//! job on one side it is computed from parts of the jobs' time, and covers variation within the jobs, not
//! between repetitions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use polymeter_proto::units;
use serde::Serialize;

use crate::advice::facts::Facts;
use crate::charts;
use crate::curve::Interval;
use crate::derived::{self, Computable};
use crate::model::{Report, SeriesReport};
use crate::phases;
use crate::runs::KEY;
use crate::statistics::Estimate;

/// The time of a single job is divided into at most so many parts.
const PARTS_MAX: usize = 20;

/// Row beside those of metrics: the time from begin to end.
const ELAPSED: &str = "elapsed";

/// Row beside those of metrics: the sum over all nodes of a job.
const CPU_TIME: &str = "cpu_time";

/// Row beside those of metrics: the sum over all nodes of a job.
const ENERGY: &str = "energy";

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    pub a: Vec<String>,
    pub b: Vec<String>,
    pub basis: Basis,
    /// Differences of the whole jobs, then of each phase. Each time the elapsed time comes first, then the
    /// CPU time and the energy, then the shown differences by the importance of the metric.
    pub rows: Vec<Difference>,
}

/// Variation from which intervals are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Variation between jobs: both sides have two or more.
    Jobs,
    /// Variation within the jobs.
    PartsOfJobs,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// None for the whole job.
    pub phase: Option<String>,
    /// Name with its labels; `elapsed` for the time from begin to end, `cpu_time` and `energy` for those on
    /// all nodes.
    pub metric: String,
    pub unit: String,
    /// Mean of the first side; none if it is unknown.
    pub a: Option<f64>,
    /// Mean of the second side; none if it is unknown.
    pub b: Option<f64>,
    /// Second side minus first.
    pub difference: Option<f64>,
    /// Relative to the first side; none if that is 0.
    pub percent: Option<f64>,
    /// Spans 95 %; none if there are too few values.
    pub interval: Option<[f64; 2]>,
    pub verdict: Verdict,
    /// True for energy that was divided between the jobs of a shared node, on one side or on both.
    pub is_estimate: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Higher,
    Lower,
    /// The interval contains 0.
    NoDifferenceShown,
    /// Too few for an interval.
    TooFewValues,
    /// One side lacks the metric.
    OneSideOnly,
}

impl Difference {
    /// Sorts the most important and clearest differences first.
    fn rank(&self) -> (Option<&str>, usize, usize, Reverse<u64>, &str) {
        let is_shown = matches!(self.verdict, Verdict::Higher | Verdict::Lower);
        let kind = match self.metric.as_str() {
            ELAPSED => 0,
            CPU_TIME => 1,
            ENERGY => 2,
            _ if is_shown => 3,
            _ => 4,
        };
        let name = self.metric.split('{').next().unwrap_or_default();
        let importance = charts::main_metrics().position(|metric| metric == name).unwrap_or(usize::MAX);
        // The distance of the difference from 0 in half-widths of its interval, which is never negative: such
        // numbers have the order of their bits.
        let half = self.interval.map_or(f64::INFINITY, |[low, high]| (high - low) / 2.0);
        let clarity = (self.difference.unwrap_or_default() / half).abs();
        (self.phase.as_deref(), kind, importance, Reverse(clarity.to_bits()), &self.metric)
    }
}

/// Job as the comparison needs it: bounded, whatever the number of its samples.
#[derive(Debug, Clone)]
pub struct Subject {
    id: String,
    key: i64,
    quantities: BTreeMap<Key, Quantity>,
}

impl Subject {
    pub fn of(report: &Report) -> Self {
        Self { id: report.job.clone(), key: report.key, quantities: quantities(report) }
    }
}

/// Phase, or none for the whole job, and metric with its labels.
type Key = (Option<String>, String);

#[derive(Debug, Clone, Default)]
struct Quantity {
    unit: String,
    mean: f64,
    /// Means of parts of the job's time.
    parts: Vec<f64>,
    /// True for energy of shared nodes.
    is_estimate: bool,
}

impl Quantity {
    fn of_job(unit: &str, value: f64) -> Self {
        Self { unit: unit.to_owned(), mean: value, ..Self::default() }
    }
}

/// Leaves out values of steps and tasks, since the job's own contain them.
pub fn compare(a: &[Subject], b: &[Subject]) -> Comparison {
    let basis = if a.len() >= 2 && b.len() >= 2 { Basis::Jobs } else { Basis::PartsOfJobs };
    let mut keys: Vec<&Key> = a.iter().chain(b).flat_map(|job| job.quantities.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut rows: Vec<Difference> = keys.into_iter().map(|key| difference(key, basis, a, b)).collect();
    rows.sort_by(|one, other| one.rank().cmp(&other.rank()));
    // Two runs of one job.
    let [a, b] = [(a, b), (b, a)].map(|(jobs, others)| {
        jobs.iter()
            .map(|job| {
                let is_in_both = others.iter().any(|other| other.id == job.id);
                if is_in_both { format!("{} ({KEY}{})", job.id, job.key) } else { job.id.clone() }
            })
            .collect()
    });
    Comparison { a, b, basis, rows }
}

fn quantities(report: &Report) -> BTreeMap<Key, Quantity> {
    let mut found = BTreeMap::new();
    found.insert((None, ELAPSED.to_owned()), Quantity::of_job("seconds", report.wall_s));
    let cpu_s = Facts::of(report).number("cpu_time");
    found.extend(cpu_s.map(|cpu_s| ((None, CPU_TIME.to_owned()), Quantity::of_job("seconds", cpu_s))));
    add_energy(&mut found, report);
    let mut series: BTreeMap<String, Vec<&SeriesReport>> = BTreeMap::new();
    for of_job in report.series.iter().filter(|series| !series.is_of_step && !series.is_derived) {
        series.entry(of_job.name(false)).or_default().push(of_job);
    }
    let mut phases: BTreeMap<&str, Vec<(&str, f64, i64, i64)>> = BTreeMap::new();
    for phase in &report.phases {
        if let (Some(begin_us), Some(end_us)) = (phase.begin_us, phase.end_us) {
            let length_s = units::seconds_between(begin_us * 1000, end_us * 1000);
            phases.entry(&phase.name).or_default().push((&phase.node, length_s, begin_us, end_us));
        }
    }
    for (name, times) in &phases {
        let nodes = times.iter().map(|(node, ..)| node).collect::<BTreeSet<_>>().len();
        let total_s: f64 = times.iter().map(|(_, length_s, ..)| length_s).sum();
        let per_node_s = total_s / units::to_f64(nodes.max(1) as u64);
        found.insert((Some((*name).to_owned()), ELAPSED.to_owned()), Quantity::of_job("seconds", per_node_s));
    }
    for (metric, series) in &series {
        found.extend(quantity(series, |_, _| true).map(|quantity| ((None, metric.clone()), quantity)));
        for (name, times) in &phases {
            let key = (Some((*name).to_owned()), metric.clone());
            let of_phase = quantity(series, |node, time_ns| {
                times.iter().any(|(of, _, begin_us, end_us)| {
                    *of == node && (begin_us * 1000..end_us * 1000).contains(&time_ns)
                })
            });
            found.extend(of_phase.map(|quantity| (key, quantity)));
        }
    }
    add_derived(&mut found, report);
    found
}

/// Adds the derived metrics of a job and of its phases: means over nodes of the formula over the whole time.
fn add_derived(found: &mut BTreeMap<Key, Quantity>, report: &Report) {
    let mut by_metric: BTreeMap<&str, Vec<&Computable>> = BTreeMap::new();
    let (computables, _) = derived::all(report);
    for computable in &computables {
        by_metric.entry(&computable.metric).or_default().push(computable);
    }
    let phases: BTreeSet<&str> = report.phases.iter().map(|phase| phase.name.as_str()).collect();
    for (metric, of_nodes) in by_metric {
        if let Some(quantity) =
            derived_quantity(&of_nodes, |one: &Computable| one.value(std::slice::from_ref(&one.span_ns)))
        {
            let parts = derived_parts(&of_nodes);
            found.insert((None, metric.to_owned()), Quantity { parts, ..quantity });
        }
        for name in &phases {
            if let Some(quantity) = derived_quantity(&of_nodes, |one: &Computable| {
                one.value_within(&spans_of(report, name, &one.node))
            }) {
                found.insert((Some((*name).to_owned()), metric.to_owned()), quantity);
            }
        }
    }
}

fn spans_of(report: &Report, phase: &str, node: &str) -> Vec<Range<i64>> {
    report
        .phases
        .iter()
        .filter(|one| one.name == phase && one.node == node)
        .filter_map(|one| Some(one.begin_us? * 1000..one.end_us? * 1000))
        .collect()
}

/// Mean over the nodes on which the derived metric is known.
fn derived_quantity(
    of_nodes: &[&Computable],
    value: impl Fn(&Computable) -> Option<f64>,
) -> Option<Quantity> {
    let values: Vec<f64> = of_nodes.iter().filter_map(|one| value(one)).collect();
    let unit = of_nodes.first().filter(|_| !values.is_empty())?.unit;
    let mean = values.iter().sum::<f64>() / units::to_f64(values.len() as u64);
    Some(Quantity { unit: unit.to_owned(), mean, ..Quantity::default() })
}

/// Means over nodes in equal parts of the time, without those in which one is unknown.
fn derived_parts(of_nodes: &[&Computable]) -> Vec<f64> {
    let points = of_nodes.iter().map(|one| one.times_ns().len().saturating_sub(1)).min();
    let count = i64::try_from(points.unwrap_or_default().min(PARTS_MAX)).unwrap_or_default();
    (0..count)
        .filter_map(|number: i64| {
            let values: Vec<f64> = of_nodes
                .iter()
                .map(|one| {
                    let Range { start, end } = one.span_ns;
                    let at = |number: i64| start + (end - start) / count * number;
                    one.value(std::slice::from_ref(&(at(number)..at(number + 1))))
                })
                .collect::<Option<_>>()?;
            Some(values.iter().sum::<f64>() / units::to_f64(values.len() as u64))
        })
        .collect()
}

/// Adds the energy of a job on all its nodes together, and that of its phases.
fn add_energy(found: &mut BTreeMap<Key, Quantity>, report: &Report) {
    let Some(energy) = &report.energy else { return };
    let used =
        |joules: f64| Quantity { is_estimate: energy.is_estimate, ..Quantity::of_job("joules", joules) };
    found.insert((None, ENERGY.to_owned()), used(energy.joules));
    for totals in phases::totals(report) {
        if let Some(of_phase) = totals.energy_joules {
            found.insert((Some(totals.name), ENERGY.to_owned()), used(of_phase));
        }
    }
}

/// Mean over nodes, of the intervals that `is_inside` selects by node and time; none without values.
fn quantity(series: &[&SeriesReport], is_inside: impl Fn(&str, i64) -> bool) -> Option<Quantity> {
    let mut of_nodes: Vec<Vec<Interval>> = Vec::new();
    for series in series {
        let selected = series.curve.intervals().iter().copied();
        let selected = selected
            .filter(|interval| interval.sum.is_finite())
            .filter(|interval| is_inside(&series.node, interval.time_ns));
        of_nodes.push(selected.collect());
    }
    of_nodes.retain(|intervals| !intervals.is_empty());
    let count = units::to_f64(of_nodes.len() as u64);
    let first = series.first().filter(|_| !of_nodes.is_empty())?;
    let mean = of_nodes.iter().map(|intervals| mean_of(intervals)).sum::<f64>() / count;
    let unit = first.rate_unit.unwrap_or(&first.unit).to_owned();
    Some(Quantity { unit, mean, parts: parts(&of_nodes), is_estimate: false })
}

fn parts(of_nodes: &[Vec<Interval>]) -> Vec<f64> {
    let count = of_nodes.iter().map(Vec::len).min().unwrap_or_default().min(PARTS_MAX);
    let times = || of_nodes.iter().flatten().map(|interval| interval.time_ns);
    let (begin_ns, end_ns) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
    let length_s = units::seconds_between(begin_ns, end_ns);
    let number = |interval: &Interval| {
        let after_s = units::seconds_between(begin_ns, interval.time_ns);
        units::part(if length_s > 0.0 { after_s / length_s } else { 0.0 }, count)
    };
    (0..count)
        .filter_map(|wanted: usize| {
            let means: Vec<f64> = of_nodes
                .iter()
                .map(|intervals| {
                    let inside = intervals.iter().filter(|interval| number(interval) == wanted);
                    let inside: Vec<Interval> = inside.copied().collect();
                    (!inside.is_empty()).then(|| mean_of(&inside))
                })
                .collect::<Option<_>>()?;
            Some(means.iter().sum::<f64>() / units::to_f64(means.len() as u64))
        })
        .collect()
}

fn mean_of(intervals: &[Interval]) -> f64 {
    let sum: f64 = intervals.iter().map(|interval| interval.sum).sum();
    let weight_ns: u64 = intervals.iter().map(|interval| interval.weight_ns).sum();
    sum / units::to_f64(weight_ns.max(1))
}

fn mean(of: &[Quantity]) -> Option<f64> {
    let sum: f64 = of.iter().map(|quantity| quantity.mean).sum();
    (!of.is_empty()).then(|| sum / units::to_f64(of.len() as u64))
}

fn difference(key: &Key, basis: Basis, a: &[Subject], b: &[Subject]) -> Difference {
    let [of_a, of_b]: [Vec<Quantity>; 2] =
        [a, b].map(|jobs| jobs.iter().filter_map(|job| job.quantities.get(key).cloned()).collect());
    let (a, b) = (mean(&of_a), mean(&of_b));
    let [values_a, values_b]: [Vec<f64>; 2] = [&of_a, &of_b].map(|of| match basis {
        Basis::Jobs => of.iter().map(|quantity| quantity.mean).collect(),
        Basis::PartsOfJobs => of.iter().flat_map(|quantity| quantity.parts.clone()).collect(),
    });
    let estimate = Estimate::difference(&values_b, &values_a);
    let difference = a.zip(b).map(|(a, b)| b - a);
    let half = Some(estimate.half).filter(|half| half.is_finite());
    let interval = difference.zip(half).map(|(difference, half)| [difference - half, difference + half]);
    let verdict = match (difference, interval) {
        (None, _) => Verdict::OneSideOnly,
        (Some(_), None) => Verdict::TooFewValues,
        (Some(_), Some([low, _])) if low > 0.0 => Verdict::Higher,
        (Some(_), Some([_, high])) if high < 0.0 => Verdict::Lower,
        (Some(_), Some(_)) => Verdict::NoDifferenceShown,
    };
    let percent = difference.zip(a).filter(|(_, a)| *a != 0.0).map(|(by, a)| by / a.abs() * 100.0);
    let unit = of_a.first().or(of_b.first()).map(|quantity| quantity.unit.clone()).unwrap_or_default();
    let is_estimate = of_a.iter().chain(&of_b).any(|quantity| quantity.is_estimate);
    let (phase, metric) = key.clone();
    Difference { is_estimate, phase, metric, unit, a, b, difference, percent, interval, verdict }
}

#[cfg(test)]
mod tests {
    use polymeter_store::reader::JobNodeRow;

    use super::*;
    use crate::cumulative::Cumulative;
    use crate::curve::Curve;
    use crate::energy;
    use crate::model::{NodeEnergy, Phase};
    use crate::testing::{START_S, busy, gauge, labelled, report};

    /// Rates of an hour around `mean`, with noise of ± 0.1 that is no multiple of the parts.
    fn around(mean: f64) -> Vec<f64> {
        (0..60).map(|minute| mean + [0.1, -0.1, 0.05, 0.0, -0.05, 0.02, -0.02][minute % 7]).collect()
    }

    fn job(id: &str, cores: f64) -> Report {
        Report { job: id.to_owned(), ..report(60, 8, vec![busy("n1", &around(cores))]) }
    }

    fn compared(a: &[Report], b: &[Report]) -> Comparison {
        let subjects = |reports: &[Report]| reports.iter().map(Subject::of).collect::<Vec<_>>();
        compare(&subjects(a), &subjects(b))
    }

    fn job_with(cores: f64, reads: f64, faults: f64, noise: f64) -> Report {
        let series = vec![
            gauge("a.same", &[3.0; 60]),
            gauge(
                "b.unclear",
                &around(faults / 2.0).into_iter().map(|value| value * noise).collect::<Vec<_>>(),
            ),
            gauge("c.clear", &around(faults)),
            gauge("io.read.bytes", &around(reads)),
            busy("n1", &around(cores)),
        ];
        report(60, 8, series)
    }

    #[test]
    fn important_and_clear_differences_come_first() {
        let comparison = compared(&[job_with(1.0, 5.0, 10.0, 1.0)], &[job_with(2.0, 9.0, 12.0, 1.0)]);
        let metrics: Vec<&str> = comparison.rows.iter().map(|row| row.metric.as_str()).collect();
        assert_eq!(
            metrics,
            ["elapsed", "cpu_time", "cpu.usage", "io.read.bytes", "c.clear", "b.unclear", "a.same"]
        );
    }

    fn row<'a>(comparison: &'a Comparison, phase: Option<&str>, metric: &str) -> &'a Difference {
        let mut rows = comparison.rows.iter();
        rows.find(|row| row.phase.as_deref() == phase && row.metric == metric).unwrap()
    }

    #[test]
    fn groups_are_compared_by_their_jobs() {
        let group = |cores: [f64; 3]| cores.map(|cores| job("1", cores));
        let comparison = compared(&group([2.0, 2.1, 1.9]), &group([4.0, 4.1, 3.9]));
        let cpu = row(&comparison, None, "cpu.usage");
        assert_eq!((comparison.basis, cpu.verdict), (Basis::Jobs, Verdict::Higher));
        assert!((cpu.percent.unwrap() - 100.0).abs() < 1.0, "{cpu:?}");
        let [low, high] = cpu.interval.unwrap();
        // t is 2.776 for 4 degrees of freedom, and the standard error 0.1 * sqrt(2/3).
        assert!((high - low - 2.0 * 2.776 * 0.1 * (2.0_f64 / 3.0).sqrt()).abs() < 0.01, "{cpu:?}");
        let same = compared(&group([2.0, 2.1, 1.9]), &group([2.05, 1.9, 2.1]));
        assert_eq!(row(&same, None, "cpu.usage").verdict, Verdict::NoDifferenceShown);
        assert_eq!(row(&same, None, "elapsed").difference, Some(0.0));
        let cpu_time = row(&comparison, None, "cpu_time");
        let used = |mean: f64| 60.0 * around(mean).iter().sum::<f64>();
        assert!((cpu_time.a.unwrap() - used(2.0)).abs() < 1.0, "{cpu_time:?}");
        assert!((cpu_time.b.unwrap() - used(4.0)).abs() < 1.0, "{cpu_time:?}");
    }

    #[test]
    fn single_jobs_are_compared_by_parts_of_their_time() {
        let comparison = compared(&[job("1", 3.0)], &[job("2", 1.0)]);
        let cpu = row(&comparison, None, "cpu.usage");
        assert_eq!((comparison.basis, cpu.verdict), (Basis::PartsOfJobs, Verdict::Lower));
        let [low, high] = cpu.interval.unwrap();
        assert!(low < -2.0 && -2.0 < high && high - low < 0.2, "{cpu:?}");
        assert_eq!(row(&comparison, None, "elapsed").verdict, Verdict::TooFewValues);
        assert_eq!(
            row(&compared(&[job("1", 3.0)], &[job("2", 3.0)]), None, "cpu.usage").verdict,
            Verdict::NoDifferenceShown
        );
    }

    // One core in the first half, three in the second; the other job was sampled each 10 ms for 10 s.
    fn sampled_fast(id: &str, fast: Range<f64>) -> Report {
        let mut points = Vec::new();
        let mut time_ms = 0;
        while time_ms < 600_000 {
            let time_s = units::seconds_between(0, time_ms * 1_000_000);
            points.push((
                START_S * 1_000_000_000 + time_ms * 1_000_000,
                if time_s < 300.0 { 1.0 } else { 3.0 },
            ));
            time_ms += if fast.contains(&time_s) { 10 } else { 1000 };
        }
        let series = SeriesReport { curve: Curve::of(&points), ..gauge("cpu.threads.busy", &[1.0]) };
        Report { job: id.to_owned(), ..report(10, 8, vec![series]) }
    }

    #[test]
    fn jobs_that_behave_alike_do_not_differ_by_their_periods() {
        let comparison = compared(&[sampled_fast("1", 0.0..0.0)], &[sampled_fast("2", 400.0..410.0)]);
        let busy = row(&comparison, None, "cpu.threads.busy");
        assert!((busy.a.unwrap() - 2.0).abs() < 1e-9 && busy.difference.unwrap().abs() < 1e-9, "{busy:?}");
        assert_eq!(busy.verdict, Verdict::NoDifferenceShown);
    }

    #[test]
    fn phases_are_compared_and_steps_are_not() {
        let [a, b] = [0.0, 4.0].map(|cores| {
            let mut values = around(1.0);
            values.iter_mut().take(30).for_each(|value| *value += cores);
            let step = labelled(gauge("memory.current", &[1.0; 60]), "step=0");
            let solve = Phase {
                name: "solve".to_owned(),
                node: "n1".to_owned(),
                begin_us: Some(START_S * 1_000_000),
                end_us: Some((START_S + 1800) * 1_000_000),
                ..Phase::default()
            };
            Report { phases: vec![solve], ..report(60, 8, vec![busy("n1", &values), step]) }
        });
        let comparison = compared(&[a], &[b]);
        let solve = row(&comparison, Some("solve"), "cpu.usage");
        assert!((solve.difference.unwrap() - 4.0).abs() < 1e-9, "{solve:?}");
        assert_eq!(solve.verdict, Verdict::Higher);
        let whole = row(&comparison, None, "cpu.usage");
        assert!((whole.difference.unwrap() - 2.0).abs() < 1e-9, "{whole:?}");
        assert_eq!(row(&comparison, Some("solve"), "elapsed").a, Some(1800.0));
        assert!(comparison.rows.iter().all(|row| row.metric != "memory.current"));
    }

    fn time_ns(second: i64) -> i64 {
        (START_S + second) * 1_000_000_000
    }

    fn with_power(watts: f64, is_estimate: bool) -> Report {
        let mut counter = Cumulative::default();
        (0..=60).for_each(|minute| {
            counter.add(time_ns(minute * 60), if minute > 0 { watts * 60.0 } else { 0.0 });
        });
        let solve = Phase {
            name: "solve".to_owned(),
            node: "n1".to_owned(),
            begin_us: Some(time_ns(0) / 1000),
            end_us: Some(time_ns(600) / 1000),
            ..Phase::default()
        };
        let mut report = Report { phases: vec![solve], ..job("1", 2.0) };
        let row = JobNodeRow {
            node: "n1".to_owned(),
            started_ns: time_ns(0),
            ended_ns: Some(time_ns(3600)),
            is_shared: is_estimate,
            clock_offset_us: None,
        };
        let energy = NodeEnergy {
            parts: vec![crate::model::MeasuredPart {
                part: "processors",
                source: "node.energy.package".to_owned(),
                energy: counter,
            }],
            is_estimate,
            error_joules: None,
        };
        let energies = BTreeMap::from([("n1".to_owned(), energy)]);
        energy::add_to(&mut report, &[row], energies, &Default::default());
        report
    }

    #[test]
    fn energy_is_compared_by_job_and_phase() {
        let comparison = compared(&[with_power(100.0, false)], &[with_power(150.0, true)]);
        let energy = row(&comparison, None, "energy");
        assert_eq!((energy.a, energy.b, energy.unit.as_str()), (Some(360_000.0), Some(540_000.0), "joules"));
        assert!(energy.is_estimate && energy.verdict == Verdict::TooFewValues, "{energy:?}");
        assert_eq!(row(&comparison, Some("solve"), "energy").difference, Some(30_000.0));
        assert!(!row(&comparison, None, "cpu.usage").is_estimate);
        let groups = compared(
            &[100.0, 101.0].map(|watts| with_power(watts, false)),
            &[150.0, 151.0].map(|watts| with_power(watts, false)),
        );
        let energy = row(&groups, None, "energy");
        assert_eq!((energy.verdict, energy.is_estimate), (Verdict::Higher, false));
        let without = compared(&[job("1", 3.0)], &[job("2", 1.0)]);
        assert!(without.rows.iter().all(|row| row.metric != "energy"));
    }

    #[test]
    fn a_metric_of_one_side_and_a_constant_one_are_no_difference() {
        let with = |metric: &str| report(60, 8, vec![gauge(metric, &[5.0; 60])]);
        let comparison = compared(&[with("memory.anon")], &[with("memory.file")]);
        let anon = row(&comparison, None, "memory.anon");
        assert_eq!((anon.verdict, anon.a, anon.b), (Verdict::OneSideOnly, Some(5.0), None));
        let same = compared(&[with("memory.anon")], &[with("memory.anon")]);
        assert_eq!(row(&same, None, "memory.anon").verdict, Verdict::NoDifferenceShown);
    }
}
