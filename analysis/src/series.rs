//! Summary of one series. Pure.

use std::collections::HashMap;
use std::ops::Range;

use polymeter_proto::step_level::StepLevel;
use polymeter_store::reader::{BucketRow, PlanChangeRow, SampleRow, SeriesRow};

use crate::cumulative::steps;
use crate::curve::Curve;
use crate::gauge_course::{Dating, GaugeCourse};
use crate::hardware::Limit;
use crate::model::{PeriodUse, SeriesReport};
use crate::rates;
use crate::{buckets, history};
use polymeter_proto::units;

/// Tells whether a series belongs to a step of the job or to a task of a step.
pub(crate) fn is_of_step(row: &SeriesRow) -> bool {
    level(row).is_some()
}

/// None for a series of the whole job.
fn level(row: &SeriesRow) -> Option<StepLevel> {
    StepLevel::of_labels(|label| row.labels.get(label).is_some())
}

/// Last period in force, and each with its time.
#[derive(Debug, Default)]
pub(crate) struct Periods {
    last: Option<String>,
    uses: Vec<PeriodUse>,
}

/// Changes of the plan of one metric on one node, by node, level (none for the whole job) and metric.
pub(crate) type ChangesOfSeries<'a> = HashMap<(&'a str, Option<&'a str>, &'a str), Vec<&'a PlanChangeRow>>;

pub(crate) fn by_series(changes: &[PlanChangeRow]) -> ChangesOfSeries<'_> {
    let mut sorted = ChangesOfSeries::new();
    for change in changes {
        let key = (change.node.as_str(), change.level.as_deref(), change.metric.as_str());
        sorted.entry(key).or_default().push(change);
    }
    sorted
}

/// Periods of a series: of one of the whole job between the ends of the job, of one of a step or task, whose
/// plan all steps or tasks of the job share, between its own.
pub(crate) fn periods(
    row: &SeriesRow,
    changes: &ChangesOfSeries<'_>,
    of_job_ns: (i64, i64),
    of_series_ns: (i64, i64),
) -> Periods {
    let level = level(row).map(StepLevel::as_str);
    let (started_ns, end_ns) = if level.is_some() { of_series_ns } else { of_job_ns };
    let changes = changes.get(&(row.node.as_str(), level, row.metric.as_str()));
    let changes = || changes.into_iter().flatten().filter(|change| change.time_ns <= end_ns).copied();
    Periods {
        last: changes().last().and_then(PlanChangeRow::new_sampling).map(|sampling| sampling.to_string()),
        uses: history::periods(changes(), started_ns, end_ns),
    }
}

#[derive(Debug, PartialEq)]
pub(crate) struct Summary {
    samples: u64,
    /// Times of the first and the last sample, since the epoch; of a rollup, the begin of the first interval
    /// and the end of the last.
    pub(crate) ends_ns: (i64, i64),
    span_s: f64,
    /// Increase of a counter since its first sample, and since 0.
    increase: Option<(f64, f64)>,
    /// None for a counter.
    mean: Option<f64>,
    range: (Option<f64>, Option<f64>),
    window_ns: Option<i64>,
    /// Time between the samples in windows whose rates are the extremes.
    inner_ns: Option<i64>,
    is_clamped: bool,
    curve: Curve,
}

impl Summary {
    /// Summarises samples, and windows of some. The rates of a counter within windows count if it is exact.
    pub(crate) fn of_rows(row: &SeriesRow, rows: &[SampleRow], limit: Option<Limit>) -> Option<Self> {
        let values: Vec<_> = rows.iter().map(|sample| (sample.time_ns, sample.value)).collect();
        let summary = Self::of_samples(row, &values, limit)?;
        if rows.iter().all(|sample| sample.window.is_none()) {
            return Some(summary);
        }
        let summary = Self { samples: rows.iter().map(SampleRow::count).sum(), ..summary };
        Some(if is_counter(row) { summary.with_rates(row, rows, limit) } else { summary.with_windows(rows) })
    }

