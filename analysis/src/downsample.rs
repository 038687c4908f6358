//! Course of one series in equal parts of the time, from samples or from the intervals of a rollup. Pure.

use std::ops::Range;

use polymeter_proto::units;
use polymeter_store::reader::{BucketRow, SampleRow};

use crate::cumulative::{grown, is_restarted};
use crate::curve::{GAP_SPACINGS, Interval, Spacings};
use crate::gauge_course::GaugeCourse;

/// Values of a series in one part of the time: those of a gauge, or the rates of a counter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// Nanoseconds since the epoch.
    pub time_ns: i64,
    /// Samples; 0 if an earlier value holds, or a later one ends an increase.
    pub count: u64,
    pub min: f64,
    pub max: f64,
    pub mean: f64,
}

/// Increase of a counter between two samples, in the unit of its rate times seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Increase {
    /// Time between the samples, more than 0.
    pub seconds: f64,
    pub value: f64,
}

/// Computes the increases of a counter from its samples, which arrive in the order of their times.
#[derive(Debug)]
pub struct Increases {
    /// Factor from the increase per second to the unit of the rate.
    factor: f64,
    /// Shortest time over which the rate is meaningful.
    window_ns: i64,
    /// Increases were returned up to this time.
    before_ns: Option<i64>,
    /// Time of the last sample, and value of the counter.
    last: Option<(i64, f64)>,
    /// Increase since then.
    pending: f64,
}

impl Increases {
    /// Begins with the next sample.
    pub const fn new(factor: f64, window_ns: i64) -> Self {
        Self { factor, window_ns, before_ns: None, last: None, pending: 0.0 }
    }

    /// Increase up to a sample; none if it begins the counter, or follows too soon.
    pub fn sample(&mut self, time_ns: i64, value: f64) -> Option<Increase> {
        let (last_ns, before) = self.last.unwrap_or((time_ns, value));
        let begin_ns = *self.before_ns.get_or_insert(time_ns);
        if !value.is_finite() {
            return None;
        }
        let is_restart = is_restarted(before, value);
        self.pending += grown(before, value);
        self.last = Some((time_ns.max(last_ns), if is_restart { value } else { before.max(value) }));
        // The increase over a restart is part of the next one.
        if is_restart { None } else { self.until(begin_ns, time_ns, self.window_ns) }
    }

    /// Increase up to a time, unless it follows too soon.
    fn until(&mut self, begin_ns: i64, time_ns: i64, least_ns: i64) -> Option<Increase> {
        if time_ns <= begin_ns || time_ns.saturating_sub(begin_ns) < least_ns {
            return None;
        }
        self.before_ns = Some(time_ns);
        let seconds = units::seconds_between(begin_ns, time_ns);
        Some(Increase { seconds, value: std::mem::take(&mut self.pending) * self.factor })
    }

