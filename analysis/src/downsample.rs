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

/// The rate of a counter over a time, which ends with a sample.
#[derive(Debug, Clone, Copy)]
struct Reading {
    time_ns: i64,
    value: f64,
}

/// The values of the part that is not complete yet.
#[derive(Debug, Clone, Copy)]
struct Open {
    begin_ns: i64,
    count: u64,
    min: f64,
    max: f64,
    sum: f64,
    weight: f64,
}

/// Computes the parts of one series, whose samples or intervals arrive in the order of their times. Parts without values are left out, so
/// that gaps stay gaps.
#[derive(Debug)]
pub struct Downsampler {
    origin_ns: i64,
    width_ns: i64,
    /// None for a gauge, else the factor from the increase per second to the unit of the rate.
    rate_factor: Option<f64>,
    /// The shortest time over which the rate of the counter is meaningful.
    window_ns: i64,
    before: Option<Reading>,
    interval: Option<BucketRow>,
    open: Option<Open>,
    parts: Vec<Part>,
}

impl Downsampler {
    /// Returns the parts of `width_ns` from `origin_ns` on, still empty. Values before `origin_ns` only begin the rate of a counter.
    pub fn new(origin_ns: i64, width_ns: i64, rate_factor: Option<f64>, window_ns: i64) -> Self {
        let (width_ns, parts) = (width_ns.max(1), Vec::new());
        Self { origin_ns, width_ns, rate_factor, window_ns, before: None, interval: None, open: None, parts }
    }

    /// Adds a sample.
    pub fn sample(&mut self, time_ns: i64, value: f64) {
        let Some(factor) = self.rate_factor else {
            return self.add(time_ns, 1, (value, value), (value, 1.0));
        };
        let now = Reading { time_ns, value };
        let Some(before) = self.before else {
            self.before = Some(now);
            return;
        };
        if value < before.value {
            // The counter was restarted.
            self.before = Some(now);
        } else if time_ns > before.time_ns && time_ns.saturating_sub(before.time_ns) >= self.window_ns {
            self.before = Some(now);
            self.add_rate((before.time_ns, time_ns), time_ns, (value - before.value) * factor, 1);
        }
    }

    /// Adds an interval of a rollup. The rate of a counter in it is known with the next one.
    pub fn interval(&mut self, row: &BucketRow) {
        let Some(factor) = self.rate_factor else {
            return self.add(row.time_ns, row.count, (row.min, row.max), (row.sum, units::to_f64(row.count)));
        };
        if let Some(before) = self.interval.replace(*row) {
            let gap = if row.first >= before.last { row.first - before.last } else { row.first };
            let increase = (before.increase + gap) * factor;
            self.add_rate((before.time_ns, row.time_ns), before.time_ns, increase, before.count);
        }
    }

    /// Returns the parts, and begins anew.
    pub fn finish(&mut self) -> Vec<Part> {
        self.close();
        (self.before, self.interval) = (None, None);
        std::mem::take(&mut self.parts)
    }

    fn add_rate(&mut self, (from_ns, to_ns): (i64, i64), at_ns: i64, increase: f64, count: u64) {
        let seconds = units::seconds_between(from_ns, to_ns);
        if seconds > 0.0 {
            let rate = increase / seconds;
            self.add(at_ns, count, (rate, rate), (increase, seconds));
        }
    }

    fn add(&mut self, time_ns: i64, count: u64, (min, max): (f64, f64), (sum, weight): (f64, f64)) {
        let offset_ns = time_ns.saturating_sub(self.origin_ns);
        if offset_ns < 0 {
            return;
        }
        let begin_ns = self.origin_ns.saturating_add(offset_ns - offset_ns % self.width_ns);
        if self.open.is_some_and(|open| open.begin_ns != begin_ns) {
            self.close();
        }
        let open = self.open.get_or_insert(Open { begin_ns, count: 0, min, max, sum: 0.0, weight: 0.0 });
        open.count = open.count.saturating_add(count);
        (open.min, open.max) = (open.min.min(min), open.max.max(max));
        (open.sum, open.weight) = (open.sum + sum, open.weight + weight);
    }

    fn close(&mut self) {
        if let Some(Open { begin_ns, count, min, max, sum, weight }) = self.open.take() {
            // Rounding must not put the mean outside of the range.
            let mean = (sum / weight).clamp(min.min(max), max.max(min));
            self.parts.push(Part { time_ns: begin_ns, count, min, max, mean });
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
