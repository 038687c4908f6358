//! Curves in one line of a terminal. Pure.

use polymeter_analysis::curve::Curve;
use polymeter_client::output::chart::bars;

use super::units;

/// Draws a curve into `width` columns: the mean of the points of each, or a blank.
pub(crate) fn sparkline(curve: &Curve, width: usize) -> String {
    let Some((begin, end)) = curve.ends_ns() else { return String::new() };
    let length = units::seconds_between(begin, end);
    let mut columns = vec![(0.0_f64, 0_u64); width];
    for points in curve.intervals() {
        let fraction =
            if length > 0.0 { units::seconds_between(begin, points.time_ns) / length } else { 0.0 };
        if let Some((sum, weight_ns)) = columns.get_mut(units::part(fraction, width)) {
            *sum += points.sum;
            *weight_ns += points.weight_ns;
        }
    }
    let means: Vec<Option<f64>> = columns
        .into_iter()
        .map(|(sum, weight_ns)| (weight_ns > 0).then(|| sum / units::to_f64(weight_ns)))
        .collect();
    bars(&means)
}

#[cfg(test)]
mod tests {
    use super::*;

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
