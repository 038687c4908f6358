//! A chart in one line of a terminal.

use super::units;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Points over time, drawn into `width` columns: each shows the mean of the points that fall into it, and a blank
/// where there are none.
pub(crate) fn sparkline(points: &[(i64, f64)], width: usize) -> String {
    let (Some((begin, _)), Some((end, _))) = (points.first(), points.last()) else { return String::new() };
    let length = units::seconds_between(*begin, *end);
    let mut columns = vec![(0.0_f64, 0_u32); width];
    for (time, value) in points {
        let part = if length > 0.0 { units::seconds_between(*begin, *time) / length } else { 0.0 };
        if let Some((sum, count)) = columns.get_mut(column(part, width)) {
            *sum += value;
            *count += 1;
        }
    }
    let means: Vec<Option<f64>> =
        columns.into_iter().map(|(sum, count)| (count > 0).then(|| sum / f64::from(count))).collect();
    bars(&means)
}

/// A bar for each value, and a blank where there is none.
pub(crate) fn bars(means: &[Option<f64>]) -> String {
    let most = means.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = means.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    // A chart whose foot is not zero would make noise look like a mountain.
    let foot = least.min(0.0);
    let bar = |mean: Option<f64>| match mean {
        None => ' ',
        Some(_) if most <= foot => BARS.first().copied().unwrap_or(' '),
        Some(mean) => BARS.get(column((mean - foot) / (most - foot), BARS.len())).copied().unwrap_or(' '),
    };
    means.iter().copied().map(bar).collect()
}

/// Into which of `columns` a part of the whole, from 0 to 1, falls.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "clamped to the few columns of a terminal"
)]
fn column(part: f64, columns: usize) -> usize {
    ((part.clamp(0.0, 1.0) * columns as f64) as usize).min(columns.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_shows_the_form_and_the_gaps() {
        let points: Vec<(i64, f64)> =
            (0..8).map(|second: i32| (i64::from(second) * 1_000_000_000, f64::from(second))).collect();
        assert_eq!(sparkline(&points, 8), "▁▂▃▄▅▆▇█");
        assert_eq!(sparkline(&[(0, 5.0), (9, 5.0)], 4), "█  █");
        assert_eq!(sparkline(&[(0, 0.0), (9, 0.0)], 2), "▁▁");
        assert_eq!(sparkline(&[], 10), "");
        assert_eq!(sparkline(&[(3, 1.0)], 3), "█  ");
    }
}
