//! The course of a series over time, within bounded memory. Pure.

use polymeter_proto::units;

/// The maximum number of intervals of a curve: some for each of the 400 columns of a plot.
const INTERVALS_MAX: usize = 1200;

/// The points of a series in an interval of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The time of the first of them, in nanoseconds since the epoch.
    pub time_ns: i64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// The sum of the values.
    pub sum: f64,
    /// The number of points.
    pub count: u64,
}

impl Interval {
    /// Returns the interval of one point.
    pub const fn of((time_ns, value): (i64, f64)) -> Self {
        Self { time_ns, min: value, max: value, sum: value, count: 1 }
    }

    /// Adds an interval behind it.
    pub fn join(&mut self, next: &Self) {
        self.min = self.min.min(next.min);
        self.max = self.max.max(next.max);
        self.sum += next.sum;
        self.count += next.count;
    }
}

/// The course of a series: each point, or the ranges and sums of many.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curve {
    /// The intervals that contain points, in the order of their times.
    intervals: Vec<Interval>,
    /// The time of the last point, in nanoseconds since the epoch.
    end_ns: i64,
}

impl Curve {
    /// Returns the curve of points, which are sorted by time.
    pub fn of(points: &[(i64, f64)]) -> Self {
        let times = points.first().zip(points.last());
        Self::joined(points.iter().copied().map(Interval::of), times.map(|(first, last)| (first.0, last.0)))
    }

    /// Returns the curve of intervals, which are sorted by time.
    pub fn of_intervals(
        intervals: impl ExactSizeIterator<Item = Interval> + DoubleEndedIterator + Clone,
    ) -> Self {
        let times = intervals.clone().next().zip(intervals.clone().next_back());
        Self::joined(intervals, times.map(|(first, last)| (first.time_ns, last.time_ns)))
    }

    /// Returns the curve of intervals between two times.
    fn joined(all: impl ExactSizeIterator<Item = Interval>, times: Option<(i64, i64)>) -> Self {
        let Some((begin_ns, end_ns)) = times else { return Self::default() };
        if all.len() <= INTERVALS_MAX {
            return Self { intervals: all.collect(), end_ns };
        }
        let length = units::seconds_between(begin_ns, end_ns);
        let mut intervals: Vec<Interval> = Vec::new();
        let mut last = None;
        for next in all.filter(|next| next.sum.is_finite()) {
            let number = position(units::seconds_between(begin_ns, next.time_ns), length);
            match intervals.last_mut() {
                Some(interval) if last == Some(number) => interval.join(&next),
                _ => intervals.push(next),
            }
            last = Some(number);
        }
        Self { intervals, end_ns }
    }

    /// Returns the intervals that contain points, in the order of their times.
    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    /// Returns the times of the first and the last point, in nanoseconds since the epoch; none without
    /// points.
    pub fn ends_ns(&self) -> Option<(i64, i64)> {
        self.intervals.first().map(|first| (first.time_ns, self.end_ns))
    }
}

/// Returns the number of the interval at a time after the first point.
fn position(time_s: f64, length_s: f64) -> usize {
    units::part(if length_s > 0.0 { time_s / length_s } else { 0.0 }, INTERVALS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_points_are_kept() {
        let curve = Curve::of(&[(3, 1.0), (9, f64::NAN)]);
        assert_eq!(curve.intervals().len(), 2);
        assert_eq!((curve.intervals()[0], curve.ends_ns()), (Interval::of((3, 1.0)), Some((3, 9))));
        assert_eq!((Curve::of(&[]), Curve::default().ends_ns()), (Curve::default(), None));
    }

    #[test]
    fn many_points_are_joined_without_loss() {
        let points: Vec<(i64, f64)> =
            (0..100_000).map(|number: i32| (i64::from(number) * 7, f64::from(number))).collect();
        let curve = Curve::of(&points);
        assert_eq!((curve.intervals().len(), curve.ends_ns()), (INTERVALS_MAX, Some((0, 99_999 * 7))));
        assert_eq!(curve.intervals().iter().map(|interval| interval.count).sum::<u64>(), 100_000);
        assert_eq!(curve.intervals().iter().map(|interval| interval.sum).sum::<f64>(), 4_999_950_000.0);
        let is_adjacent = |pair: &[Interval]| pair[0].max + 1.0 == pair[1].min;
        assert!(curve.intervals().windows(2).all(is_adjacent));
    }
}
