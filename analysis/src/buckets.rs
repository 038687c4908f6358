//! Intervals of a rollup of one series. Pure.

use std::ops::Range;

use polymeter_store::reader::BucketRow;

use crate::cumulative::grown;
use crate::curve::{Curve, Interval};
use polymeter_proto::units;

/// Increase of a counter between the last value of an interval and the first value of the next.
fn gap(before: &BucketRow, next: &BucketRow) -> f64 {
    grown(before.last, next.first)
}

fn pairs(buckets: &[BucketRow]) -> impl Iterator<Item = (&BucketRow, &BucketRow)> {
    buckets.iter().zip(buckets.iter().skip(1))
}

pub(crate) fn increase(buckets: &[BucketRow]) -> f64 {
    let inside: f64 = buckets.iter().map(|bucket| bucket.increase).sum();
    let between: f64 = pairs(buckets).map(|(before, next)| gap(before, next)).sum();
    inside + between
}

/// Increase of a counter per second in each interval, dated at its end. Samples fill only a part of the first
/// and the last interval: these are left out, unless there are no others. Then there is one rate over all
/// `span_s` seconds.
pub(crate) fn rates(buckets: &[BucketRow], length_ns: i64, span_s: f64) -> Vec<(i64, f64)> {
    let inner = buckets.get(1..).filter(|inner| inner.len() > 1);
    match (inner, buckets) {
        (Some(inner), _) => {
            let rates = pairs(inner).map(|(before, next)| {
                let increase = before.increase + gap(before, next);
                (next.time_ns, increase / units::seconds_between(before.time_ns, next.time_ns))
            });
            rates.collect()
        }
        (None, [.., last]) => {
            let rate = increase(buckets) / span_s;
            if span_s > 0.0 { vec![(last.time_ns.saturating_add(length_ns), rate)] } else { Vec::new() }
        }
        (None, []) => Vec::new(),
    }
}

/// An interval of the gauge counts as far as it lies between the two times.
pub(crate) fn curve(buckets: &[BucketRow], length_ns: i64, (begin_ns, end_ns): (i64, i64)) -> Curve {
    let intervals = buckets.iter().map(|bucket| {
        let until_ns = bucket.time_ns.saturating_add(length_ns).min(end_ns);
        let held = Interval::of(
            (bucket.time_ns, bucket.mean),
            until_ns.saturating_sub(bucket.time_ns.max(begin_ns)),
        );
        Interval { min: bucket.min, max: bucket.max, ..held }
    });
    Curve::of_intervals(intervals)
}

/// Begin of the first interval and end of the last, as far as they lie in the time of the job.
pub(crate) fn ends_ns(buckets: &[BucketRow], length_ns: i64, job_ns: &Range<i64>) -> Option<(i64, i64)> {
    let (first, last) = buckets.first().zip(buckets.last())?;
    let whole = (first.time_ns, last.time_ns.saturating_add(length_ns));
    let inside = (whole.0.max(job_ns.start), whole.1.min(job_ns.end));
    // The clock of a node may be far off.
    Some(if inside.0 < inside.1 { inside } else { whole })
}

