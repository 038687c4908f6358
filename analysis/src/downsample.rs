//! The course of one series in equal parts of the time, from samples or from the intervals of a rollup. Pure.

use polymeter_proto::units;
use polymeter_store::reader::BucketRow;

/// The values of a series in one part of the time: those of a gauge, or the rates of a counter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// The begin, in nanoseconds since the epoch.
    pub time_ns: i64,
    /// The number of samples.
    pub count: u64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// The mean: of the samples of a gauge; of a counter, over the time.
    pub mean: f64,
}

/// The increase of a counter between two samples, in the unit of its rate times seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Increase {
    /// The seconds between the samples, more than 0.
    pub seconds: f64,
    /// The increase.
    pub value: f64,
}

/// Computes the increases of a counter from its samples, which arrive in the order of their times.
#[derive(Debug)]
pub struct Increases {
    /// The factor from the increase per second to the unit of the rate.
    factor: f64,
    /// The shortest time over which the rate is meaningful.
    window_ns: i64,
    before: Option<(i64, f64)>,
}

impl Increases {
    /// Begins with the next sample.
    pub const fn new(factor: f64, window_ns: i64) -> Self {
        Self { factor, window_ns, before: None }
    }

    /// Returns the increase up to a sample; none if it begins the counter, or follows too soon.
    pub fn sample(&mut self, time_ns: i64, value: f64) -> Option<Increase> {
        let Some((before_ns, before)) = self.before else {
            self.before = Some((time_ns, value));
            return None;
        };
        if value < before {
            // The counter was restarted.
            self.before = Some((time_ns, value));
            return None;
        }
        if time_ns <= before_ns || time_ns.saturating_sub(before_ns) < self.window_ns {
            return None;
        }
        self.before = Some((time_ns, value));
        let seconds = units::seconds_between(before_ns, time_ns);
        Some(Increase { seconds, value: (value - before) * self.factor })
    }
}

/// The range and the mean of several values.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    count: u64,
    min: f64,
    max: f64,
    sum: f64,
    weight: f64,
}

impl Extent {
    /// Returns the extent of no values.
    const fn none() -> Self {
        Self { count: 0, min: f64::NAN, max: f64::NAN, sum: 0.0, weight: 0.0 }
    }

    /// Returns the extent of one value of a gauge.
    pub const fn of_value(value: f64) -> Self {
        Self { count: 1, min: value, max: value, sum: value, weight: 1.0 }
    }

    /// Returns the extent of one rate of a counter.
    pub fn of_increase(increase: Increase) -> Self {
        let rate = increase.value / increase.seconds;
        Self { count: 1, min: rate, max: rate, sum: increase.value, weight: increase.seconds }
    }

    /// Returns the extent of both.
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

    /// Returns the part that begins at a time.
    pub fn part(self, time_ns: i64) -> Part {
        let Self { count, min, max, sum, weight } = self;
        // Rounding must not put the mean outside of the range. An agent may send values that are not numbers.
        let mean = (sum / weight).max(min).min(max);
        Part { time_ns, count, min, max, mean }
    }
}

/// Computes the parts of one series, whose samples or intervals arrive in the order of their times. Parts
/// without values are left out, so that gaps stay gaps.
#[derive(Debug)]
pub struct Downsampler {
    origin_ns: i64,
    width_ns: i64,
    /// None for a gauge, else the factor from the increase per second to the unit of the rate.
    rate_factor: Option<f64>,
    increases: Increases,
    interval: Option<BucketRow>,
    /// The begin of the part that is not complete yet, and its values.
    open: Option<(i64, Extent)>,
    parts: Vec<Part>,
}

impl Downsampler {
    /// Returns the parts of `width_ns` from `origin_ns` on, still empty. Values before `origin_ns` only begin
    /// the rate of a counter.
    pub fn new(origin_ns: i64, width_ns: i64, rate_factor: Option<f64>, window_ns: i64) -> Self {
        let (width_ns, parts) = (width_ns.max(1), Vec::new());
        let increases = Increases::new(rate_factor.unwrap_or(1.0), window_ns);
        Self { origin_ns, width_ns, rate_factor, increases, interval: None, open: None, parts }
    }

    /// Adds a sample.
    pub fn sample(&mut self, time_ns: i64, value: f64) {
        if self.rate_factor.is_none() {
            self.add(time_ns, Extent::of_value(value));
        } else if let Some(increase) = self.increases.sample(time_ns, value) {
            self.add(time_ns, Extent::of_increase(increase));
        }
    }

