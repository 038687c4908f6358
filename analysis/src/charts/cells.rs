//! Values of one node in equal parts of a time.

use polymeter_proto::units;

use crate::curve::{Curve, GAP_SPACINGS, Interval};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// Nanoseconds since the epoch.
    pub(super) begin_ns: i64,
    pub(super) end_ns: i64,
}

impl Span {
    pub(super) const fn length_s(self) -> f64 {
        units::seconds_between(self.begin_ns, self.end_ns)
    }

    /// Chooses at most `max` columns, of which most have a sample or more.
    pub(super) fn columns(self, max: usize, resolution_ns: i64) -> usize {
        let length_ns = self.end_ns.saturating_sub(self.begin_ns);
        let samples = usize::try_from(length_ns / resolution_ns.max(1)).unwrap_or(0);
        samples.clamp(1, max.max(1))
    }

    /// Column of a time; none outside the span.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "limited to the columns")]
    fn column(self, time_ns: i64, columns: usize) -> Option<usize> {
        let last = columns.checked_sub(1)?;
        if time_ns < self.begin_ns || time_ns > self.end_ns {
            return None;
        }
        let length_s = self.length_s();
        let after_s = units::seconds_between(self.begin_ns, time_ns);
        let fraction = if length_s > 0.0 { after_s / length_s } else { 0.0 };
        Some(((fraction * units::to_f64(columns as u64)) as usize).min(last))
    }
}

/// Values of a node in equal parts of a time; NaN without samples.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct NodeCells {
    pub(super) min: Vec<f64>,
    pub(super) mean: Vec<f64>,
    pub(super) max: Vec<f64>,
}

impl NodeCells {
    pub(super) fn empty(columns: usize) -> Self {
        let none = || vec![f64::NAN; columns];
        Self { min: none(), mean: none(), max: none() }
    }

    /// Takes the values of a series in `columns` parts of a time. A value holds until the next one, and a
    /// rate since the previous one, unless the samples between are missing.
    pub(super) fn of(curve: &Curve, is_rate: bool, spacing_ns: i64, span: Span, columns: usize) -> Self {
        let mut cells = Self::empty(columns);
        let mut weights_ns = vec![0_u64; columns];
        for interval in curve.intervals().iter().filter(|interval| interval.sum.is_finite()) {
            if let Some(column) = span.column(interval.time_ns, columns) {
                cells.add(column, interval);
                if let Some(weight_ns) = weights_ns.get_mut(column) {
                    *weight_ns += interval.weight_ns;
                }
            }
        }
        for (mean, weight_ns) in cells.mean.iter_mut().zip(weights_ns).filter(|(_, weight_ns)| *weight_ns > 0)
        {
            *mean /= units::to_f64(weight_ns);
        }
        cells.fill(curve, is_rate, spacing_ns, span);
        cells
    }

    /// Adds an interval to a column, whose mean is a sum until all are added.
    fn add(&mut self, column: usize, interval: &Interval) {
        join(self.min.get_mut(column), interval.min, f64::min);
        join(self.mean.get_mut(column), interval.sum, |sum, other| sum + other);
        join(self.max.get_mut(column), interval.max, f64::max);
    }

    /// Fills empty columns between two samples that follow each other.
    fn fill(&mut self, curve: &Curve, is_rate: bool, spacing_ns: i64, span: Span) {
        let limit_ns = spacing_ns.saturating_mul(GAP_SPACINGS);
        let columns = self.mean.len();
        let intervals = curve.intervals();
        let time = |interval: &Interval| span.column(interval.time_ns, columns);
        for (one, next) in intervals.iter().zip(intervals.iter().skip(1)) {
            let is_gap = next.time_ns.saturating_sub(one.time_ns) > limit_ns;
            let (Some(from), Some(to)) = (time(one), time(next)) else { continue };
            if is_gap || to <= from + 1 {
                continue;
            }
            for values in [&mut self.min, &mut self.mean, &mut self.max] {
                let held = values.get(if is_rate { to } else { from }).copied().unwrap_or(f64::NAN);
                values.iter_mut().take(to).skip(from + 1).for_each(|cell| *cell = held);
            }
        }
        // The first rate is that of the time since the first sample; the last value holds until the next
        // sample would follow.
        let edges = if is_rate {
            intervals
                .first()
                .map(|first| (first.time_ns.saturating_sub(spacing_ns), first.time_ns, first.time_ns))
        } else {
            intervals.last().map(|last| (last.time_ns, last.time_ns.saturating_add(spacing_ns), last.time_ns))
        };
        if let Some((begin_ns, end_ns, known_ns)) = edges {
            self.hold(span, (begin_ns.max(span.begin_ns), end_ns.min(span.end_ns)), known_ns);
        }
    }