/// Seconds between the first sample and the last. A rollup does not contain their times: they are estimated
/// from the number of samples in the first and the last interval, and in the fullest.
pub(crate) fn span_s(buckets: &[BucketRow], length_ns: i64) -> f64 {
    let [first, .., last] = buckets else {
        return buckets
            .first()
            .map_or(0.0, |only| if only.count > 1 { units::seconds_between(0, length_ns) } else { 0.0 });
    };
    let fullest = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(1).max(1);
    let period_s = units::seconds_between(0, length_ns) / units::to_f64(fullest);
    let begins_s = units::seconds_between(first.time_ns, last.time_ns);
    let before_first_s = units::seconds_between(0, length_ns) - units::to_f64(first.count) * period_s;
    begins_s - before_first_s + units::to_f64(last.count.saturating_sub(1)) * period_s
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: i64 = 1_000_000_000;

    fn intervals(first_s: i64, values: &[f64]) -> Vec<BucketRow> {
        let mut buckets: Vec<BucketRow> = Vec::new();
        for (second, value) in (first_s..).zip(values.iter().copied()) {
            let time_ns = second / 10 * 10 * SECOND_NS;
            match buckets.last_mut() {
                Some(bucket) if bucket.time_ns == time_ns => {
                    let grown = if value >= bucket.last { value - bucket.last } else { value };
                    bucket.increase += grown;
                    (bucket.min, bucket.max) = (bucket.min.min(value), bucket.max.max(value));
                    bucket.mean += (value - bucket.mean) / units::to_f64(bucket.count + 1);
                    (bucket.last, bucket.count) = (value, bucket.count + 1);
                }
                _ => {
                    let (count, increase) = (1, 0.0);
                    let [min, max, mean, first, last] = [value; 5];
                    buckets.push(BucketRow {
                        series_id: 1,
                        time_ns,
                        count,
                        min,
                        max,
                        mean,
                        first,
                        last,
                        increase,
                        rate_min: f64::NAN,
                        rate_max: f64::NAN,
                    });
                }
            }
        }
        buckets
    }

    #[test]
    fn an_interval_counts_as_far_as_the_job_lasted() {
        let hour_ns = 3600 * SECOND_NS;
        let bucket = |hour: i64| BucketRow { time_ns: hour * hour_ns, ..intervals(0, &[0.0, 1.0])[0] };
        let job_ns = hour_ns + 60 * SECOND_NS..hour_ns + 660 * SECOND_NS;
        assert_eq!(ends_ns(&[bucket(1)], hour_ns, &job_ns), Some((job_ns.start, job_ns.end)));
        assert_eq!(
            ends_ns(&[bucket(1), bucket(2)], hour_ns, &(0..3 * hour_ns)),
            Some((hour_ns, 3 * hour_ns))
        );
        assert_eq!(
            ends_ns(&[bucket(9)], hour_ns, &job_ns),
            Some((9 * hour_ns, 10 * hour_ns)),
            "another clock"
        );
        assert_eq!(ends_ns(&[], hour_ns, &job_ns), None);
    }

    #[test]
    fn the_increase_is_that_of_the_samples() {
        let steady: Vec<f64> = (0..100).map(|number| 500.0 + 3.0 * f64::from(number)).collect();
        assert_eq!(increase(&intervals(7, &steady)), 297.0);
        // It restarts between two intervals, and within one.
        let restarted = [10.0, 20.0, 30.0, 2.0, 4.0, 1.0, 2.0];
        assert_eq!(increase(&intervals(7, &restarted)), 20.0 + 2.0 + 2.0 + 1.0 + 1.0);
        assert_eq!(increase(&[]), 0.0);
    }

    #[test]
    fn rates_are_those_of_full_intervals() {
        let steady: Vec<f64> = (0..100).map(|number| 3.0 * f64::from(number)).collect();
        let steady = intervals(7, &steady);
        assert_eq!(steady.len(), 11);
        let of_full = rates(&steady, 10 * SECOND_NS, f64::NAN);
        assert_eq!((of_full.len(), of_full[0].0), (9, 20 * SECOND_NS));
        assert!(of_full.iter().all(|(_, rate)| (*rate - 3.0).abs() < 1e-9), "{of_full:?}");
        let short = rates(&intervals(8, &[0.0, 3.0, 6.0]), 10 * SECOND_NS, 2.0);
        assert_eq!((short.len(), short[0].0), (1, 20 * SECOND_NS));
        assert_eq!(rates(&intervals(8, &[5.0]), 10 * SECOND_NS, 0.0), []);
        assert_eq!(rates(&[], 10 * SECOND_NS, 0.0), []);
    }

    #[test]
    fn the_span_is_estimated_from_the_counts() {
        let length_ns = 10 * SECOND_NS;
        assert!((span_s(&intervals(7, &[0.0; 100]), length_ns) - 99.0).abs() < 1e-9);
        assert!((span_s(&intervals(10, &[0.0; 25]), length_ns) - 24.0).abs() < 1e-9);
        assert_eq!(span_s(&intervals(7, &[0.0]), length_ns), 0.0);
        assert_eq!(span_s(&[], length_ns), 0.0);
    }

    #[test]
    fn the_course_of_a_gauge_has_the_range_of_each_interval() {
        let ends_ns = (8 * SECOND_NS, 11 * SECOND_NS);
        let curve = curve(&intervals(8, &[1.0, 5.0, 2.0]), 10 * SECOND_NS, ends_ns);
        assert_eq!(curve.mean(), Some(8.0 / 3.0));
        let ranges: Vec<_> = curve.intervals().iter().map(|interval| (interval.min, interval.max)).collect();
        assert_eq!(ranges, [(1.0, 5.0), (2.0, 2.0)]);
    }
}
