//! Reduction of a series to a bounded number of points a second. Pure.

use polymeter_analysis::downsample::{Extent, Increases, Part};
use polymeter_analysis::rates::window_ns;
use polymeter_store::reader::SeriesRow;

use crate::answer::rate;

/// Part of the time between two points by which a sample may come early: samples are never taken exactly at
/// their deadlines.
const TOLERANCE_PART: i64 = 4;

/// Joined values to which no sample comes for this time are sent. In times between two points.
const STALE_WIDTHS: i64 = 2;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub(super) series_id: i64,
    /// Time of its last value, since the epoch.
    pub(super) time_us: i64,
    pub(super) value: f64,
    /// Range and mean of its values.
    pub(super) extent: Part,
}

impl Point {
    pub(super) fn of_value(series_id: i64, time_us: i64, value: f64) -> Self {
        Self { series_id, time_us, value, extent: Extent::of_value(value).part(0) }
    }
}

/// Reduces one series, whose samples arrive in the order of their times.
#[derive(Debug)]
pub(super) struct Reducer {
    series_id: i64,
    width_us: i64,
    /// None for a gauge.
    increases: Option<Increases>,
    /// A sample from this time on may complete the next point.
    due_us: i64,
    open: Option<Open>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    extent: Extent,
    time_us: i64,
    value: f64,
    /// Time by the monotonic clock.
    arrived_us: i64,
}

impl Reducer {
    /// Reduces a series to at most `per_second` points. Counters become rates.
    pub(super) fn new(row: &SeriesRow, per_second: i64) -> Self {
        Self {
            series_id: row.series_id,
            width_us: 1_000_000 / per_second.max(1),
            increases: rate(row).map(|(_, factor)| Increases::new(factor, window_ns(&row.metric))),
            due_us: i64::MIN,
            open: None,
        }
    }

    /// Returns a point if it is due.
    pub(super) fn sample(&mut self, time_us: i64, value: f64, now_us: i64) -> Option<Point> {
        let (extent, value) = match &mut self.increases {
            None => (Extent::of_value(value), value),
            Some(increases) => {
                let increase = increases.sample(time_us.saturating_mul(1000), value)?;
                (Extent::of_increase(increase), increase.value / increase.seconds)
            }
        };
        let extent = self.open.map_or(extent, |open| open.extent.join(extent));
        self.open = Some(Open { extent, time_us, value, arrived_us: now_us });
        if time_us < self.due_us.saturating_sub(self.width_us / TOLERANCE_PART) {
            return None;
        }
        // Points lie on a grid, so that their number is bounded in spite of the tolerance, and no sample of
        // this rate is left out.
        let next_us = self.due_us.saturating_add(self.width_us);
        self.due_us = if time_us < next_us { next_us } else { time_us.saturating_add(self.width_us) };
        self.take()
    }

    /// Returns a point of the values to which no further sample came for long.
    pub(super) fn take_stale(&mut self, now_us: i64) -> Option<Point> {
        let limit_us = self.width_us.saturating_mul(STALE_WIDTHS);
        let is_stale = self.open.is_some_and(|open| now_us.saturating_sub(open.arrived_us) > limit_us);
        if is_stale { self.take() } else { None }
    }

    /// Returns a point of all values that were not sent yet.
    pub(super) fn take(&mut self) -> Option<Point> {
        let Open { extent, time_us, value, .. } = self.open.take()?;
        Some(Point { series_id: self.series_id, time_us, value, extent: extent.part(0) })
    }

    /// Tells whether values were not sent yet.
    pub(super) const fn is_open(&self) -> bool {
        self.open.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: i64 = 1_000_000;

    fn row(metric: &str, unit: &str, kind: &str) -> SeriesRow {
        SeriesRow {
            series_id: 7,
            node: "n1".to_owned(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            kind: kind.to_owned(),
            labels: polymeter_proto::series::Labels::default(),
        }
    }

    fn gauge(per_second: i64) -> Reducer {
        Reducer::new(&row("memory.current", "bytes", "gauge"), per_second)
    }

    #[test]
    fn samples_at_the_rate_or_slower_are_sent_at_once() {
        let mut of = gauge(1);
        for (number, late_us) in [30, 90_000, 10, 0, 45].into_iter().enumerate() {
            let time_us = i64::try_from(number).unwrap() * SECOND_US + late_us;
            let point = of.sample(time_us, 5.0, 0).unwrap();
            assert_eq!((point.time_us, point.extent.count), (time_us, 1), "{number}");
        }
        assert!(of.sample(100 * SECOND_US, 5.0, 0).is_some() && of.sample(160 * SECOND_US, 5.0, 0).is_some());
    }

    #[test]
    fn faster_samples_are_joined_to_points_at_the_rate() {
        let mut of = gauge(2);
        let points: Vec<Point> =
            (0..10_000_i32).filter_map(|ms| of.sample(i64::from(ms) * 1000, f64::from(ms % 10), 0)).collect();
        assert!((19..=21).contains(&points.len()), "{}", points.len());
        for point in points.iter().skip(2) {
            let Part { count, min, max, mean, .. } = point.extent;
            assert_eq!((count, min, max), (500, 0.0, 9.0));
            assert!((4.4..4.6).contains(&mean), "{mean}");
        }
    }

    #[test]
    fn counters_become_rates() {
        let mut of = Reducer::new(&row("io.read.bytes", "bytes", "counter"), 1);
        assert_eq!(of.sample(0, 100.0, 0), None);
        assert_eq!(of.sample(SECOND_US, 300.0, 0).unwrap().value, 200.0);
        assert_eq!(of.sample(2 * SECOND_US, 50.0, 0), None, "it was restarted");
        let values = [(2_100_000, 60.0), (2_200_000, 90.0), (3_000_000, 90.0)];
        let points: Vec<Point> =
            values.iter().filter_map(|(time_us, value)| of.sample(*time_us, *value, 0)).collect();
        let sent: Vec<_> = points.iter().map(|point| (point.time_us, point.extent.count)).collect();
        assert_eq!(sent, [(2_100_000, 1), (3_000_000, 2)]);
        let Part { min, max, mean, .. } = points[1].extent;
        assert_eq!((min, max, points[1].value), (0.0, 300.0, 0.0));
        assert!((mean - 30.0 / 0.9).abs() < 1e-9, "{mean}");
    }

    #[test]
    fn the_last_values_of_a_series_are_sent_when_it_becomes_slower() {
        let mut of = gauge(1);
        assert!(of.sample(0, 1.0, 0).is_some());
        assert!(of.sample(10_000, 2.0, 10).is_none() && of.is_open());
        assert_eq!(of.take_stale(2 * SECOND_US), None);
        assert_eq!(of.take_stale(2 * SECOND_US + 11).unwrap().value, 2.0);
        assert!(!of.is_open() && of.take().is_none());
    }
}
