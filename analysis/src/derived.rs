//! Derived metrics: the formulas of the catalogue over the increases of sampled metrics. Pure.
//!
//! A value over a time is the formula of the increases over that time. The mean is therefore a ratio of sums,
//! not a mean of ratios. Where hardware counters were shared, the count of an event is scaled by the time for
//! which its group counted.

mod names;
mod parts;
pub(crate) mod roofline;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use polymeter_proto::catalogue::derived::{self, Derived, Formula, Quantity, times_of};
use polymeter_proto::catalogue::{self, Definition, Scope};
use polymeter_proto::units;

use crate::cumulative::Cumulative;
use crate::curve::{Curve, Interval};
use crate::expression::{Expression, Lookup, Statistic, Value};
use crate::model::{DerivedReport, Report, SeriesReport};

use names::{Names, SECONDS, WHOLE, metric_of};
pub use parts::{DerivedParts, known};

/// Begin of the names of users' own metrics.
const PUSHED: &str = "user.";

/// A job with more nodes has no series of its nodes in its report.
pub(crate) const NODES_MAX: usize = 256;

/// Metrics of nodes from which others are derived, and the times by which they are scaled.
pub(crate) fn metrics_of_nodes() -> impl Iterator<Item = &'static str> {
    let of_nodes = derived::all().filter(|derived| derived.scope == Scope::Node);
    let formulas = of_nodes.flat_map(|derived| derived.formulas);
    let inputs = formulas.flat_map(|formula| formula.inputs).filter_map(metric_of);
    inputs.chain(times_of(Scope::Node))
}

struct Increases<'a> {
    inputs: &'a [(&'static str, Counters)],
    spans_ns: &'a [Range<i64>],
}

impl Lookup for Increases<'_> {
    fn value(&self, name: &str) -> Option<Value> {
        if name == SECONDS {
            let lengths = self.spans_ns.iter().map(|span| units::seconds_between(span.start, span.end));
            return Some(Value::Number(lengths.sum()));
        }
        let (_, counters) = self.inputs.iter().find(|(known, _)| *known == name)?;
        let increases: Option<Vec<f64>> = self.spans_ns.iter().map(|span| counters.increase(span)).collect();
        Some(Value::Number(increases?.iter().sum()))
    }

    fn metric(&self, _: Statistic, _: &str) -> Option<f64> {
        None
    }
}

/// Their sum is an input.
#[derive(Debug, Default)]
struct Counters(Vec<Counter>);

/// Counter, and the times for which its group was enabled and counted, if they are known.
#[derive(Debug)]
struct Counter {
    count: Cumulative,
    /// Factor from the count to the input.
    factor: f64,
    times: Option<(Cumulative, Cumulative)>,
}

impl Counters {
    /// None if a counter did not count in the time at all.
    fn increase(&self, span_ns: &Range<i64>) -> Option<f64> {
        self.0.iter().map(|counter| counter.increase(span_ns)).sum()
    }

    /// Time for which all of them have points; none without any.
    fn span_ns(&self) -> Option<Range<i64>> {
        common(self.0.iter().map(|counter| counter.count.span_ns()))
    }
}

impl Counter {
    fn increase(&self, span_ns: &Range<i64>) -> Option<f64> {
        let increase = self.count.within(span_ns) * self.factor;
        match self.counted(span_ns) {
            Some(share) if share <= 0.0 => None,
            Some(share) if share < WHOLE => Some(increase / share),
            Some(_) | None => Some(increase),
        }
    }

    /// Share of a time for which its group counted; none if it is unknown.
    fn counted(&self, span_ns: &Range<i64>) -> Option<f64> {
        let (enabled, running) = self.times.as_ref()?;
        let enabled = enabled.within(span_ns);
        (enabled > 0.0).then(|| running.within(span_ns) / enabled)
    }
}

/// Time that all spans have in common; none without any, or if one is none.
fn common(spans: impl Iterator<Item = Option<Range<i64>>>) -> Option<Range<i64>> {
    let spans: Option<Vec<Range<i64>>> = spans.collect();
    spans?
        .into_iter()
        .reduce(|one: Range<i64>, other: Range<i64>| one.start.max(other.start)..one.end.min(other.end))
        .filter(|span| span.start < span.end)
}

