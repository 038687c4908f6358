//! Course of a series over time, within bounded memory. Pure.

use std::collections::VecDeque;

use polymeter_proto::units;

/// Some for each of the 400 columns of a plot.
const INTERVALS_MAX: usize = 1200;

/// Missing samples are a gap from this multiple of the time between two samples on.
pub(crate) const GAP_SPACINGS: i64 = 3;

/// Times between the last points of a series. The largest tells what is usual there: the end of a job has
/// several samples at once, which make no gap of the time before.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spacings([i64; 4]);

impl Spacings {
    /// Adds the time between two points. Returns the part of it that is no gap: all of it for the first ones,
    /// of which nothing usual is known. `after_ns` is the time between the next two.
    pub(crate) fn add(&mut self, spacing_ns: i64, after_ns: Option<i64>) -> i64 {
        let before_ns = self.0.iter().copied().max().filter(|before_ns| *before_ns > 0);
        let usual_ns = before_ns.map(|before_ns| before_ns.max(after_ns.unwrap_or_default()));
        let most_ns = usual_ns.map_or(i64::MAX, |usual_ns| usual_ns.saturating_mul(GAP_SPACINGS));
        let known_ns = spacing_ns.min(most_ns);
        let [_, second, third, last] = self.0;
        self.0 = [second, third, last, known_ns];
        known_ns
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Time of the first point, since the epoch.
    pub time_ns: i64,
    pub min: f64,
    pub max: f64,
    pub sum: f64,
    /// Time for which the values hold.
    pub weight_ns: u64,
}

impl Interval {
    /// One point that holds for a time, at least a nanosecond.
    pub fn of((time_ns, value): (i64, f64), weight_ns: i64) -> Self {
        let weight_ns = u64::try_from(weight_ns).unwrap_or_default().max(1);
        Self { time_ns, min: value, max: value, sum: value * units::to_f64(weight_ns), weight_ns }
    }

    pub fn join(&mut self, next: &Self) {
        self.min = self.min.min(next.min);
        self.max = self.max.max(next.max);
        self.sum += next.sum;
        self.weight_ns += next.weight_ns;
    }
}

/// Points of a gauge, of which each holds until the next one, at most for some times the usual time there.
/// The last one holds like the one before.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    /// Waits with at most two points, whose time is not known yet.
    waiting: VecDeque<(i64, f64)>,
    spacings: Spacings,
    /// How long the last point holds.
    held_before_ns: Option<i64>,
}

impl Holding {
    /// Adds the next point. Returns one whose time is known by now.
    pub(crate) fn add(&mut self, point: (i64, f64)) -> Option<Interval> {
        self.waiting.push_back(point);
        let [first, second, third] = [0, 1, 2].map(|number| self.waiting.get(number).copied());
        let (first, second, third) = (first?, second?, third?);
        self.waiting.pop_front();
        Some(self.held(first, second.0, Some(third.0.saturating_sub(second.0))))
    }

    /// Returns the last points, and begins anew.
    pub(crate) fn finish(&mut self) -> Vec<Interval> {
        let mut held = Vec::new();
        while let Some(point) = self.waiting.pop_front() {
            held.push(match self.waiting.front() {
                Some((next_ns, _)) => self.held(point, *next_ns, None),
                None => Interval::of(point, self.held_before_ns.unwrap_or(1)),
            });
        }
        *self = Self::default();
        held
    }

    /// Returns a point, as long as it holds. `gap_after_ns` is the time between the next two points.
    fn held(&mut self, point: (i64, f64), next_ns: i64, gap_after_ns: Option<i64>) -> Interval {
        let held_ns = self.spacings.add(next_ns.saturating_sub(point.0), gap_after_ns);
        self.held_before_ns = Some(held_ns);
        Interval::of(point, held_ns)
    }
}

/// Course of a series: each point, or the ranges and sums of many.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curve {
    /// Intervals that contain points, in the order of their times.
    intervals: Vec<Interval>,
    /// Time of the last point, since the epoch.
    end_ns: i64,
}

impl Curve {
    pub fn of(points: &[(i64, f64)]) -> Self {
        let mut holding = Holding::default();
        let mut intervals: Vec<Interval> = points.iter().filter_map(|point| holding.add(*point)).collect();
        intervals.extend(holding.finish());
        Self::of_intervals(intervals.into_iter())
    }

    /// Takes the rates of a counter, sorted by time: each is that since the one before, and the first that
    /// since `begin_ns`.
    pub(crate) fn of_rates(points: &[(i64, f64)], begin_ns: i64) -> Self {
        Self::of_intervals(points.iter().enumerate().map(|(position, point): (usize, &(i64, f64))| {
            let since_ns = position
                .checked_sub(1)
                .and_then(|before| points.get(before))
                .map_or(begin_ns, |(time_ns, _)| *time_ns);
            Interval::of(*point, point.0.saturating_sub(since_ns))
        }))
    }

