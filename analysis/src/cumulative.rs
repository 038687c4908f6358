//! Counters as functions of time. Pure.

use std::ops::Range;

use polymeter_proto::units;
use polymeter_store::reader::BucketRow;

use crate::curve::Curve;

/// Part of a time that points must cover for an increase over all of it.
const COVERED_MIN: f64 = 0.8;

/// A counter that falls to half or less was restarted at 0, as when another agent continues. One that fell by
/// less has not changed.
pub(crate) fn is_restarted(before: f64, value: f64) -> bool {
    value <= before / 2.0 && value < before
}

pub(crate) fn grown(before: f64, value: f64) -> f64 {
    if is_restarted(before, value) { value } else { (value - before).max(0.0) }
}

/// Time of each sample of a counter, and its increase since the one before; 0 for the first.
pub(crate) fn steps(samples: &[(i64, f64)]) -> impl Iterator<Item = (i64, f64)> {
    let mut highest: Option<f64> = None;
    samples.iter().filter(|(_, value)| value.is_finite()).map(move |(time_ns, value)| {
        let before = *highest.get_or_insert(*value);
        if is_restarted(before, *value) || *value >= before {
            highest = Some(*value);
        }
        (*time_ns, grown(before, *value))
    })
}

/// Increase of a counter since its first point: linear between points.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Cumulative {
    /// Times in nanoseconds since the epoch, ascending, and increases, which do not decrease.
    points: Vec<(i64, f64)>,
}

impl Cumulative {
    pub(crate) fn of_samples(samples: &[(i64, f64)]) -> Self {
        let mut cumulative = Self::default();
        steps(samples).for_each(|(time_ns, increase)| cumulative.add(time_ns, increase));
        cumulative
    }

    /// Intervals are `length_ns` long.
    pub(crate) fn of_buckets(buckets: &[BucketRow], length_ns: i64) -> Self {
        let mut cumulative = Self::default();
        let mut before: Option<&BucketRow> = None;
        for bucket in buckets {
            let increase = before.map_or(0.0, |before| before.increase + grown(before.last, bucket.first));
            cumulative.add(bucket.time_ns, increase);
            before = Some(bucket);
        }
        if let Some(last) = before {
            cumulative.add(last.time_ns.saturating_add(length_ns), last.increase);
        }
        cumulative
    }

    /// Each rate of a counter is dated at its end.
    pub(crate) fn of_rates(curve: &Curve) -> Self {
        let points = curve.intervals().iter().filter(|interval| interval.weight_ns > 0);
        Self::of_rate(
            points.map(|interval| (interval.time_ns, interval.sum / units::to_f64(interval.weight_ns))),
        )
    }

    /// Each sample of a rate holds since the one before.
    pub(crate) fn of_rate(samples: impl IntoIterator<Item = (i64, f64)>) -> Self {
        let mut cumulative = Self::default();
        let mut before_ns = None;
        for (time_ns, rate) in samples.into_iter().filter(|(_, rate)| rate.is_finite()) {
            let seconds = before_ns.map_or(0.0, |before_ns| units::seconds_between(before_ns, time_ns));
            cumulative.add(time_ns, rate * seconds);
            before_ns = Some(time_ns);
        }
        cumulative
    }

    pub(crate) fn of_rate_buckets(buckets: &[BucketRow], length_ns: i64) -> Self {
        let begin = buckets.first().map(|first| (first.time_ns, 0.0));
        let ends = buckets.iter().map(|bucket| (bucket.time_ns.saturating_add(length_ns), bucket.mean));
        Self::of_rate(begin.into_iter().chain(ends))
    }

    /// Returns the same increases, each so much earlier.
    pub(crate) fn earlier(&self, by_ns: i64) -> Self {
        let points = self.points.iter().map(|(time_ns, total)| (time_ns.saturating_sub(by_ns), *total));
        Self { points: points.collect() }
    }

    /// Time from the first point to the last; none without two of them.
    pub(crate) fn span_ns(&self) -> Option<Range<i64>> {
        let (first, last) = self.points.first().zip(self.points.last())?;
        (first.0 < last.0).then_some(first.0..last.0)
    }

    /// A time that is not later adds nothing.
    pub(crate) fn add(&mut self, time_ns: i64, increase: f64) {
        let (last_ns, total) = self.points.last().copied().unwrap_or((i64::MIN, 0.0));
        if time_ns > last_ns {
            self.points.push((time_ns, total + increase.max(0.0)));
        }
    }

    pub(crate) fn times_ns(&self) -> impl Iterator<Item = i64> {
        self.points.iter().map(|(time_ns, _)| *time_ns)
    }

    /// Mean increases per second between neighbouring points within a time.
    pub(crate) fn rates(&self, span_ns: &Range<i64>) -> impl Iterator<Item = f64> {
        self.intervals(span_ns).map(|(seconds, increase)| increase / seconds)
    }

    /// Increases between neighbouring points within a time.
    pub(crate) fn increases(&self, span_ns: &Range<i64>) -> impl Iterator<Item = f64> {
        self.intervals(span_ns).map(|(_, increase)| increase)
    }

    /// Seconds and increases between neighbouring points within a time.
    fn intervals(&self, span_ns: &Range<i64>) -> impl Iterator<Item = (f64, f64)> {
        let pairs = self.points.iter().zip(self.points.iter().skip(1));
        let within = pairs.filter(|(before, after)| span_ns.start <= before.0 && after.0 <= span_ns.end);
        within.map(|(before, after)| (units::seconds_between(before.0, after.0), after.1 - before.1))
    }