/// Derived metric of a node, or of the whole job, whose inputs were sampled.
#[derive(Debug)]
pub(crate) struct Computable {
    pub(crate) metric: String,
    pub(crate) unit: &'static str,
    pub(crate) node: String,
    inputs: Vec<(&'static str, Counters)>,
    expression: Expression,
    pub(crate) span_ns: Range<i64>,
}

impl Computable {
    /// Value over some times together; none if it is unknown.
    pub(crate) fn value(&self, spans_ns: &[Range<i64>]) -> Option<f64> {
        let lookup = Increases { inputs: &self.inputs, spans_ns };
        match self.expression.evaluate(&lookup) {
            Some(Value::Number(value)) => Some(value),
            Some(Value::Truth(_) | Value::Text(_)) | None => None,
        }
    }

    /// Value over the part of a time in which the inputs are known.
    pub(crate) fn value_within(&self, spans_ns: &[Range<i64>]) -> Option<f64> {
        let known: Vec<Range<i64>> = spans_ns
            .iter()
            .filter_map(|span| common([Some(span.clone()), Some(self.span_ns.clone())].into_iter()))
            .collect();
        if known.is_empty() { None } else { self.value(&known) }
    }

    /// Ends of the parts of the time in which each input has a point: those of the input with the fewest
    /// points.
    pub(crate) fn times_ns(&self) -> Vec<i64> {
        let counters = self.inputs.iter().flat_map(|(_, counters)| &counters.0);
        let times = counters.map(|counter| {
            counter
                .count
                .times_ns()
                .filter(|time_ns| (self.span_ns.start..=self.span_ns.end).contains(time_ns))
                .collect::<Vec<i64>>()
        });
        times.min_by_key(Vec::len).unwrap_or_default()
    }

    /// Smallest share of the time for which a group of its events counted.
    fn counted(&self) -> Option<f64> {
        let counters = self.inputs.iter().flat_map(|(_, counters)| &counters.0);
        counters.filter_map(|counter| counter.counted(&self.span_ns)).reduce(f64::min)
    }

    fn curve(&self) -> Curve {
        let times_ns = self.times_ns();
        let mut intervals = Vec::new();
        for (begin_ns, end_ns) in times_ns.iter().zip(times_ns.iter().skip(1)) {
            let span_ns = *begin_ns..*end_ns;
            if let Some(value) = self.value(std::slice::from_ref(&span_ns)) {
                intervals.push(Interval::of((*end_ns, value), end_ns.saturating_sub(*begin_ns)));
            }
        }
        Curve::of_intervals(intervals.into_iter())
    }

    /// Series for a report; none if the value over all of the time is unknown.
    fn series(&self, periods_of: Option<&SeriesReport>) -> Option<SeriesReport> {
        let mean = self.value(std::slice::from_ref(&self.span_ns))?;
        let curve = self.curve();
        let intervals = curve.intervals();
        let min = intervals.iter().map(|interval| interval.min).chain([mean]).reduce(f64::min);
        let max = intervals.iter().map(|interval| interval.max).chain([mean]).reduce(f64::max);
        Some(SeriesReport {
            metric: self.metric.clone(),
            node: self.node.clone(),
            unit: self.unit.to_owned(),
            kind: "gauge".to_owned(),
            is_derived: true,
            samples: self.times_ns().len().saturating_sub(1) as u64,
            period: periods_of.and_then(|series| series.period.clone()),
            periods: periods_of.map(|series| series.periods.clone()).unwrap_or_default(),
            first_us: self.span_ns.start.div_euclid(1000),
            last_us: self.span_ns.end.div_euclid(1000),
            min,
            mean: Some(mean),
            max,
            curve,
            ..SeriesReport::default()
        })
    }
}

fn by_node(report: &Report) -> BTreeMap<&str, Vec<&SeriesReport>> {
    let mut nodes: BTreeMap<&str, Vec<&SeriesReport>> = BTreeMap::new();
    for series in &report.series {
        nodes.entry(&series.node).or_default().push(series);
    }
    nodes
}

/// Adds the series of derived metrics to a report, and for each whether it is known and why not.
pub(crate) fn add_to(report: &mut Report) {
    let nodes = by_node(report);
    let (computables, mut missing) = of_nodes(report, &nodes);
    let mut series = Vec::new();
    for computable in &computables {
        let found = computable.series(first_input(computable, &nodes));
        let reason = match &found {
            Some(_) => None,
            None => {
                Some("the formula has no value: a divisor is 0, or an event was never counted".to_owned())
            }
        };
        missing.push(DerivedReport {
            metric: computable.metric.clone(),
            node: computable.node.clone(),
            unit: computable.unit,
            value: found.as_ref().and_then(|series| series.mean),
            counted: computable.counted().filter(|share| *share < WHOLE),
            reason,
        });
        series.extend(found);
    }
    let note = shared_note(&nodes);
    missing.sort_by(|one, other| (&one.metric, &one.node).cmp(&(&other.metric, &other.node)));
    report.derived = missing;
    report.series.extend(series);
    report.notes.extend(note);
}

fn first_input<'a>(
    computable: &Computable,
    nodes: &BTreeMap<&str, Vec<&'a SeriesReport>>,
) -> Option<&'a SeriesReport> {
    let derived = derived::find(&computable.metric)?;
    let mut of_node = nodes.get(computable.node.as_str())?.iter().copied();
    of_node.find(|series| !series.is_of_step && derived.may_use(&series.metric))
}