    /// Extends the range of each interval of one rate by the extremes at its time, if there are some. Joined
    /// intervals have the range of what they were joined from.
    pub(crate) fn with_extremes(mut self, extremes: impl Fn(i64) -> Option<(f64, f64)>) -> Self {
        for interval in &mut self.intervals {
            if let Some((min, max)) = extremes(interval.time_ns) {
                (interval.min, interval.max) = (interval.min.min(min), interval.max.max(max));
            }
        }
        self
    }

    /// Takes intervals sorted by time.
    pub fn of_intervals(
        intervals: impl ExactSizeIterator<Item = Interval> + DoubleEndedIterator + Clone,
    ) -> Self {
        let times = intervals.clone().next().zip(intervals.clone().next_back());
        Self::joined(intervals, times.map(|(first, last)| (first.time_ns, last.time_ns)))
    }

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

    /// Mean over the time with points; none without any.
    pub fn mean(&self) -> Option<f64> {
        let known = || self.intervals.iter().filter(|interval| interval.sum.is_finite());
        let weight_ns: u64 = known().map(|interval| interval.weight_ns).sum();
        let sum: f64 = known().map(|interval| interval.sum).sum();
        (weight_ns > 0).then(|| sum / units::to_f64(weight_ns))
    }

    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    /// Times of the first and the last point, in nanoseconds since the epoch; none without points.
    pub fn ends_ns(&self) -> Option<(i64, i64)> {
        self.intervals.first().map(|first| (first.time_ns, self.end_ns))
    }
}

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
        assert_eq!((curve.intervals()[0], curve.ends_ns()), (Interval::of((3, 1.0), 6), Some((3, 9))));
        assert_eq!((Curve::of(&[]), Curve::default().ends_ns()), (Curve::default(), None));
    }

    #[test]
    fn many_points_are_joined_without_loss() {
        let points: Vec<(i64, f64)> =
            (0..100_000).map(|number: i32| (i64::from(number) * 7, f64::from(number))).collect();
        let curve = Curve::of(&points);
        assert_eq!((curve.intervals().len(), curve.ends_ns()), (INTERVALS_MAX, Some((0, 99_999 * 7))));
        assert_eq!(curve.intervals().iter().map(|interval| interval.weight_ns).sum::<u64>(), 700_000);
        assert_eq!(curve.intervals().iter().map(|interval| interval.sum).sum::<f64>(), 7.0 * 4_999_950_000.0);
        assert!(curve.intervals().windows(2).all(|pair| pair[0].max + 1.0 == pair[1].min));
    }

    #[test]
    fn means_are_those_over_the_time() {
        // 1 for 100 s at 1 s, 9 for 10 s at 10 ms.
        let slow = (0..100_i32).map(|second| (i64::from(second) * 1000, 1.0));
        let fast = (0..1000_i32).map(|number| (100_000 + i64::from(number) * 10, 9.0));
        let points: Vec<(i64, f64)> = slow.chain(fast).collect();
        let mean = (100.0 * 1.0 + 10.0 * 9.0) / 110.0;
        assert!((Curve::of(&points).mean().unwrap() - mean).abs() < 1e-9);
        // The rates of the same times are dated at their ends.
        let rates: Vec<(i64, f64)> = (1..=100_i32).map(|second| (i64::from(second) * 1000, 1.0)).collect();
        let fast = (1..=1000_i32).map(|number| (100_000 + i64::from(number) * 10, 9.0));
        let rates: Vec<(i64, f64)> = rates.into_iter().chain(fast).collect();
        assert!((Curve::of_rates(&rates, 0).mean().unwrap() - mean).abs() < 1e-9);
        // A value does not hold over a gap.
        let gap = Curve::of(&[(0, 1.0), (1, 1.0), (2, 8.0), (1000, 2.0), (1001, 2.0)]).mean();
        assert_eq!(gap, Some((1.0 + 1.0 + 8.0 * 3.0 + 2.0 + 2.0) / 7.0));
        // The last samples of a job come at once, and make no gap of the time before.
        let ended = Curve::of(&[(0, 5.0), (2358, 1.0), (2359, 1.0), (2364, 1.0)]).mean();
        assert_eq!(ended, Some((5.0 * 2358.0 + 1.0 * 11.0) / 2369.0));
        let ended = Curve::of(&[(0, 5.0), (10, 5.0), (20, 5.0), (21, 5.0), (22, 1.0), (30, 9.0)]).mean();
        assert_eq!(ended, Some((5.0 * 22.0 + 1.0 * 8.0 + 9.0 * 8.0) / 38.0));
        assert_eq!((Curve::of(&[(5, 4.0)]).mean(), Curve::of(&[]).mean()), (Some(4.0), None));
    }
}