    /// Replaces the figures of the last values of windows of a gauge by those of all their samples.
    fn with_windows(self, rows: &[SampleRow]) -> Self {
        let mut course = GaugeCourse::default();
        let mut intervals: Vec<_> = rows.iter().flat_map(|row| course.add(row)).flatten().collect();
        intervals.extend(course.finish());
        let intervals = || intervals.iter().map(|(interval, _)| *interval);
        let first_ns = intervals().map(|interval| interval.time_ns).next().unwrap_or(self.ends_ns.0);
        let range = (
            intervals().map(|interval| interval.min).reduce(f64::min),
            intervals().map(|interval| interval.max).reduce(f64::max),
        );
        let curve = Curve::of_intervals(intervals());
        let ends_ns = (first_ns, self.ends_ns.1);
        let span_s = units::seconds_between(ends_ns.0, ends_ns.1);
        Self { ends_ns, span_s, mean: curve.mean(), range, curve, ..self }
    }

    /// Extends the range of a counter's rates by those within windows.
    fn with_rates(self, row: &SeriesRow, rows: &[SampleRow], limit: Option<Limit>) -> Self {
        if rates::window_ns(&row.metric) > 0 || self.is_clamped {
            return self;
        }
        let factor = rate_unit(row).1;
        let greatest = self.range.1.unwrap_or(f64::NEG_INFINITY);
        // The time of a read is less exact than a short window. A limit holds if it held over longer times.
        let most = limit
            .map(|limit: Limit| limit.rate * factor)
            .filter(|most| greatest <= *most)
            .unwrap_or(f64::INFINITY);
        let windows: Vec<_> = rows.iter().filter_map(|row| Some((row.time_ns, row.window?))).collect();
        let min = windows.iter().map(|(_, window)| (window.min * factor).min(most)).reduce(f64::min);
        let max = windows.iter().map(|(_, window)| (window.max * factor).min(most)).reduce(f64::max);
        let known = |number: &f64| !number.is_nan();
        let (Some(min), Some(max)) = (min.filter(known), max.filter(known)) else { return self };
        let mut dating = Dating::default();
        let points = rows.iter().flat_map(|row| dating.add(row)).flatten();
        let spacings = points.filter(|point| point.count > 1 && point.spacing_ns > 0);
        let inner_ns = spacings.map(|point| point.spacing_ns).min();
        let range = (self.range.0.into_iter().chain([min]).reduce(f64::min), Some(max.max(greatest)));
        let extremes = |time_ns| {
            let at = windows.binary_search_by_key(&time_ns, |(window_ns, _)| *window_ns).ok()?;
            let (_, window) = windows.get(at)?;
            Some(((window.min * factor).min(most), (window.max * factor).min(most)))
        };
        Self { range, inner_ns, curve: self.curve.with_extremes(extremes), ..self }
    }

    /// None without samples. The rates of a counter do not exceed `limit`.
    pub(crate) fn of_samples(row: &SeriesRow, values: &[(i64, f64)], limit: Option<Limit>) -> Option<Self> {
        let ((first_ns, first), (last_ns, _)) = values.first().copied().zip(values.last().copied())?;
        let rates = is_counter(row).then(|| {
            let mut rates = rates::rates(values, rates::window_ns(&row.metric), limit);
            rates.points.iter_mut().for_each(|(_, rate)| *rate *= rate_unit(row).1);
            rates
        });
        let points = rates.as_ref().map_or(values, |rates| rates.points.as_slice());
        let numbers = || points.iter().map(|(_, value)| *value).filter(|value| !value.is_nan());
        let curve = match &rates {
            Some(rates) => Curve::of_rates(&rates.points, first_ns),
            None => Curve::of(values),
        };
        let increase: Option<f64> =
            rates.is_some().then(|| steps(values).map(|(_, increase)| increase).sum());
        // Rates exceed the number of CPUs by the accuracy of their counter.
        let most =
            limit.filter(|limit| limit.is_hard).map_or(f64::INFINITY, |limit| limit.rate * rate_unit(row).1);
        Some(Self {
            samples: values.len() as u64,
            ends_ns: (first_ns, last_ns),
            span_s: units::seconds_between(first_ns, last_ns),
            increase: increase.map(|increase| (increase, increase + first)),
            mean: curve.mean(),
            range: (numbers().reduce(f64::min), numbers().reduce(f64::max).map(|max| max.min(most))),
            window_ns: rates.as_ref().and_then(|rates| rates.window_ns),
            inner_ns: None,
            is_clamped: rates.as_ref().is_some_and(|rates| rates.is_clamped),
            curve,
        })
    }