    /// Increase between two times as far as points cover it: before the first and after the last there is
    /// none.
    pub(crate) fn within(&self, span_ns: &Range<i64>) -> f64 {
        (self.at(span_ns.end) - self.at(span_ns.start)).max(0.0)
    }

    /// Increase over a time. The ends without points count like the rest; none if they are more than a fifth.
    pub(crate) fn increase(&self, span_ns: &Range<i64>) -> Option<f64> {
        let ((first_ns, _), (last_ns, _)) = self.points.first().copied().zip(self.points.last().copied())?;
        let length_s = units::seconds_between(span_ns.start, span_ns.end);
        let covered_s = units::seconds_between(span_ns.start.max(first_ns), span_ns.end.min(last_ns));
        let is_covered = length_s > 0.0 && covered_s >= length_s * COVERED_MIN;
        is_covered.then(|| self.within(span_ns) * length_s / covered_s)
    }

    fn at(&self, time_ns: i64) -> f64 {
        let next = self.points.partition_point(|(point_ns, _)| *point_ns <= time_ns);
        let before = next.checked_sub(1).and_then(|position| self.points.get(position));
        match (before, self.points.get(next)) {
            (Some((before_ns, before)), Some((after_ns, after))) => {
                let part = units::seconds_between(*before_ns, time_ns)
                    / units::seconds_between(*before_ns, *after_ns);
                before + (after - before) * part
            }
            (Some((_, total)), None) => *total,
            (None, _) => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: i64 = 1_000_000_000;

    fn increase_of(values: &[f64]) -> f64 {
        let points: Vec<(i64, f64)> = (0..).zip(values.iter().copied()).collect();
        steps(&points).map(|(_, increase)| increase).sum::<f64>()
    }

    #[test]
    fn counters_increase_over_restarts() {
        let near = |values: &[f64], expected: f64| (increase_of(values) - expected).abs() < 1e-9;
        assert!(near(&[5.0, 7.0, 10.0], 5.0));
        assert!(near(&[5.0, 10.0, 1.0, 3.0], 8.0), "another agent began at 0");
        assert!(near(&[100.0, 97.0, 99.0, 101.0], 1.0), "a count of several CPUs may lag behind");
        assert!(near(&[3.0], 0.0) && near(&[], 0.0));
    }

    #[test]
    fn increases_are_linear_between_samples() {
        let counter =
            Cumulative::of_samples(&[(10 * S, 100.0), (20 * S, 200.0), (30 * S, 50.0), (30 * S, 90.0)]);
        let of = |begin: i64, end: i64| counter.within(&(begin * S..end * S));
        // The counter was restarted at 0 between 20 s and 30 s; the second sample of the same time is left
        // out.
        assert_eq!((of(10, 20), of(12, 14), of(20, 30), of(25, 30)), (100.0, 20.0, 50.0, 25.0));
        assert_eq!((of(0, 100), of(0, 5), of(40, 50)), (150.0, 0.0, 0.0));
        assert_eq!(Cumulative::default().within(&(0..S)), 0.0);
    }

    #[test]
    fn uncovered_ends_are_extrapolated_within_bounds() {
        let counter = Cumulative::of_samples(&[(10 * S, 0.0), (90 * S, 80.0)]);
        assert_eq!(counter.increase(&(0..100 * S)), Some(100.0));
        assert_eq!(counter.increase(&(0..120 * S)), None);
        assert_eq!(counter.increase(&(20 * S..30 * S)), Some(10.0));
        assert_eq!(counter.increase(&(20 * S..20 * S)), None);
        assert_eq!(Cumulative::default().increase(&(0..S)), None);
    }

    fn bucket(minute: i64, first: f64, last: f64) -> BucketRow {
        BucketRow {
            series_id: 1,
            time_ns: minute * 60 * S,
            count: 6,
            min: first,
            max: last,
            mean: 0.0,
            first,
            last,
            increase: last - first,
            rate_min: f64::NAN,
            rate_max: f64::NAN,
        }
    }

    #[test]
    fn intervals_and_rates_are_like_samples() {
        // 1 per second, with samples every 10 s.
        let counter = Cumulative::of_buckets(
            &[bucket(0, 5.0, 55.0), bucket(1, 65.0, 115.0), bucket(2, 125.0, 175.0)],
            60 * S,
        );
        assert_eq!((counter.within(&(0..120 * S)), counter.within(&(30 * S..60 * S))), (120.0, 30.0));
        assert_eq!(counter.within(&(0..1000 * S)), 170.0);
        let rates =
            Cumulative::of_rates(&Curve::of(&[(0, 9.0), (10 * S, 2.0), (20 * S, f64::NAN), (30 * S, 1.0)]));
        assert_eq!((rates.within(&(0..10 * S)), rates.within(&(0..30 * S))), (20.0, 40.0));
    }

    proptest! {
        #[test]
        fn parts_add_up(
            values in proptest::collection::vec((0_i64..1000, -1e6..1e6_f64), 0..50),
            mut cuts in proptest::collection::vec(-100_i64..1100, 2..8),
        ) {
            let mut samples = values;
            samples.sort_by_key(|(time, _)| *time);
            let counter = Cumulative::of_samples(&samples);
            cuts.sort_unstable();
            let parts: f64 = cuts.windows(2).map(|pair| counter.within(&(pair[0]..pair[1]))).sum();
            let whole = counter.within(&(cuts[0]..cuts[cuts.len() - 1]));
            prop_assert!((parts - whole).abs() <= 1e-6 * whole.max(1.0));
        }
    }
}