    /// Increase since the last one, which is too short for a rate of its own.
    fn rest(&mut self) -> Option<Increase> {
        let (begin_ns, (time_ns, _)) = self.before_ns.zip(self.last)?;
        self.until(begin_ns, time_ns, 0)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Extent {
    count: u64,
    min: f64,
    max: f64,
    sum: f64,
    weight: f64,
}

impl Extent {
    const fn none() -> Self {
        Self { count: 0, min: f64::NAN, max: f64::NAN, sum: 0.0, weight: 0.0 }
    }

    pub const fn of_value(value: f64) -> Self {
        Self { count: 1, min: value, max: value, sum: value, weight: 1.0 }
    }

    /// Values of a gauge that hold for a time.
    fn of_held(held: &Interval, count: u64) -> Self {
        let Interval { min, max, sum, weight_ns, .. } = *held;
        Self { count, min, max, sum, weight: units::to_f64(weight_ns) }
    }

    pub fn of_increase(increase: Increase) -> Self {
        let rate = increase.value / increase.seconds;
        Self { count: 1, min: rate, max: rate, sum: increase.value, weight: increase.seconds }
    }

    /// Extends the extremes by those of the rates in windows.
    fn within(self, rates: Option<(f64, f64)>) -> Self {
        let (min, max) =
            rates.map_or((self.min, self.max), |rates| wider(rates.into(), (self.min, self.max)));
        Self { min, max, ..self }
    }

    #[must_use]
    pub const fn join(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            sum: self.sum + other.sum,
            weight: self.weight + other.weight,
        }
    }

    pub fn part(self, time_ns: i64) -> Part {
        let Self { count, min, max, sum, weight } = self;
        // Rounding must not put the mean outside of the range. An agent may send values that are not numbers.
        let mean = (sum / weight).max(min).min(max);
        Part { time_ns, count, min, max, mean }
    }
}

/// Returns the extremes of two ranges. NaN is none.
fn wider(range: Option<(f64, f64)>, (min, max): (f64, f64)) -> (f64, f64) {
    range.map_or((min, max), |range| (range.0.min(min), range.1.max(max)))
}

/// Computes the parts of one series, whose samples or intervals arrive in the order of their times. Parts
/// without values are left out, so that gaps stay gaps.
#[derive(Debug)]
pub struct Downsampler {
    span_ns: Range<i64>,
    width_ns: i64,
    /// Factor from the increase per second to the unit of the rate; none for a gauge.
    rate_factor: Option<f64>,
    gauge: GaugeCourse,
    increases: Increases,
    /// Extremes of the rates in windows, per second, since the last increase.
    rates: Option<(f64, f64)>,
    /// Last interval of a counter, and its length in nanoseconds.
    interval: Option<(BucketRow, i64)>,
    /// Last increase of a counter, and its time: the next one tells whether it is over a gap.
    last: Option<(Range<i64>, Extent)>,
    lengths: Spacings,
    /// Length of the intervals of a rollup; 0 for samples. The first one may be cut at the begin of the time.
    spacing_ns: i64,
    /// Begin of the part that is not complete yet, and its values.
    open: Option<(i64, Extent)>,
    parts: Vec<Part>,
}

impl Downsampler {
    /// Divides a time into parts of `width_ns`. Values before it only begin the rate of a counter.
    pub fn new(span_ns: Range<i64>, width_ns: i64, rate_factor: Option<f64>, window_ns: i64) -> Self {
        let (width_ns, parts) = (width_ns.max(1), Vec::new());
        let increases = Increases::new(rate_factor.unwrap_or(1.0), window_ns);
        Self {
            span_ns,
            width_ns,
            rate_factor,
            gauge: GaugeCourse::default(),
            increases,
            rates: None,
            interval: None,
            last: None,
            lengths: Spacings::default(),
            spacing_ns: 0,
            open: None,
            parts,
        }
    }

    /// Adds a sample, or a window of some. Rates within windows count where the counter is exact.
    pub fn sample(&mut self, row: &SampleRow) {
        let Some(factor) = self.rate_factor else {
            for (held, count) in self.gauge.add(row).into_iter().flatten() {
                self.hold(&held, count);
            }
            return;
        };
        let (time_ns, begin_ns) = (row.time_ns, self.increases.before_ns.unwrap_or(row.time_ns));
        if let Some(window) = row.window.filter(|_| self.increases.window_ns == 0) {
            self.rates = Some(wider(self.rates, (window.min * factor, window.max * factor)));
        }
        if let Some(increase) = self.increases.sample(time_ns, row.value) {
            let extent = Extent::of_increase(increase).within(self.rates.take());
            self.increase(begin_ns..time_ns, Extent { count: row.count(), ..extent });
        }
    }

    /// Adds an interval of a rollup of `length_ns`. The rate of a counter in it is known with the next one.
    /// The first one, if it begins before the time, has the first samples of the series: they lie in the
    /// time.
    pub fn interval(&mut self, row: &BucketRow, length_ns: i64) {
        self.spacing_ns = length_ns;
        let is_first = self.interval.is_none() && self.open.is_none() && self.parts.is_empty();
        let end_ns = row.time_ns.saturating_add(length_ns);
        let begin_ns = if is_first && end_ns > self.span_ns.start {
            row.time_ns.max(self.span_ns.start)
        } else {
            row.time_ns
        };
        let row = BucketRow { time_ns: begin_ns, ..*row };
        let Some(factor) = self.rate_factor else {
            let held_ns = end_ns.min(self.span_ns.end).saturating_sub(row.time_ns);
            let held = Interval::of((row.time_ns, row.mean), held_ns);
            return self.hold(&Interval { min: row.min, max: row.max, ..held }, row.count);
        };
        let length_ns = length_ns.min(self.span_ns.end.saturating_sub(row.time_ns));
        if let Some((before, _)) = self.interval.replace((row, length_ns)) {
            let seconds = units::seconds_between(before.time_ns, row.time_ns);
            if seconds > 0.0 {
                let value = (before.increase + grown(before.last, row.first)) * factor;
                let extent = Extent::of_increase(Increase { seconds, value }).within(self.rates(&before));
                self.increase(before.time_ns..row.time_ns, Extent { count: before.count, ..extent });
            }
        }
    }

