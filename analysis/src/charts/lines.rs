//! Minimum, median and maximum over nodes.

use polymeter_proto::units;

use super::cells::NodeCells;
use super::model::{Extent, Lines};

/// All nodes have the same number of columns.
pub(super) fn of(nodes: &[NodeCells]) -> Lines {
    if let [one] = nodes {
        let NodeCells { min, mean, max } = one.clone();
        return Lines { low: min, middle: mean, high: max };
    }
    let columns = nodes.first().map_or(0, |node| node.mean.len());
    let mut lines = Lines::default();
    let mut values = Vec::new();
    for column in 0..columns {
        values.clear();
        values.extend(nodes.iter().filter_map(|node| node.mean.get(column)).filter(|value| !value.is_nan()));
        values.sort_by(f64::total_cmp);
        lines.low.push(values.first().copied().unwrap_or(f64::NAN));
        lines.middle.push(median(&values));
        lines.high.push(values.last().copied().unwrap_or(f64::NAN));
    }
    lines
}

/// Expects sorted values; NaN without any.
fn median(values: &[f64]) -> f64 {
    let at = |position: usize| values.get(position).copied().unwrap_or(f64::NAN);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { at(middle) } else { at(middle.wrapping_sub(1)).midpoint(at(middle)) }
}

/// None without values.
pub(super) fn extent(nodes: &[NodeCells]) -> Option<Extent> {
    let mut extent = Extent { min: f64::INFINITY, mean: 0.0, max: f64::NEG_INFINITY };
    let mut count = 0_u64;
    for node in nodes {
        extent.min = node.min.iter().copied().fold(extent.min, f64::min);
        extent.max = node.max.iter().copied().fold(extent.max, f64::max);
        for value in node.mean.iter().filter(|value| value.is_finite()) {
            extent.mean += value;
            count += 1;
        }
    }
    extent.mean /= units::to_f64(count);
    let is_known = count > 0 && [extent.min, extent.mean, extent.max].iter().all(|value| value.is_finite());
    is_known.then_some(extent)
}