/// Remark on hardware counters that several groups of events shared.
fn shared_note(nodes: &BTreeMap<&str, Vec<&SeriesReport>>) -> Option<String> {
    let mut least: Option<(&str, f64)> = None;
    for (node, of_node) in nodes {
        for [enabled, running] in [Scope::Job, Scope::Node].map(times_of) {
            for times in of_node.iter().filter(|series| series.metric == enabled && !series.is_of_step) {
                let same =
                    |series: &&&SeriesReport| series.metric == running && series.labels == times.labels;
                let (Some(running), Some(enabled)) =
                    (of_node.iter().find(same), times.growth.filter(|growth| *growth > 0.0))
                else {
                    continue;
                };
                let share = running.growth.unwrap_or_default() / enabled;
                if share < WHOLE && least.is_none_or(|(_, least)| share < least) {
                    least = Some((node, share));
                }
            }
        }
    }
    let (node, share) = least?;
    Some(format!(
        "hardware counters were shared: a group of events counted {:.0} % of the time on {node}, and the counts of \
         perf.* are those of this part of the time; derived metrics are scaled to all of it",
        share * 100.0
    ))
}

/// Returns the derived metrics whose inputs were sampled, and those of which only some were.
pub(crate) fn all(report: &Report) -> (Vec<Computable>, Vec<DerivedReport>) {
    of_nodes(report, &by_node(report))
}

fn of_nodes(
    report: &Report,
    nodes: &BTreeMap<&str, Vec<&SeriesReport>>,
) -> (Vec<Computable>, Vec<DerivedReport>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for derived in derived::all() {
        if derived.name.ends_with('*') {
            for instance in pushed(report) {
                found.extend(of_pushed(derived, report, instance));
            }
            continue;
        }
        for (node, of_node) in nodes {
            match of_node_series(derived, node, of_node) {
                Some(Ok(computable)) => found.push(computable),
                Some(Err(report)) => missing.push(report),
                None => {}
            }
        }
    }
    (found, missing)
}

/// Computes a derived metric from the series of a node; the reason if only some of its inputs were sampled,
/// and none if none of them was.
fn of_node_series(
    derived: &'static Derived,
    node: &str,
    series: &[&SeriesReport],
) -> Option<Result<Computable, DerivedReport>> {
    let mut best: Option<(usize, &'static Formula, Vec<&'static str>)> = None;
    for formula in derived.formulas {
        let metrics = formula.inputs.iter().filter_map(metric_of);
        let (known, lacking): (Vec<&str>, Vec<&str>) =
            metrics.partition(|metric| series.iter().any(|series| is_counted(metric, series)));
        if !known.is_empty() && best.as_ref().is_none_or(|(most, ..)| known.len() > *most) {
            best = Some((known.len(), formula, lacking));
        }
    }
    let (_, formula, lacking) = best?;
    let unknown = |reason: String| DerivedReport {
        metric: derived.name.to_owned(),
        node: node.to_owned(),
        unit: derived.unit,
        value: None,
        counted: None,
        reason: Some(reason),
    };
    if !lacking.is_empty() {
        return Some(Err(unknown(format!("not sampled: {}", lacking.join(", ")))));
    }
    let mut inputs = Vec::new();
    for input in formula.inputs {
        if let Some(metric) = metric_of(input) {
            inputs.push((input.name, counters(metric, input.quantity, series)));
        }
    }
    let computable = computable(derived, derived.name.to_owned(), node, formula, inputs);
    Some(computable.ok_or_else(|| unknown("its inputs were not sampled at the same time".to_owned())))
}