    /// Returns the parts, and begins anew.
    pub fn finish(&mut self) -> Vec<Part> {
        self.add_rest();
        if let Some((over_ns, extent)) = self.last.take() {
            self.add_increase(&over_ns, extent, None);
        }
        for (held, count) in self.gauge.finish() {
            self.hold(&held, count);
        }
        self.close();
        (self.interval, self.lengths, self.rates) = (None, Spacings::default(), None);
        self.increases = Increases::new(self.increases.factor, self.increases.window_ns);
        std::mem::take(&mut self.parts)
    }

    /// Adds the end of a counter: the samples since the last increase, or those of the last interval.
    fn add_rest(&mut self) {
        if let (Some(begin_ns), Some(increase)) = (self.increases.before_ns, self.increases.rest()) {
            let end_ns = self.increases.before_ns.unwrap_or(begin_ns);
            self.increase(begin_ns..end_ns, Extent::of_increase(increase));
        }
        let (Some((last, length_ns)), Some(factor)) = (self.interval, self.rate_factor) else { return };
        // The samples of an interval are one distance less apart than it is long.
        let samples = units::to_f64(last.count.max(1));
        let seconds = units::seconds_between(0, length_ns) * (samples - 1.0) / samples;
        if seconds > 0.0 {
            let extent = Extent::of_increase(Increase { seconds, value: last.increase * factor });
            let extent = extent.within(self.rates(&last));
            let end_ns = last.time_ns.saturating_add(length_ns);
            self.increase(last.time_ns..end_ns, Extent { count: last.count, ..extent });
        }
    }

    /// Extremes of the rates in the windows of an interval; none without windows, and of a counter that is not
    /// exact.
    fn rates(&self, row: &BucketRow) -> Option<(f64, f64)> {
        let factor = self.rate_factor.filter(|_| self.increases.window_ns == 0 && !row.rate_max.is_nan())?;
        Some((row.rate_min * factor, row.rate_max * factor))
    }

    fn hold(&mut self, held: &Interval, count: u64) {
        let end_ns = held.time_ns.saturating_add_unsigned(held.weight_ns);
        self.divide(&(held.time_ns..end_ns), Extent::of_held(held, count), held.time_ns);
    }

    fn increase(&mut self, over_ns: Range<i64>, extent: Extent) {
        let length_ns = over_ns.end.saturating_sub(over_ns.start);
        if let Some((before_ns, before)) = self.last.replace((over_ns, extent)) {
            self.add_increase(&before_ns, before, Some(length_ns));
        }
    }

    /// Adds an increase before another one over a time of `length_after_ns`. One over a gap belongs to the
    /// part in which it begins, if that is known, so that gaps stay gaps.
    fn add_increase(&mut self, over_ns: &Range<i64>, extent: Extent, length_after_ns: Option<i64>) {
        let length_ns = over_ns.end.saturating_sub(over_ns.start);
        let known_ns = self.lengths.add(length_ns, length_after_ns);
        let is_gap = length_ns > known_ns && length_ns > self.spacing_ns.saturating_mul(GAP_SPACINGS);
        let last_ns = over_ns.end.saturating_sub(1);
        if is_gap && length_ns > self.width_ns {
            return self
                .add(if over_ns.start < self.span_ns.start { last_ns } else { over_ns.start }, extent);
        }
        self.divide(over_ns, extent, last_ns);
    }

