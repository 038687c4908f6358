//! A derived metric of a job in equal parts of a time, from the rates of its inputs there. Pure.

use std::collections::{BTreeMap, BTreeSet};

use polymeter_proto::catalogue::derived::{self, Derived, Formula, times_of};
use polymeter_proto::catalogue::{self, Definition, Scope};
use polymeter_proto::units;
use polymeter_store::reader::SeriesRow;

use super::names::{Names, SECONDS, WHOLE, metric_of};
use crate::downsample::Part;
use crate::expression::{Expression, Lookup, Statistic, Value};

/// Rates of a series by the time of their part, as increases per second, and the numbers of its values.
#[derive(Debug, Clone)]
struct Rates {
    metric: String,
    group: Option<String>,
    by_time: BTreeMap<i64, (f64, u64)>,
}

#[derive(Debug, Clone)]
pub struct DerivedParts {
    derived: &'static Derived,
    by_node: BTreeMap<String, Vec<Rates>>,
}

struct Increases<'a> {
    formula: &'static Formula,
    rates: &'a BTreeMap<&'static str, f64>,
}

impl Lookup for Increases<'_> {
    fn value(&self, name: &str) -> Option<Value> {
        if name == SECONDS {
            return Some(Value::Number(1.0));
        }
        let metric = metric_of(self.formula.input(name)?)?;
        self.rates.get(metric).copied().map(Value::Number)
    }

    fn metric(&self, _: Statistic, _: &str) -> Option<f64> {
        None
    }
}

impl DerivedParts {
    /// Derived metric of jobs with this name, without inputs; none if there is none, or if it needs more than
    /// series of the job.
    pub fn of(name: &str) -> Option<Self> {
        let derived = derived::find(name).filter(|derived| is_of_series(derived))?;
        Some(Self { derived, by_node: BTreeMap::new() })
    }

    pub const fn unit(&self) -> &'static str {
        self.derived.unit
    }

    pub fn metrics(&self) -> Vec<&'static str> {
        let inputs = self.derived.formulas.iter().flat_map(|formula| formula.inputs).filter_map(metric_of);
        let needed: BTreeSet<&'static str> = inputs.chain(times_of(self.derived.scope)).collect();
        needed.into_iter().collect()
    }

    /// Adds the rates of a series of the whole job.
    pub fn add(&mut self, row: &SeriesRow, parts: &[Part]) {
        let (_, factor) = units::rate_unit(&row.metric, &row.unit);
        let rates = Rates {
            metric: row.metric.clone(),
            group: row.labels.get("group").map(str::to_owned),
            by_time: parts.iter().map(|part| (part.time_ns, (part.mean / factor, part.count))).collect(),
        };
        self.by_node.entry(row.node.clone()).or_default().push(rates);
    }

    /// Values of each node in the parts in which all inputs of a formula are known.
    pub fn finish(&self) -> Vec<(&str, Vec<Part>)> {
        let nodes =
            self.by_node.iter().filter_map(|(node, series)| Some((node.as_str(), self.of_node(series)?)));
        nodes.collect()
    }

    fn of_node(&self, series: &[Rates]) -> Option<Vec<Part>> {
        let mut formulas = self.derived.formulas.iter();
        let formula = formulas.find(|formula| {
            let mut metrics = formula.inputs.iter().filter_map(metric_of);
            metrics.all(|metric| series.iter().any(|rates| rates.metric == metric))
        })?;
        // A test shows that all expressions are valid.
        let expression = Expression::parse(formula.expression, &Names(formula)).ok()?;
        let metrics: Vec<&'static str> = formula.inputs.iter().filter_map(metric_of).collect();
        let is_input = |rates: &&Rates| metrics.contains(&rates.metric.as_str());
        let times: BTreeSet<i64> =
            series.iter().filter(is_input).flat_map(|rates| rates.by_time.keys().copied()).collect();
        let mut parts = Vec::new();
        for time_ns in times {
            let rates: Option<BTreeMap<&'static str, f64>> =
                metrics.iter().map(|metric| Some((*metric, rate(metric, series, time_ns)?))).collect();
            let Some(rates) = rates else { continue };
            let value = expression.evaluate(&Increases { formula, rates: &rates });
            if let Some(Value::Number(mean)) = value {
                let counts = series.iter().filter(is_input).filter_map(|rates| rates.by_time.get(&time_ns));
                let count = counts.map(|(_, count)| *count).min().unwrap_or_default();
                parts.push(Part { time_ns, count, min: mean, max: mean, mean });
            }
        }
        Some(parts)
    }
}

/// Rate of a metric in a part, summed over its series, each scaled by the time for which its group counted;
/// none if one is unknown.
fn rate(metric: &str, series: &[Rates], time_ns: i64) -> Option<f64> {
    let of_metric: Vec<&Rates> = series.iter().filter(|rates| rates.metric == metric).collect();
    let rates: Option<Vec<f64>> =
        of_metric.iter().map(|rates| rates.by_time.get(&time_ns).map(|(rate, _)| *rate)).collect();
    let sum: f64 = rates?.iter().sum();
    match counted(metric, series, time_ns) {
        Some(share) if share <= 0.0 => None,
        Some(share) if share < WHOLE => Some(sum / share),
        Some(_) | None => Some(sum),
    }
}

/// Share of a part for which the group of a hardware event counted; none if it is unknown.
fn counted(metric: &str, series: &[Rates], time_ns: i64) -> Option<f64> {
    let definition = catalogue::find(metric).filter(Definition::is_of_hardware)?;
    let [enabled, running] = times_of(definition.metric.scope).map(|name| -> Option<f64> {
        series
            .iter()
            .filter(|rates| {
                let mut events = rates.group.iter().flat_map(|group| group.split('+'));
                rates.metric == name && events.any(|event| event == metric)
            })
            .map(|rates| Some(rates.by_time.get(&time_ns)?.0))
            .sum()
    });
    enabled.filter(|enabled| *enabled > 0.0).zip(running).map(|(enabled, running)| running / enabled)
}

/// Tells whether a metric of jobs needs nothing but their series.
fn is_of_series(derived: &Derived) -> bool {
    let mut inputs = derived.formulas.iter().flat_map(|formula| formula.inputs);
    derived.scope == Scope::Job && inputs.all(|input| metric_of(input).is_some())
}

/// Derived metrics that can be computed from series of a job on which these metrics were sampled.
pub fn known(is_sampled: impl Fn(&str) -> bool) -> Vec<&'static Derived> {
    derived::all()
        .filter(|derived| {
            is_of_series(derived)
                && derived
                    .formulas
                    .iter()
                    .any(|formula| formula.inputs.iter().filter_map(metric_of).all(&is_sampled))
        })
        .collect()
}
