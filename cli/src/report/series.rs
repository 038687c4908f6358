//! The summary of one series. Pure.

use polymeter_store::reader::{PlanChangeRow, SeriesRow};

use super::hardware::Limit;
use super::history;
use super::model::SeriesReport;
use super::rates::{self, Rates};
use crate::output::units;

/// Returns true if a series belongs to a step of the job or to a task of a step.
fn is_of_step(row: &SeriesRow) -> bool {
    ["step", "task"].into_iter().any(|label| row.labels.get(label).is_some())
}

/// Returns the last period in force. Plan changes are recorded for the job's own series only.
pub(super) fn last_period(row: &SeriesRow, changes: &[PlanChangeRow]) -> Option<String> {
    if is_of_step(row) {
        return None;
    }
    let change = changes.iter().rfind(|change| change.metric == row.metric && change.node == row.node)?;
    change.new_period_us.and_then(history::period)
}

/// Summarises a series. A counter that `starts_at_zero` had no line before its first sample. None of its rates exceeds
/// `limit`.
pub(super) fn summarise(
    row: &SeriesRow,
    values: &[(i64, f64)],
    period: Option<String>,
    starts_at_zero: bool,
    limit: Option<Limit>,
) -> SeriesReport {
    let is_counter = row.kind == "counter";
    let (rate_unit, factor) = units::rate_unit(&row.metric, &row.unit);
    let Rates { points, window_ns, is_clamped } = if is_counter {
        counter_rates(&row.metric, values, limit, factor)
    } else {
        Rates { points: values.to_vec(), ..Rates::default() }
    };
    let numbers = || points.iter().map(|(_, value)| *value).filter(|value| !value.is_nan());
    let growth = if is_counter { growth(values, starts_at_zero) } else { None };
    let mean = match growth {
        Some(growth) => {
            let span_s = span_s(values);
            (span_s > 0.0).then(|| growth / span_s * factor)
        }
        None => {
            (numbers().count() > 0).then(|| numbers().sum::<f64>() / units::to_f64(numbers().count() as u64))
        }
    };
    SeriesReport {
        metric: row.metric.clone(),
        labels: row.labels.to_string(),
        node: row.node.clone(),
        unit: row.unit.clone(),
        kind: row.kind.clone(),
        rate_unit: is_counter.then_some(rate_unit),
        window_s: window_ns.map(|window_ns| units::seconds_between(0, window_ns)),
        is_clamped,
        samples: row.count,
        period,
        // Overlapping windows may all miss an increase at either end: the range is extended to include the
        // mean.
        min: numbers().chain(mean.filter(|_| is_counter)).reduce(f64::min),
        mean,
        max: numbers().chain(mean.filter(|_| is_counter && !is_clamped)).reduce(f64::max),
        growth,
        is_of_step: is_of_step(row),
        points,
    }
}

/// Returns the total increase of a counter.
fn growth(values: &[(i64, f64)], starts_at_zero: bool) -> Option<f64> {
    let ((_, first), (_, last)) = values.first().zip(values.last())?;
    Some(last - if starts_at_zero { 0.0 } else { *first })
}

/// Returns the seconds between the first and the last sample.
fn span_s(values: &[(i64, f64)]) -> f64 {
    let ends = values.first().zip(values.last());
    ends.map_or(0.0, |((first_ns, _), (last_ns, _))| units::seconds_between(*first_ns, *last_ns))
}

/// Returns the rates of a counter, multiplied by `factor`. A soft limit, the cores that the scheduler assigned, is ignored if
/// the job exceeded it.
fn counter_rates(metric: &str, values: &[(i64, f64)], limit: Option<Limit>, factor: f64) -> Rates {
    let window_ns = rates::window_ns(metric);
    let mut rates = rates::rates(values, window_ns, limit.map(|limit| limit.rate));
    if rates.is_clamped && limit.is_some_and(|limit| !limit.is_hard) {
        rates = rates::rates(values, window_ns, None);
    }
    rates.points.iter_mut().for_each(|(_, rate)| *rate *= factor);
    rates
}
