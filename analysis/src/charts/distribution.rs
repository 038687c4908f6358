//! Distributions of values.

use polymeter_proto::units;

use super::cells::NodeCells;
use super::model::{Histogram, Spread};
use crate::statistics::quantile;

const CLASSES: usize = 40;

const PERCENTAGES: [usize; 7] = [0, 5, 25, 50, 75, 95, 100];

/// None for fewer than two nodes.
pub(super) fn of_node_means(nodes: &[NodeCells]) -> Option<Spread> {
    let means: Vec<f64> = nodes.iter().filter_map(NodeCells::mean).collect();
    if means.len() < 2 { None } else { of(means) }
}

pub(super) fn of_values(nodes: &[NodeCells]) -> Option<Spread> {
    of(nodes.iter().flat_map(|node| node.mean.iter().copied()).collect())
}

/// Distribution of the finite values; none without any.
fn of(mut values: Vec<f64>) -> Option<Spread> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let (low, high) = values.first().copied().zip(values.last().copied())?;
    let quantiles = PERCENTAGES.map(|percent| quantile(&values, percent).unwrap_or(high));
    Some(Spread { quantiles, histogram: histogram(&values, low, high) })
}

/// Equal values are in one class. Expects sorted values.
fn histogram(values: &[f64], low: f64, high: f64) -> Histogram {
    if high <= low {
        return Histogram { low, high, counts: vec![values.len() as u64] };
    }
    let width = (high - low) / units::to_f64(CLASSES as u64);
    let mut counts = vec![0_u64; CLASSES];
    for value in values {
        let class = class((value - low) / width);
        if let Some(count) = counts.get_mut(class) {
            *count += 1;
        }
    }
    Histogram { low, high, counts }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "limited to the classes")]
fn class(position: f64) -> usize {
    (position.max(0.0) as usize).min(CLASSES - 1)
}
