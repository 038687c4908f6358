//! Rows of heat maps.

use std::borrow::Cow;
use std::ops::Range;

use polymeter_proto::units;

use super::model::{Heat, HeatRow};

/// More rows are thinner than a few pixels.
pub const ROWS_MAX: usize = 200;

/// Positions of the successive nodes of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rows(Range<usize>);

impl Rows {
    pub(super) fn described(&self, nodes: &[&str]) -> HeatRow {
        let of_row = nodes.get(self.0.clone()).unwrap_or_default();
        let name = |node: Option<&&str>| node.copied().unwrap_or_default().to_owned();
        HeatRow { first: name(of_row.first()), last: name(of_row.last()), nodes: of_row.len() }
    }
}

/// Distributes nodes over rows: one each, or equally many.
pub(super) fn rows(nodes: &[&str]) -> Vec<Rows> {
    let size = nodes.len().div_ceil(ROWS_MAX).max(1);
    (0..nodes.len()).step_by(size).map(|begin| Rows(begin..nodes.len().min(begin + size))).collect()
}

/// Means of the nodes of each row. `means` returns those of one node by column.
pub(super) fn of<T>(nodes: &[T], rows: &[Rows], means: impl Fn(&T) -> Cow<'_, [f64]>) -> Heat {
    let mut heat = Heat::default();
    for row in rows {
        let of_row: Vec<Cow<'_, [f64]>> =
            nodes.get(row.0.clone()).unwrap_or_default().iter().map(&means).collect();
        heat.columns = of_row.first().map_or(0, |node| node.len());
        for column in 0..heat.columns {
            let known = || of_row.iter().filter_map(|node| node.get(column)).filter(|value| !value.is_nan());
            let count = known().count() as u64;
            heat.cells.push(if count > 0 { known().sum::<f64>() / units::to_f64(count) } else { f64::NAN });
        }
    }
    heat
}
