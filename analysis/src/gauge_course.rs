//! Course of a gauge from its rows: samples, and windows of samples. Pure.

use std::collections::VecDeque;

use polymeter_store::reader::SampleRow;

use crate::curve::{GAP_SPACINGS, Holding, Interval};

/// Sample, or samples of a window as one point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    /// Time of the first sample.
    pub(crate) time_ns: i64,
    pub(crate) count: u64,
    /// Time between two samples; 0 if it is unknown.
    pub(crate) spacing_ns: i64,
    /// Time for which a window holds; none for a sample, which holds until the next point.
    length_ns: Option<i64>,
    min: f64,
    max: f64,
    mean: f64,
}

impl Point {
    /// Returns a row whose samples are `spacing_ns` apart: a window has the time of its last one, and holds for
    /// `length_ns`.
    fn of(row: &SampleRow, spacing_ns: i64, length_ns: i64) -> Self {
        let count = row.count().max(1);
        let earlier = i64::try_from(count - 1).unwrap_or(i64::MAX);
        let (min, max) = row.window.map_or((row.value, row.value), |window| (window.min, window.max));
        Self {
            time_ns: row.time_ns.saturating_sub(spacing_ns.saturating_mul(earlier)),
            count,
            spacing_ns,
            length_ns: row.window.filter(|_| spacing_ns > 0).map(|_| length_ns),
            min,
            max,
            mean: row.mean(),
        }
    }
}

/// Dates rows, which arrive in the order of their times, at their first samples. The samples of a window are
/// evenly spaced since the row before; those of the first row are as far apart as those of the second one.
#[derive(Debug, Default)]
pub(crate) struct Dating {
    /// First row, if it is a window.
    first: Option<SampleRow>,
    /// Time of the last row.
    last_ns: Option<i64>,
    /// Time between two samples of the last row; 0 before the second one.
    spacing_ns: i64,
}

impl Dating {
    /// Returns the rows whose times are known by now, in their order.
    pub(crate) fn add(&mut self, row: &SampleRow) -> [Option<Point>; 2] {
        let Some(last_ns) = self.last_ns.replace(row.time_ns) else {
            if row.window.is_some() {
                self.first = Some(*row);
                return [None, None];
            }
            return [Some(Point::of(row, 0, 0)), None];
        };
        let between_ns = row.time_ns.saturating_sub(last_ns).max(0);
        let count = i64::try_from(row.count().max(1)).unwrap_or(i64::MAX);
        let spacing_ns = between_ns / count;
        let spacing_max_ns = self.spacing_ns.saturating_mul(GAP_SPACINGS);
        // A window after a gap is not longer for it.
        let is_after_gap = self.spacing_ns > 0 && spacing_ns > spacing_max_ns;
        self.spacing_ns = if is_after_gap { spacing_max_ns } else { spacing_ns };
        let length_ns = if is_after_gap { spacing_max_ns.saturating_mul(count) } else { between_ns };
        let first = self.first.take().map(|first| {
            let count = i64::try_from(first.count()).unwrap_or(i64::MAX);
            Point::of(&first, self.spacing_ns, self.spacing_ns.saturating_mul(count))
        });
        [first, Some(Point::of(row, self.spacing_ns, length_ns))]
    }

    /// Returns the only row, if it is a window.
    pub(crate) fn finish(&mut self) -> Option<Point> {
        std::mem::take(self).first.map(|first| Point::of(&first, 0, 0))
    }
}

/// Divides time between the points of a gauge, as [`Holding`] does. A window is as long as its samples say.
#[derive(Debug, Default)]
pub(crate) struct GaugeCourse {
    dating: Dating,
    holding: Holding,
    /// Points that `holding` waits with.
    waiting: VecDeque<Point>,
}

impl GaugeCourse {
    /// Adds the next row. Returns the intervals that are known by now, with their numbers of samples.
    pub(crate) fn add(&mut self, row: &SampleRow) -> [Option<(Interval, u64)>; 2] {
        self.dating.add(row).map(|point| point.and_then(|point| self.add_point(point)))
    }

    fn add_point(&mut self, point: Point) -> Option<(Interval, u64)> {
        self.waiting.push_back(point);
        let held = self.holding.add((point.time_ns, point.mean))?;
        Some(self.with_extremes(held))
    }