    /// Divides an extent over a time between the parts that it overlaps. Its samples count at `counted_ns`.
    fn divide(&mut self, over_ns: &Range<i64>, extent: Extent, counted_ns: i64) {
        let Range { start, end } = self.span_ns;
        let length_s = units::seconds_between(over_ns.start, over_ns.end);
        let (mut from_ns, end_ns) = (over_ns.start.max(start), over_ns.end.min(end));
        while from_ns < end_ns {
            let offset_ns = from_ns.saturating_sub(start);
            let next_ns = from_ns.saturating_add(self.width_ns - offset_ns % self.width_ns);
            let until_ns = next_ns.min(end_ns);
            let share = units::seconds_between(from_ns, until_ns) / length_s;
            let count = if (from_ns..until_ns).contains(&counted_ns) { extent.count } else { 0 };
            let (sum, weight) = (extent.sum * share, extent.weight * share);
            self.add(from_ns, Extent { count, sum, weight, ..extent });
            from_ns = until_ns;
        }
    }

    fn add(&mut self, time_ns: i64, extent: Extent) {
        let offset_ns = time_ns.saturating_sub(self.span_ns.start);
        if offset_ns < 0 {
            return;
        }
        let begin_ns = self.span_ns.start.saturating_add(offset_ns - offset_ns % self.width_ns);
        if self.open.is_some_and(|(open_ns, _)| open_ns != begin_ns) {
            self.close();
        }
        let (_, open) = self.open.get_or_insert((begin_ns, Extent::none()));
        *open = open.join(extent);
    }