fn computable(
    derived: &'static Derived,
    metric: String,
    node: &str,
    formula: &'static Formula,
    inputs: Vec<(&'static str, Counters)>,
) -> Option<Computable> {
    let span_ns = common(inputs.iter().map(|(_, counters)| counters.span_ns()))?;
    // A test shows that all expressions are valid.
    let expression = Expression::parse(formula.expression, &Names(formula)).ok()?;
    Some(Computable { metric, unit: derived.unit, node: node.to_owned(), inputs, expression, span_ns })
}

/// The rates of a counter cover the time from its first sample without gaps. A gauge counts as a counter that
/// a user pushed.
fn cumulative(series: &SeriesReport) -> Cumulative {
    let mut cumulative = Cumulative::default();
    let intervals = series.curve.intervals();
    if series.rate_unit.is_none() {
        let begins = intervals.iter().map(|interval| (interval.time_ns, interval.min));
        let end = series.curve.ends_ns().zip(intervals.last());
        let points: Vec<(i64, f64)> =
            begins.chain(end.map(|((_, end_ns), last)| (end_ns, last.max))).collect();
        return Cumulative::of_samples(&points);
    }
    let (_, factor) = units::rate_unit(&series.metric, &series.unit);
    let mut time_ns = series.first_us.saturating_mul(1000);
    cumulative.add(time_ns, 0.0);
    for interval in intervals.iter().filter(|interval| interval.sum.is_finite()) {
        time_ns = time_ns.saturating_add_unsigned(interval.weight_ns);
        cumulative.add(time_ns, interval.sum / 1e9 / factor);
    }
    cumulative
}

/// Returns the counters of a metric that is the input `quantity`.
fn counters(metric: &str, quantity: Quantity, series: &[&SeriesReport]) -> Counters {
    let mut counters = Counters::default();
    for counted in series.iter().filter(|series| is_counted(metric, series)) {
        counters.0.push(Counter {
            count: cumulative(counted),
            factor: quantity.factor(&counted.unit),
            times: group_times(metric, counted, series),
        });
    }
    counters
}

/// Returns true for a series of the metric that counts: not of a step, nor of a device that contains others.
fn is_counted(metric: &str, series: &SeriesReport) -> bool {
    series.metric == metric && !series.is_of_step && !series.is_contained && series.samples > 1
}

/// Times of the group in which an event was counted; none if they are not known.
fn group_times(
    metric: &str,
    counted: &SeriesReport,
    series: &[&SeriesReport],
) -> Option<(Cumulative, Cumulative)> {
    let definition = catalogue::find(metric).filter(Definition::is_of_hardware)?;
    let [enabled, running] = times_of(definition.metric.scope);
    let of_group = |name: &str| {
        series
            .iter()
            .find(|series| {
                series.metric == name
                    && !series.is_of_step
                    && series.labels.split(',').all(|label| {
                        label.starts_with("group=") || counted.labels.split(',').any(|own| own == label)
                    })
                    && group_of(series).any(|event| event == metric)
            })
            .map(|series| cumulative(series))
    };
    of_group(enabled).zip(of_group(running))
}

/// Events of the group that the label of a series of times names.
fn group_of(series: &SeriesReport) -> impl Iterator<Item = &str> {
    series.label("group=").into_iter().flat_map(|group| group.split('+'))
}

fn pushed(report: &Report) -> BTreeSet<&str> {
    report.series.iter().filter_map(|series| series.metric.strip_prefix(PUSHED)).collect()
}

/// Computes the energy per unit of a user's own metric over all nodes of the job, on whichever it was pushed;
/// none if the energy of a node is unknown.
fn of_pushed(derived: &'static Derived, report: &Report, instance: &str) -> Option<Computable> {
    let [formula] = derived.formulas else { return None };
    let name = format!("{PUSHED}{instance}");
    let work: Vec<&SeriesReport> = report.series.iter().filter(|series| series.metric == name).collect();
    let node = work.first()?.node.clone();
    let mut energy = Counters::default();
    for node in &report.nodes {
        let parts = &report.node_energy.get(node)?.parts;
        let counter = |count: &Cumulative| Counter { count: count.clone(), factor: 1.0, times: None };
        energy.0.extend(parts.iter().map(|part| counter(&part.energy)));
    }
    let mut inputs = Vec::new();
    for input in formula.inputs {
        let counters = match input.quantity {
            Quantity::Energy => std::mem::take(&mut energy),
            Quantity::Pushed => counters(&name, input.quantity, &work),
            Quantity::Metric(_) | Quantity::Lines(_) => return None,
        };
        inputs.push((input.name, counters));
    }
    computable(derived, derived.name.replace('*', instance), &node, formula, inputs)
}

#[cfg(test)]
mod tests;