    /// Summarises the intervals of `length_ns` of a series of a job that ran in `job_ns`; none if there are
    /// none. The rates of a counter do not exceed `limit`.
    pub(crate) fn of_buckets(
        row: &SeriesRow,
        buckets: &[BucketRow],
        length_ns: i64,
        job_ns: &Range<i64>,
        limit: Option<Limit>,
    ) -> Option<Self> {
        let first = buckets.first()?;
        let samples: u64 = buckets.iter().map(|bucket| bucket.count).sum();
        let ends_ns = buckets::ends_ns(buckets, length_ns, job_ns)?;
        // Samples fill a long interval only as far as the job does.
        let span_s = buckets::span_s(buckets, length_ns).min(units::seconds_between(ends_ns.0, ends_ns.1));
        let base = Self {
            samples,
            ends_ns,
            span_s,
            increase: None,
            mean: None,
            range: (None, None),
            window_ns: None,
            inner_ns: None,
            is_clamped: false,
            curve: Curve::default(),
        };
        if !is_counter(row) {
            let (min, max) =
                (buckets.iter().map(|bucket| bucket.min), buckets.iter().map(|bucket| bucket.max));
            let range = (min.reduce(f64::min), max.reduce(f64::max));
            let curve = buckets::curve(buckets, length_ns, ends_ns);
            return Some(Self { mean: curve.mean(), range, curve, ..base });
        }
        let increase = buckets::increase(buckets);
        let is_clamped = limit.is_some_and(|limit: Limit| limit.is_hard && increase > limit.rate * span_s);
        let most = limit.filter(|limit| limit.is_hard).map_or(f64::INFINITY, |limit| limit.rate);
        let mut rates = buckets::rates(buckets, length_ns, span_s);
        rates.iter_mut().for_each(|(_, rate)| *rate = rate.min(most) * rate_unit(row).1);
        let is_exact = rates::window_ns(&row.metric) == 0 && !is_clamped;
        let within = buckets.iter().filter(|bucket| is_exact && !bucket.rate_max.is_nan());
        let inside: Vec<f64> = within
            .flat_map(|bucket| [bucket.rate_min, bucket.rate_max])
            .map(|rate| rate.min(most) * rate_unit(row).1)
            .collect();
        let numbers = || rates.iter().map(|(_, rate)| *rate).chain(inside.iter().copied());
        let begin_ns = rates.first().map_or(0, |(end_ns, _)| end_ns.saturating_sub(length_ns));
        Some(Self {
            increase: Some((increase, increase + first.first)),
            range: (numbers().reduce(f64::min), numbers().reduce(f64::max)),
            window_ns: Some(length_ns),
            is_clamped,
            curve: Curve::of_rates(&rates, begin_ns),
            ..base
        })
    }

    pub(crate) fn into_curve(self) -> Curve {
        self.curve
    }

    /// A counter may have been 0 at a time, and have had no line until its first sample.
    pub(crate) fn report(self, row: &SeriesRow, periods: Periods, zero_ns: Option<i64>) -> SeriesReport {
        let Self { samples, ends_ns, span_s, increase, mean, range, window_ns, inner_ns, is_clamped, curve } =
            self;
        let is_counter = is_counter(row);
        let (rate_unit, factor) = rate_unit(row);
        let growth = increase
            .map(|(since_first, since_zero)| if zero_ns.is_some() { since_zero } else { since_first });
        let before_s = zero_ns.map_or(0.0, |zero_ns| units::seconds_between(zero_ns, ends_ns.0));
        let mean = match growth {
            Some(growth) => (span_s + before_s > 0.0).then(|| growth / (span_s + before_s) * factor),
            None => mean,
        };
        // Overlapping windows may all miss an increase at either end: the range is extended to include the
        // mean.
        let (min, max) = (range.0.into_iter(), range.1.into_iter());
        SeriesReport {
            metric: row.metric.clone(),
            labels: row.labels.to_string(),
            node: row.node.clone(),
            unit: row.unit.clone(),
            kind: row.kind.clone(),
            rate_unit: is_counter.then_some(rate_unit),
            window_s: window_ns.map(|window_ns| units::seconds_between(0, window_ns)),
            inner_s: inner_ns.map(|inner_ns| units::seconds_between(0, inner_ns)),
            is_clamped,
            is_derived: false,
            samples,
            period: periods.last,
            periods: periods.uses,
            first_us: ends_ns.0.div_euclid(1000),
            last_us: ends_ns.1.div_euclid(1000),
            min: min.chain(mean.filter(|_| is_counter)).reduce(f64::min),
            mean,
            max: max.chain(mean.filter(|_| is_counter && !is_clamped)).reduce(f64::max),
            growth,
            step: row.labels.get("step").map(str::to_owned),
            task: row.labels.get("task").map(str::to_owned),
            is_of_step: is_of_step(row),
            is_contained: false,
            curve,
        }
    }
}