    fn with_extremes(&mut self, held: Interval) -> (Interval, u64) {
        match self.waiting.pop_front() {
            Some(point) => {
                let held = match point.length_ns {
                    Some(length_ns) => Interval::of((point.time_ns, point.mean), length_ns),
                    None => held,
                };
                (Interval { min: point.min, max: point.max, ..held }, point.count)
            }
            None => (held, 1),
        }
    }

    /// Returns the last intervals, and begins anew.
    pub(crate) fn finish(&mut self) -> Vec<(Interval, u64)> {
        let only = self.dating.finish();
        let mut intervals: Vec<_> = only.and_then(|only| self.add_point(only)).into_iter().collect();
        for held in self.holding.finish() {
            intervals.push(self.with_extremes(held));
        }
        *self = Self::default();
        intervals
    }
}

#[cfg(test)]
mod tests {
    use polymeter_proto::units::to_f64;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::windows_of;

    const MS: i64 = 1_000_000;

    fn intervals(rows: &[SampleRow]) -> Vec<(Interval, u64)> {
        let mut course = GaugeCourse::default();
        let mut intervals: Vec<_> = rows.iter().flat_map(|row| course.add(row)).flatten().collect();
        intervals.extend(course.finish());
        intervals
    }

    fn mean(intervals: &[(Interval, u64)]) -> f64 {
        let weight: u64 = intervals.iter().map(|(interval, _)| interval.weight_ns).sum();
        intervals.iter().map(|(interval, _)| interval.sum).sum::<f64>() / to_f64(weight)
    }

    #[test]
    fn a_window_begins_with_its_first_sample_and_lasts_as_its_samples_do() {
        let values: Vec<f64> = (0..10).map(f64::from).collect();
        // Windows of 3, 4 and 3 samples.
        let rows = windows_of(10 * MS, MS, 4, 1, &values, false);
        let found: Vec<_> = intervals(&rows)
            .iter()
            .map(|(of, count)| (of.time_ns / MS, of.weight_ns / 1_000_000, of.min, of.max, *count))
            .collect();
        assert_eq!(found, [(10, 3, 0.0, 2.0, 3), (13, 4, 3.0, 6.0, 4), (17, 3, 7.0, 9.0, 3)]);
        let only = intervals(&rows[..1]);
        assert_eq!((only.len(), only[0].0.max, only[0].1, mean(&only)), (1, 2.0, 3, 1.0));
        assert_eq!(intervals(&[]), []);
    }

    #[test]
    fn a_gap_before_a_window_is_not_part_of_it() {
        let rows = windows_of(0, MS, 10, 0, &[1.0; 20], false);
        let late = windows_of(1000 * MS, MS, 10, 0, &[5.0; 10], false);
        let found = intervals(&[rows, late].concat());
        let last = found.last().unwrap().0;
        assert!(last.time_ns > 980 * MS && last.weight_ns <= 30 * 1_000_000, "{last:?}");
        assert_eq!((found[2].0.min, found.len()), (5.0, 3));
    }

    proptest! {
        /// Mean and extremes of windows are those of the samples in them, also after samples of their own.
        #[test]
        fn windows_have_the_figures_of_their_samples(
            values in prop::collection::vec(-1e6..1e6_f64, 2..200),
            size in 2..20_usize,
            offset in 0..20_usize,
            sent in 0..3_usize,
        ) {
            let (alone, inside) = values.split_at(sent.min(values.len()));
            let mut rows = windows_of(0, MS, 1, 0, alone, false);
            rows.extend(windows_of((alone.len() as u64).cast_signed() * MS, MS, size, offset % size, inside, false));
            let found = intervals(&rows);
            let expected = values.iter().sum::<f64>() / to_f64(values.len() as u64);
            if rows.len() > 1 {
                prop_assert!((mean(&found) - expected).abs() < 1e-6, "{} is not {expected}", mean(&found));
            }
            let min = found.iter().map(|(of, _)| of.min).reduce(f64::min);
            let max = found.iter().map(|(of, _)| of.max).reduce(f64::max);
            prop_assert_eq!(min, values.iter().copied().reduce(f64::min));
            prop_assert_eq!(max, values.iter().copied().reduce(f64::max));
            let count: u64 = found.iter().map(|(_, count)| count).sum();
            prop_assert_eq!(count, values.len() as u64);
        }
    }
}