    fn close(&mut self) {
        if let Some((begin_ns, extent)) = self.open.take() {
            self.parts.push(extent.part(begin_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::windows_of;

    const SECOND_NS: i64 = 1_000_000_000;

    fn sample(time_ns: i64, value: f64) -> SampleRow {
        SampleRow { series_id: 1, time_ns, value, window: None }
    }

    /// Parts of 5 s of 30 s of samples, each 100 ms or as windows of a second, which the first one lacks 3 of.
    fn thirty_seconds(values: &[f64], size: usize, rate_factor: Option<f64>, window_ns: i64) -> Vec<Part> {
        let mut of = Downsampler::new(0..30 * SECOND_NS, 5 * SECOND_NS, rate_factor, window_ns);
        let offset = if size > 1 { 3 } else { 0 };
        let rows =
            windows_of(3 * SECOND_NS / 10, SECOND_NS / 10, size, offset, values, rate_factor.is_some());
        rows.iter().for_each(|row| of.sample(row));
        of.finish()
    }

    #[test]
    fn parts_of_windows_are_those_of_their_samples() {
        let gauge: Vec<f64> = (0..297).map(|number: i32| f64::from(number * 7919 % 1000)).collect();
        let counter: Vec<f64> = (0..297).map(|number: i32| f64::from(number * number * 100)).collect();
        let is_near = |a: f64, b: f64, part: f64| (a - b).abs() <= part * b.abs();
        let [sent, windows] = [1, 10].map(|size| thirty_seconds(&gauge, size, None, 0));
        assert_eq!(windows.len(), 6);
        for (window, sample) in windows.iter().zip(&sent) {
            assert!(is_near(window.mean, sample.mean, 1e-9), "{window:?} {sample:?}");
            assert_eq!((window.time_ns, window.count), (sample.time_ns, sample.count));
            assert_eq!((window.min, window.max), (sample.min, sample.max));
        }
        // The counter grows ever faster. It is linear within a window, and a window over the end of two parts
        // counts in both. Its increase in the first window is unknown.
        let [sent, windows] = [1, 10].map(|size| thirty_seconds(&counter, size, Some(0.5), 0));
        assert_eq!(windows.len(), 6);
        for (window, sample) in windows.iter().zip(&sent).skip(1) {
            assert!(is_near(window.mean, sample.mean, 0.02), "{window:?} {sample:?}");
            assert!(
                is_near(window.max, sample.max, 0.2) && window.max >= sample.max,
                "{window:?} {sample:?}"
            );
            assert!(
                is_near(window.min, sample.min, 0.2) && window.min <= sample.min,
                "{window:?} {sample:?}"
            );
        }
        // Rates over times shorter than the update interval of a counter mean nothing.
        let coarse = thirty_seconds(&counter, 10, Some(0.5), SECOND_NS);
        let (least, greatest) = (coarse[5].min, coarse[5].max);
        assert!(greatest < 0.5 * 1000.0 * 100.0 * 2.0 * 29.6 && least > 0.0, "{least} {greatest}");
    }

    fn parts(of: &mut Downsampler) -> Vec<(i64, u64, f64, f64, f64)> {
        of.finish()
            .into_iter()
            .map(|part: Part| (part.time_ns / SECOND_NS, part.count, part.min, part.max, part.mean))
            .collect()
    }

    fn interval(at_s: i64, first: f64, last: f64) -> BucketRow {
        let (time_ns, increase) = (at_s * SECOND_NS, last - first);
        BucketRow {
            series_id: 1,
            time_ns,
            count: 10,
            min: first,
            max: last,
            mean: (first + last) / 2.0,
            first,
            last,
            increase,
            rate_min: f64::NAN,
            rate_max: f64::NAN,
        }
    }

    #[test]
    fn a_gauge_has_the_range_and_the_mean_of_each_part_and_gaps() {
        let mut of = Downsampler::new(100 * SECOND_NS..i64::MAX, 10 * SECOND_NS, None, 0);
        for (at_s, value) in [(99, 7.0), (100, 1.0), (108, 3.0), (124, 5.0)] {
            of.sample(&sample(at_s * SECOND_NS, value));
        }
        // 1 holds for 8 s, 3 for 16 s, which is no gap, and so does 5.
        assert_eq!(
            parts(&mut of),
            [
                (100, 2, 1.0, 3.0, 1.4),
                (110, 0, 3.0, 3.0, 3.0),
                (120, 1, 3.0, 5.0, 4.2),
                (130, 0, 5.0, 5.0, 5.0)
            ]
        );
        for (at_s, value) in [(100, 1.0), (101, 1.0), (102, 8.0), (170, 2.0), (171, 2.0)] {
            of.sample(&sample(at_s * SECOND_NS, value));
        }
        // 8 holds for 3 s, three times the time around it.
        assert_eq!(parts(&mut of), [(100, 3, 1.0, 8.0, 5.2), (170, 2, 2.0, 2.0, 2.0)]);
        of.interval(&interval(100, 2.0, 4.0), 10 * SECOND_NS);
        assert_eq!(parts(&mut of), [(100, 10, 2.0, 4.0, 3.0)]);
    }

    #[test]
    fn a_counter_has_rates_that_no_restart_makes_negative() {
        let mut of = Downsampler::new(0..i64::MAX, 10 * SECOND_NS, Some(1.0), 0);
        for (at_s, value) in [(-1, 0.0), (0, 2.0), (2, 4.0), (4, 1.0), (5, 2.0)] {
            of.sample(&sample(at_s * SECOND_NS, value));
        }
        // The increase until 0 s lies before the parts, and that since the restart is as in reports.
        assert_eq!(parts(&mut of), [(0, 2, 2.0 / 3.0, 1.0, 0.8)]);
        let mut of = Downsampler::new(0..i64::MAX, 10 * SECOND_NS, Some(1.0), 0);
        for (at_s, value) in [(0, 100.0), (1, 101.0), (2, 99.0), (3, 103.0)] {
            of.sample(&sample(at_s * SECOND_NS, value));
        }
        assert_eq!(parts(&mut of), [(0, 3, 0.0, 2.0, 1.0)], "a sum that fell a little has not changed");
    }

    #[test]
    fn values_that_are_not_numbers_are_no_fault() {
        for values in [[f64::NAN, f64::NAN], [f64::NAN, 2.0], [f64::INFINITY, f64::NEG_INFINITY]] {
            for factor in [None, Some(1.0)] {
                let mut of = Downsampler::new(0..i64::MAX, 10 * SECOND_NS, factor, 0);
                (0..).zip(values).for_each(|(at_s, value)| of.sample(&sample(at_s * SECOND_NS, value)));
                assert!(of.finish().len() <= 1);
            }
        }
    }

    #[test]
    fn rates_are_not_computed_over_less_than_the_window() {
        let mut of = Downsampler::new(0..i64::MAX, 100 * SECOND_NS, Some(2.0), 4 * SECOND_NS);
        (0..9).for_each(|at_s| of.sample(&sample(at_s * SECOND_NS, if at_s < 4 { 0.0 } else { 8.0 })));
        assert_eq!(parts(&mut of), [(0, 2, 0.0, 4.0, 2.0)]);
    }

    #[test]
    fn the_rate_of_an_interval_includes_the_gap_to_the_next() {
        let mut of = Downsampler::new(0..i64::MAX, 20 * SECOND_NS, Some(1.0), 0);
        for (at_s, first, last) in [(0, 0.0, 9.0), (10, 10.0, 19.0), (20, 1.0, 9.0)] {
            of.interval(&interval(at_s, first, last), 10 * SECOND_NS);
        }
        // The last one increases by 8 in the 9 s between its samples.
        let rate = 8.0 / 9.0;
        assert_eq!(parts(&mut of), [(0, 20, 1.0, 1.0, 1.0), (20, 10, rate, rate, rate)]);
    }

    /// A short job with a long period: a sample at the start, and several when its cgroups disappear.
    #[test]
    fn the_last_samples_at_once_make_no_gap_of_the_time_before() {
        for (at_us, values) in [
            ([357, 2_358_445, 2_358_903, 2_364_322], [0.4, 3.7, 3.75, 4.2]),
            ([0, 1_998_945, 2_700_963, 3_908_977], [1.0, 3.0, 9.0, 9.5]),
            ([0, 2_000_000, 2_000_020, 3_200_000], [0.0, 2.0, 2.5, 4.0]),
        ] {
            let end_ns = at_us[3] * 1000;
            for points in 1..=20_i64 {
                let width_ns = (end_ns + points - 1) / points;
                let mut of = Downsampler::new(0..end_ns, width_ns, Some(1.0), 0);
                at_us.iter().zip(values).for_each(|(at_us, value)| of.sample(&sample(at_us * 1000, value)));
                let seconds = |part: &Part| {
                    let begin_ns = part.time_ns.max(at_us[0] * 1000);
                    units::seconds_between(begin_ns, (part.time_ns + width_ns).min(end_ns))
                };
                let sum: f64 = of.finish().iter().map(|part| part.mean * seconds(part)).sum();
                let increase = values[3] - values[0];
                assert!((sum - increase).abs() < 1e-6, "{points} parts: {sum}, not {increase}");
            }
        }
    }

    #[test]
    fn the_sum_over_the_parts_is_the_whole() {
        // 36.4 core-seconds: 2 cores for a while, then 0.1, from a begin in the middle of an interval.
        let (begin_s, length_s) = (1007, 60);
        let used = |second: i32| 2.0 * f64::from(second.min(16)) + 0.1 * f64::from((second - 16).max(0));
        let whole = used(length_s);
        let begin_ns = begin_s * SECOND_NS;
        let end_ns = begin_ns + i64::from(length_s) * SECOND_NS;
        let samples: Vec<(i64, f64)> = (0..=length_s)
            .map(|second| (begin_ns + i64::from(second) * SECOND_NS, 5.0 + used(second)))
            .collect();
        for points in (1..=60_i64).chain([61, 90, 240, 601]) {
            let width_ns = (end_ns - begin_ns + points - 1) / points;
            let sum = |parts: Vec<Part>| -> f64 {
                let seconds =
                    |part: &Part| units::seconds_between(part.time_ns, (part.time_ns + width_ns).min(end_ns));
                parts.iter().map(|part| part.mean * seconds(part)).sum()
            };
            let mut of = Downsampler::new(begin_ns..end_ns, width_ns, Some(1.0), 0);
            samples.iter().for_each(|(time_ns, value)| of.sample(&sample(*time_ns, *value)));
            let found = sum(of.finish());
            assert!((found - whole).abs() < 1e-6 * whole, "{points} parts: {found}, not {whole}");
            // From a rollup of 10 s the sum differs by at most the estimate of the last interval's time.
            if width_ns >= 10 * SECOND_NS {
                let mut of = Downsampler::new(begin_ns..end_ns, width_ns, Some(1.0), 0);
                for interval in rolled(&samples, 10 * SECOND_NS) {
                    of.interval(&interval, 10 * SECOND_NS);
                }
                let found = sum(of.finish());
                assert!((found - whole).abs() < 0.02 * whole, "{points} parts: {found}, not {whole}");
            }
        }
    }

    #[test]
    fn the_mean_over_the_parts_of_a_gauge_is_that_of_the_whole() {
        // 3 at 10 s, 9 at 10 ms for a while, then a saw-tooth at 1.7 s.
        let (begin_ms, end_ms) = (1_007_003_i64, 1_127_003);
        let mut samples: Vec<(i64, f64)> = (0..4).map(|number| (begin_ms + number * 10_000, 3.0)).collect();
        samples.extend((0..1000).map(|number| (begin_ms + 40_000 + number * 10, 9.0)));
        samples.extend(
            (0..42_i32).map(|number| (begin_ms + 50_000 + i64::from(number) * 1_700, f64::from(number % 5))),
        );
        // Millisecond by millisecond.
        let values: Vec<f64> = (begin_ms..end_ms)
            .map(|ms: i64| samples.iter().rev().find(|(time_ms, _)| *time_ms <= ms).unwrap().1)
            .collect();
        let of_values = |from_ms: i64, until_ms: i64| {
            let [from, until] =
                [from_ms, until_ms].map(|ms| usize::try_from(ms.min(end_ms) - begin_ms).unwrap());
            values[from..until].iter().sum::<f64>() / units::to_f64((until - from) as u64)
        };
        for points in [1, 2, 3, 7, 10, 50, 60, 119, 120, 600, 1000, 4000_i64] {
            let width_ms = (end_ms - begin_ms + points - 1) / points;
            let span_ns = begin_ms * 1_000_000..end_ms * 1_000_000;
            let mut of = Downsampler::new(span_ns, width_ms * 1_000_000, None, 0);
            samples.iter().for_each(|(time_ms, value)| of.sample(&sample(time_ms * 1_000_000, *value)));
            let parts = of.finish();
            assert_eq!(parts.iter().map(|part| part.count).sum::<u64>(), samples.len() as u64);
            let mut whole = 0.0;
            for part in &parts {
                let from_ms = part.time_ns / 1_000_000;
                let expected = of_values(from_ms, from_ms + width_ms);
                assert!((part.mean - expected).abs() < 1e-9, "{points}: {part:?}, not {expected}");
                whole += part.mean * units::to_f64((width_ms.min(end_ms - from_ms)).unsigned_abs());
            }
            let expected: f64 = values.iter().sum();
            assert!((whole - expected).abs() < 1e-6 * expected, "{points}: {whole}, not {expected}");
        }
    }

    #[test]
    fn a_first_interval_that_is_cut_makes_no_gap_of_the_next() {
        let samples: Vec<(i64, f64)> = (47..107)
            .map(|at_s| (at_s * SECOND_NS, 2.0 * units::seconds_between(0, at_s * SECOND_NS)))
            .collect();
        let mut of = Downsampler::new(47 * SECOND_NS..107 * SECOND_NS, 6 * SECOND_NS, Some(1.0), 0);
        rolled(&samples, 60 * SECOND_NS).iter().for_each(|row| of.interval(row, 60 * SECOND_NS));
        let found = of.finish();
        assert_eq!(found.len(), 10, "{found:?}");
        assert!(found.iter().all(|part| (part.mean - 2.0).abs() < 0.1), "{found:?}");
    }

    #[test]
    fn a_series_in_one_interval_has_a_part() {
        let samples: Vec<(i64, f64)> = (10..20)
            .map(|at_s| (at_s * SECOND_NS, 3.0 * units::seconds_between(0, at_s * SECOND_NS)))
            .collect();
        for factor in [None, Some(1.0)] {
            let mut of = Downsampler::new(10 * SECOND_NS..20 * SECOND_NS, 10 * SECOND_NS, factor, 0);
            rolled(&samples, 3600 * SECOND_NS).iter().for_each(|row| of.interval(row, 3600 * SECOND_NS));
            let found = of.finish();
            let mean = factor.map_or(3.0 * 14.5, |_| 3.0);
            assert!(found.len() == 1 && (found[0].mean - mean).abs() < 1e-9, "{found:?}");
        }
    }

    fn rolled(samples: &[(i64, f64)], length_ns: i64) -> Vec<BucketRow> {
        let mut rolled: Vec<BucketRow> = Vec::new();
        for (time_ns, value) in samples {
            let at_ns = time_ns - time_ns % length_ns;
            let known = rolled.last_mut().filter(|last| last.time_ns == at_ns);
            if let Some(last) = known {
                last.increase += value - last.last;
                last.mean += (value - last.mean) / units::to_f64(last.count + 1);
                (last.last, last.max, last.count) = (*value, *value, last.count + 1);
            } else {
                rolled.push(BucketRow {
                    time_ns: at_ns,
                    count: 1,
                    mean: *value,
                    increase: 0.0,
                    rate_min: f64::NAN,
                    rate_max: f64::NAN,
                    ..interval(0, *value, *value)
                });
            }
        }
        rolled
    }
}
