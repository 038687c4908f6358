//! Last minute of one series, reduced to few points for any period. Pure.

use std::collections::VecDeque;

use crate::output::table::figure;
use crate::output::units;

pub(super) const WINDOW_US: i64 = 60_000_000;

/// Samples within this interval form one point of the chart.
const POINT_US: i64 = 250_000;

#[derive(Debug, Clone, Copy)]
struct Point {
    last: (i64, f64),
    sum: f64,
    count: u32,
}

/// Last minute of a series.
#[derive(Debug)]
pub(super) struct RecentSeries {
    pub(super) unit: String,
    pub(super) is_counter: bool,
    /// Last period; none for values that a user pushes.
    pub(super) period: Option<String>,
    points: VecDeque<Point>,
}

/// A value with the interval in which it held, in microseconds since the epoch.
type Span = (i64, i64, f64);

impl RecentSeries {
    pub(super) fn new(unit: String, is_counter: bool) -> Self {
        Self { unit, is_counter, period: None, points: VecDeque::new() }
    }

    /// Ignores a sample that is older than the last one: the clock was set back.
    pub(super) fn add(&mut self, time_us: i64, value: f64) {
        let interval = |time_us: i64| time_us.div_euclid(POINT_US);
        match self.points.back_mut() {
            Some(point) if point.last.0 > time_us => {}
            Some(point) if interval(point.last.0) == interval(time_us) => {
                point.last = (time_us, value);
                point.sum += value;
                point.count = point.count.saturating_add(1);
            }
            _ => self.points.push_back(Point { last: (time_us, value), sum: value, count: 1 }),
        }
        // One point before the window is kept, for the first rate of a counter.
        while self.points.get(1).is_some_and(|second| second.last.0 < time_us - WINDOW_US) {
            self.points.pop_front();
        }
    }

    /// Microseconds since the epoch.
    pub(super) fn last_us(&self) -> Option<i64> {
        self.points.back().map(|point| point.last.0)
    }

    /// Last value of a gauge, or last rate of a counter.
    pub(super) fn current(&self) -> Option<f64> {
        if !self.is_counter {
            return self.points.back().map(|point| point.last.1);
        }
        let (_, _, rate) = self.rates().last()?;
        Some(rate)
    }

    pub(super) fn current_text(&self, metric: &str) -> String {
        figure(self.current(), |value| self.text(metric, value))
    }

    pub(super) fn text(&self, metric: &str, value: f64) -> String {
        if self.is_counter {
            return units::rate(metric, &self.unit, value);
        }
        let is_plain = matches!(self.unit.as_str(), "bytes" | "nanoseconds" | "percent" | "count" | "");
        let text = units::value(&self.unit, value);
        if is_plain { text } else { format!("{text} {}", self.unit) }
    }

    /// Rates of a counter between successive points. A decrease means that the counter was restarted.
    fn rates(&self) -> impl Iterator<Item = Span> {
        let pairs = self.points.iter().zip(self.points.iter().skip(1));
        pairs.filter_map(|(before, after)| {
            let seconds = units::seconds_between(before.last.0 * 1_000, after.last.0 * 1_000);
            let rate = (after.last.1 - before.last.1) / seconds;
            (seconds > 0.0 && rate >= 0.0).then_some((before.last.0, after.last.0, rate))
        })
    }

    /// Values of a gauge, each of which holds until the next.
    fn levels(&self, now_us: i64) -> impl Iterator<Item = Span> {
        let nexts = self.points.iter().skip(1).map(|point| point.last.0).chain([now_us]);
        self.points.iter().zip(nexts).map(|(point, next_us)| {
            (point.last.0, next_us.max(point.last.0 + 1), point.sum / f64::from(point.count))
        })
    }

    /// Mean value or rate in each of `width` columns of the last minute; none where there is no value.
    pub(super) fn columns(&self, now_us: i64, width: usize) -> Vec<Option<f64>> {
        let spans: Vec<Span> =
            if self.is_counter { self.rates().collect() } else { self.levels(now_us).collect() };
        let count = i64::try_from(width).unwrap_or(1).max(1);
        let begin_us = now_us - WINDOW_US;
        (0..count)
            .map(|number| {
                let from_us = begin_us + WINDOW_US * number / count;
                let to_us = begin_us + WINDOW_US * (number + 1) / count;
                mean(&spans, from_us, to_us)
            })
            .take(width)
            .collect()
    }
}

/// Mean of the values between two times, weighted by their durations.
fn mean(spans: &[Span], from_us: i64, to_us: i64) -> Option<f64> {
    let (mut sum, mut weight) = (0.0, 0.0);
    for (begin_us, end_us, value) in spans {
        let held_us = end_us.min(&to_us) - begin_us.max(&from_us);
        if held_us > 0 {
            let held = units::seconds_between(0, held_us);
            sum += value * held;
            weight += held;
        }
    }
    (weight > 0.0).then(|| sum / weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: i64 = 1_000_000;

    #[test]
    fn a_counter_is_shown_as_a_rate() {
        let mut series = RecentSeries::new("nanoseconds".to_owned(), true);
        assert_eq!(series.current(), None);
        series.add(0, 5e9);
        assert_eq!(series.current(), None);
        series.add(SECOND_US, 5.5e9);
        assert_eq!(series.current_text("cpu.usage"), "0.500 cores");
        series.add(2 * SECOND_US, 0.0);
        assert_eq!(series.current(), Some(0.5e9), "the counter was restarted");
    }

    #[test]
    fn many_samples_become_few_points() {
        let mut series = RecentSeries::new("count".to_owned(), true);
        for tick in 0..100_000_i32 {
            series.add(i64::from(tick) * 1_000, f64::from(tick));
        }
        assert!(series.points.len() <= 242, "{}", series.points.len());
        assert!((series.current().unwrap() - 1000.0).abs() < 1.0);
        let columns = series.columns(100 * SECOND_US, 30);
        assert!(columns.iter().all(|rate| (rate.unwrap() - 1000.0).abs() < 1.0), "{columns:?}");
    }

    #[test]
    fn a_gauge_holds_until_its_next_value() {
        let mut series = RecentSeries::new("bytes".to_owned(), false);
        series.add(30 * SECOND_US, 10.0);
        series.add(45 * SECOND_US, 20.0);
        let columns = series.columns(60 * SECOND_US, 4);
        assert_eq!(columns, [None, None, Some(10.0), Some(20.0)]);
        assert_eq!(series.columns(60 * SECOND_US, 0), []);
        series.add(SECOND_US, 7.0);
        assert_eq!(series.current(), Some(20.0), "an older sample is ignored");
        assert_eq!(series.current_text("memory.current"), "20 B");
    }
}