    /// Gives the empty columns between two times the values of the column of a third.
    fn hold(&mut self, span: Span, (begin_ns, end_ns): (i64, i64), known_ns: i64) {
        let columns = self.mean.len();
        let column = |time_ns| span.column(time_ns, columns);
        let (Some(from), Some(to), Some(known)) = (column(begin_ns), column(end_ns), column(known_ns)) else {
            return;
        };
        for values in [&mut self.min, &mut self.mean, &mut self.max] {
            let held = values.get(known).copied().unwrap_or(f64::NAN);
            let empty = values.iter_mut().take(to + 1).skip(from).filter(|cell| cell.is_nan());
            empty.for_each(|cell| *cell = held);
        }
    }

    /// Adds the values of another series, multiplied by `factor`. The extremes of a sum are unknown: they are
    /// its mean.
    pub(super) fn add_scaled(&mut self, other: &Self, factor: f64) {
        add(&mut self.mean, &other.mean, factor);
        self.min.clone_from(&self.mean);
        self.max.clone_from(&self.mean);
    }

    /// Adds the values of another series, as if the extremes of both came together: bounds of those of the
    /// sum.
    pub(super) fn add_with_extremes(&mut self, other: &Self) {
        add(&mut self.min, &other.min, 1.0);
        add(&mut self.mean, &other.mean, 1.0);
        add(&mut self.max, &other.max, 1.0);
    }

    /// Subtracts the values of another series where there is a value to subtract from.
    pub(super) fn subtract(&mut self, other: &Self) {
        let columns =
            [(&mut self.min, &other.max), (&mut self.mean, &other.mean), (&mut self.max, &other.min)];
        for (cells, values) in columns {
            // A value that is not there stays so.
            cells
                .iter_mut()
                .zip(values)
                .filter(|(_, value)| !value.is_nan())
                .for_each(|(cell, value)| *cell -= value);
        }
    }

    pub(super) fn scale(&mut self, factor: f64) {
        for values in [&mut self.min, &mut self.mean, &mut self.max] {
            values.iter_mut().for_each(|cell| *cell *= factor);
        }
    }

    pub(super) fn raise_to_zero(&mut self) {
        for values in [&mut self.min, &mut self.mean, &mut self.max] {
            values.iter_mut().filter(|cell| **cell < 0.0).for_each(|cell| *cell = 0.0);
        }
    }

    /// Mean over the time with samples; none without samples.
    pub(super) fn mean(&self) -> Option<f64> {
        let known = || self.mean.iter().filter(|value| !value.is_nan());
        let count = known().count();
        (count > 0).then(|| known().sum::<f64>() / units::to_f64(count as u64))
    }
}

/// Adds values, multiplied by `factor`, to a sum. A cell has a value if one of both has one.
fn add(sum: &mut [f64], values: &[f64], factor: f64) {
    for (cell, value) in sum.iter_mut().zip(values).filter(|(_, value)| !value.is_nan()) {
        *cell = if cell.is_nan() { value * factor } else { *cell + value * factor };
    }
}

/// Joins a value with that of a column, if there is one.
fn join(cell: Option<&mut f64>, value: f64, joined: fn(f64, f64) -> f64) {
    if let Some(cell) = cell {
        *cell = if cell.is_nan() { value } else { joined(*cell, value) };
    }
}