fn is_counter(row: &SeriesRow) -> bool {
    row.kind == "counter"
}

/// Unit of the rates of a counter, and the factor that converts to it.
fn rate_unit(row: &SeriesRow) -> (&'static str, f64) {
    units::rate_unit(&row.metric, &row.unit)
}

#[cfg(test)]
mod tests {
    use polymeter_proto::series::Labels;

    use super::*;

    fn change(seconds: i64, level: Option<&str>, new_period_us: i64) -> PlanChangeRow {
        PlanChangeRow {
            time_ns: seconds * 1_000_000_000,
            node: "n1".to_owned(),
            metric: "cpu.usage".to_owned(),
            old_period_us: None,
            new_period_us: Some(new_period_us),
            old_window_us: None,
            new_window_us: None,
            cause: "lease".to_owned(),
            actor: None,
            until_ns: None,
            level: level.map(str::to_owned),
        }
    }

    #[test]
    fn the_periods_of_a_step_are_those_of_the_plan_of_steps_while_it_ran() {
        let changes = [
            change(0, None, 1_000_000),
            change(10, Some("step"), 5_000_000),
            change(40, Some("step"), 10_000),
            change(90, Some("step"), 5_000_000),
        ];
        let changes = by_series(&changes);
        let seconds = |(from, until): (i64, i64)| (from * 1_000_000_000, until * 1_000_000_000);
        let of = |labels: &[(&str, &str)], of_series| {
            let row = SeriesRow {
                series_id: 1,
                node: "n1".to_owned(),
                metric: "cpu.usage".to_owned(),
                unit: "nanoseconds".to_owned(),
                kind: "counter".to_owned(),
                labels: Labels::new(
                    labels
                        .iter()
                        .map(|(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned()))
                        .collect(),
                )
                .unwrap(),
            };
            let Periods { last, uses } = periods(&row, &changes, seconds((0, 100)), seconds(of_series));
            (last, uses.into_iter().map(|used| (used.period, used.seconds)).collect::<Vec<_>>())
        };
        let text = |text: &str| text.to_owned();
        assert_eq!(of(&[], (0, 100)), (Some(text("1s")), vec![(text("1s"), 100.0)]));
        let of_step = of(&[("step", "0")], (20, 60));
        assert_eq!(of_step, (Some(text("10ms")), vec![(text("5s"), 20.0), (text("10ms"), 20.0)]));
        assert_eq!(of(&[("step", "1"), ("task", "0")], (20, 60)), (None, Vec::new()), "no plan of tasks");
    }

    #[test]
    fn a_device_that_appeared_late_counted_since_the_begin() {
        let row = SeriesRow {
            series_id: 1,
            node: "n1".to_owned(),
            metric: "io.read.bytes".to_owned(),
            unit: "bytes".to_owned(),
            kind: "counter".to_owned(),
            labels: Labels::new(vec![("device".to_owned(), "8:0".to_owned())]).unwrap(),
        };
        // 900 bytes before its first sample at 60 s, then 1 byte a second.
        let samples: Vec<(i64, f64)> =
            (60..=100_i32).map(|at| (i64::from(at) * 1_000_000_000, 840.0 + f64::from(at))).collect();
        let report = |zero_ns| {
            let summary = Summary::of_samples(&row, &samples, None).unwrap();
            summary.report(&row, Periods::default(), zero_ns)
        };
        let (late, known) = (report(Some(0)), report(None));
        assert_eq!((late.growth, late.mean), (Some(940.0), Some(9.4)));
        assert_eq!((known.growth, known.mean), (Some(40.0), Some(1.0)));
    }
}
