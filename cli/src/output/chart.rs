//! Charts that take one line of a terminal. Pure.

#[cfg(feature = "local")]
use super::units;
#[cfg(feature = "local")]
use polymeter_analysis::curve::Curve;

/// Bars by height.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws a curve into `width` columns. A column shows the mean of its points, or a blank if it has none.
#[cfg(feature = "local")]
pub(crate) fn sparkline(curve: &Curve, width: usize) -> String {
    let Some((begin, end)) = curve.ends_ns() else { return String::new() };
    let length = units::seconds_between(begin, end);
    let mut columns = vec![(0.0_f64, 0_u64); width];
    for points in curve.intervals() {
        let fraction =
            if length > 0.0 { units::seconds_between(begin, points.time_ns) / length } else { 0.0 };
        if let Some((sum, count)) = columns.get_mut(column(fraction, width)) {
            *sum += points.sum;
            *count += points.count;
        }
    }
    let means: Vec<Option<f64>> =
        columns.into_iter().map(|(sum, count)| (count > 0).then(|| sum / units::to_f64(count))).collect();
    bars(&means)
}

/// Returns the values of the lowest and the highest bar; none without values.
pub(crate) fn scale(means: &[Option<f64>]) -> Option<(f64, f64)> {
    let max = means.iter().flatten().copied().reduce(f64::max)?;
    let min = means.iter().flatten().copied().reduce(f64::min)?;
    // A base above zero would exaggerate noise.
    Some((min.min(0.0), max))
}

/// Draws a bar for each value, and a blank for each absent one.
pub(crate) fn bars(means: &[Option<f64>]) -> String {
    let (base, max) = scale(means).unwrap_or((0.0, 0.0));
    let bar = |mean: Option<f64>| match mean {
        None => ' ',
        Some(_) if max <= base => BARS.first().copied().unwrap_or(' '),
        Some(mean) => BARS.get(column((mean - base) / (max - base), BARS.len())).copied().unwrap_or(' '),
    };
    means.iter().copied().map(bar).collect()
}

/// Returns the column into which a fraction of the width, from 0 to 1, falls.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "clamped to the few columns of a terminal"
)]
fn column(fraction: f64, columns: usize) -> usize {
    ((fraction.clamp(0.0, 1.0) * columns as f64) as usize).min(columns.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_shape_and_gaps() {
        assert_eq!(bars(&[Some(0.0), None, Some(7.0), Some(3.5)]), "▁ █▅");
    }

    #[cfg(feature = "local")]
    #[test]
    fn a_chart_shows_shape_and_gaps() {
        let points: Vec<(i64, f64)> =
            (0..8).map(|second: i32| (i64::from(second) * 1_000_000_000, f64::from(second))).collect();
        let sparkline = |points: &[(i64, f64)], width| sparkline(&Curve::of(points), width);
        assert_eq!(sparkline(&points, 8), "▁▂▃▄▅▆▇█");
        assert_eq!(sparkline(&[(0, 5.0), (9, 5.0)], 4), "█  █");
        assert_eq!(sparkline(&[(0, 0.0), (9, 0.0)], 2), "▁▁");
        assert_eq!(sparkline(&[], 10), "");
        assert_eq!(sparkline(&[(3, 1.0)], 3), "█  ");
    }
}