    /// Adds an interval of a rollup. The rate of a counter in it is known with the next one.
    pub fn interval(&mut self, row: &BucketRow) {
        let Some(factor) = self.rate_factor else {
            let BucketRow { count, min, max, sum, .. } = *row;
            return self.add(row.time_ns, Extent { count, min, max, sum, weight: units::to_f64(count) });
        };
        if let Some(before) = self.interval.replace(*row) {
            let gap = if row.first >= before.last { row.first - before.last } else { row.first };
            let seconds = units::seconds_between(before.time_ns, row.time_ns);
            if seconds > 0.0 {
                let value = (before.increase + gap) * factor;
                let extent = Extent::of_increase(Increase { seconds, value });
                self.add(before.time_ns, Extent { count: before.count, ..extent });
            }
        }
    }

    /// Returns the parts, and begins anew.
    pub fn finish(&mut self) -> Vec<Part> {
        self.close();
        (self.increases.before, self.interval) = (None, None);
        std::mem::take(&mut self.parts)
    }

    fn add(&mut self, time_ns: i64, extent: Extent) {
        let offset_ns = time_ns.saturating_sub(self.origin_ns);
        if offset_ns < 0 {
            return;
        }
        let begin_ns = self.origin_ns.saturating_add(offset_ns - offset_ns % self.width_ns);
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

    const SECOND_NS: i64 = 1_000_000_000;

    fn parts(of: &mut Downsampler) -> Vec<(i64, u64, f64, f64, f64)> {
        let part = |part: Part| (part.time_ns / SECOND_NS, part.count, part.min, part.max, part.mean);
        of.finish().into_iter().map(part).collect()
    }

    fn interval(at_s: i64, first: f64, last: f64) -> BucketRow {
        let (time_ns, increase) = (at_s * SECOND_NS, last - first);
        BucketRow {
            series_id: 1,
            time_ns,
            count: 10,
            min: first,
            max: last,
            sum: 5.0 * (first + last),
            first,
            last,
            increase,
        }
    }

    #[test]
    fn a_gauge_has_the_range_and_the_mean_of_each_part_and_gaps() {
        let mut of = Downsampler::new(100 * SECOND_NS, 10 * SECOND_NS, None, 0);
        for (at_s, value) in [(99, 7.0), (100, 1.0), (109, 3.0), (130, 5.0)] {
            of.sample(at_s * SECOND_NS, value);
        }
        assert_eq!(parts(&mut of), [(100, 2, 1.0, 3.0, 2.0), (130, 1, 5.0, 5.0, 5.0)]);
        of.interval(&interval(100, 2.0, 4.0));
        assert_eq!(parts(&mut of), [(100, 10, 2.0, 4.0, 3.0)]);
    }

    #[test]
    fn a_counter_has_rates_that_no_restart_makes_negative() {
        let mut of = Downsampler::new(0, 10 * SECOND_NS, Some(1.0), 0);
        for (at_s, value) in [(-1, 0.0), (0, 2.0), (2, 4.0), (4, 1.0), (5, 2.0)] {
            of.sample(at_s * SECOND_NS, value);
        }
        assert_eq!(parts(&mut of), [(0, 3, 1.0, 2.0, 1.25)]);
    }

    #[test]
    fn values_that_are_not_numbers_are_no_fault() {
        for values in [[f64::NAN, f64::NAN], [f64::NAN, 2.0], [f64::INFINITY, f64::NEG_INFINITY]] {
            for factor in [None, Some(1.0)] {
                let mut of = Downsampler::new(0, 10 * SECOND_NS, factor, 0);
                (0..).zip(values).for_each(|(at_s, value)| of.sample(at_s * SECOND_NS, value));
                assert!(of.finish().len() <= 1);
            }
        }
    }

    #[test]
    fn rates_are_not_computed_over_less_than_the_window() {
        let mut of = Downsampler::new(0, 100 * SECOND_NS, Some(2.0), 4 * SECOND_NS);
        (0..9).for_each(|at_s| of.sample(at_s * SECOND_NS, if at_s < 4 { 0.0 } else { 8.0 }));
        assert_eq!(parts(&mut of), [(0, 2, 0.0, 4.0, 2.0)]);
    }

    #[test]
    fn the_rate_of_an_interval_includes_the_gap_to_the_next() {
        let mut of = Downsampler::new(0, 20 * SECOND_NS, Some(1.0), 0);
        for (at_s, first, last) in [(0, 0.0, 9.0), (10, 10.0, 19.0), (20, 1.0, 9.0)] {
            of.interval(&interval(at_s, first, last));
        }
        assert_eq!(parts(&mut of), [(0, 20, 1.0, 1.0, 1.0)]);
    }
}
