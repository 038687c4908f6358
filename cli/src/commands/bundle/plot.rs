//! Series of a job over time, one below the other, as an SVG image.

use polymeter_service::svg::{Anchor, Point, Svg};

use crate::output::printable::printable;
use crate::output::units::{counted, part, seconds_between, to_f64};
use polymeter_analysis::curve::Interval;
use polymeter_analysis::model::{Report, SeriesReport};

pub(super) const NAME: &str = "plot.svg";

/// Further series are in the samples only.
const SERIES_MAX: usize = 100;

/// Columns into which the points of a series are sorted.
const COLUMNS: usize = 400;

/// Pixels: width of the plot, width of the names and values to the left of the curves, height of a row with
/// and without the room below its curve.
const WIDTH: f64 = 1000.0;
const NAMES_WIDTH: f64 = 330.0;
const ROW_HEIGHT: f64 = 64.0;
const CURVE_HEIGHT: f64 = 50.0;

const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const MARGIN: f64 = 10.0;

/// Leaves out constant series.
pub(super) fn render(report: &Report, started_ns: i64) -> String {
    let changed: Vec<&SeriesReport> = report.series.iter().filter(|series| series.has_changed()).collect();
    let drawn = changed.iter().take(SERIES_MAX);
    let mut svg = Svg::new(WIDTH, TOP + ROW_HEIGHT * to_f64(drawn.len() as u64) + BOTTOM, 12);
    let title = format!("job {}: mean of each series, within the range from min to max", report.job);
    text(&mut svg, (MARGIN, 24.0), Anchor::Start, &title);
    let mut top = TOP;
    for series in drawn {
        curve(&mut svg, top, series, report, started_ns);
        top += ROW_HEIGHT;
    }
    text(&mut svg, (NAMES_WIDTH, top + 14.0), Anchor::Start, "0 s");
    text(&mut svg, (WIDTH - MARGIN, top + 14.0), Anchor::End, &format!("{:.3} s", report.wall_s));
    let (constant, more) = (report.series.len() - changed.len(), changed.len().saturating_sub(SERIES_MAX));
    if constant + more > 0 {
        let left_out = format!("not shown: {constant} constant series and {}", counted(more, "other"));
        text(&mut svg, (MARGIN, top + 34.0), Anchor::Start, &left_out);
    }
    svg.finish()
}

fn curve(svg: &mut Svg, top: f64, series: &SeriesReport, report: &Report, started_ns: i64) {
    let bottom = top + CURVE_HEIGHT;
    text(svg, (MARGIN, top + 30.0), Anchor::Start, &series.name(report.nodes.len() > 1));
    // A base above zero would exaggerate noise, as in the charts of the report.
    let (base, max) = (series.min.unwrap_or(0.0).min(0.0), series.max.unwrap_or(0.0));
    text(svg, (NAMES_WIDTH - 8.0, top + 10.0), Anchor::End, &series.point_text(Some(max)));
    text(svg, (NAMES_WIDTH - 8.0, bottom), Anchor::End, &series.point_text(Some(base)));
    let y =
        |value: f64| bottom - (if max > base { (value - base) / (max - base) } else { 0.0 }) * CURVE_HEIGHT;
    let (mut upper, mut lower, mut means) = (Vec::new(), Vec::new(), Vec::new());
    for (number, column) in columns(series, report.wall_s, started_ns).into_iter().enumerate() {
        let Some(Interval { min, max, sum, weight_ns, .. }) = column else { continue };
        let fraction = (to_f64(number as u64) + 0.5) / to_f64(COLUMNS as u64);
        let x = NAMES_WIDTH + fraction * (WIDTH - MARGIN - NAMES_WIDTH);
        upper.push((x, y(max)));
        means.push((x, y(sum / to_f64(weight_ns))));
        lower.push((x, y(min)));
    }
    svg.line((NAMES_WIDTH, bottom), (WIDTH - MARGIN, bottom), "#bbb");
    svg.polygon(upper.into_iter().chain(lower.into_iter().rev()), "#56b4e9");
    svg.polyline(means, "#0072b2");
}

/// A column without points is none.
fn columns(series: &SeriesReport, wall_s: f64, started_ns: i64) -> Vec<Option<Interval>> {
    let mut columns: Vec<Option<Interval>> = vec![None; COLUMNS];
    for points in series.curve.intervals().iter().filter(|points| points.sum.is_finite()) {
        let fraction = if wall_s > 0.0 { seconds_between(started_ns, points.time_ns) / wall_s } else { 0.0 };
        match columns.get_mut(part(fraction, COLUMNS)) {
            Some(Some(column)) => column.join(points),
            Some(column) => *column = Some(*points),
            None => {}
        }
    }
    columns
}

fn text(svg: &mut Svg, at: Point, anchor: Anchor, text: &str) {
    svg.text(at, anchor, &printable(text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use polymeter_analysis::curve::Curve;

    fn series(points: Vec<(i64, f64)>) -> SeriesReport {
        SeriesReport {
            metric: "pids.current".to_owned(),
            labels: String::new(),
            node: "n1".to_owned(),
            unit: "count".to_owned(),
            kind: "gauge".to_owned(),
            rate_unit: None,
            window_s: None,
            inner_s: None,
            is_clamped: false,
            is_derived: false,
            samples: 3,
            period: None,
            min: points.iter().map(|(_, value)| *value).reduce(f64::min),
            mean: None,
            max: points.iter().map(|(_, value)| *value).reduce(f64::max),
            growth: None,
            curve: Curve::of(&points),
            ..SeriesReport::default()
        }
    }

    #[test]
    fn a_column_has_its_points_and_a_gap_has_none() {
        let second_ns = 1_000_000_000;
        let points =
            vec![(second_ns, 3.0), (second_ns + 1, 1.0), (second_ns + 2, f64::NAN), (9 * second_ns, 2.0)];
        let columns = columns(&series(points), 8.0, second_ns);
        assert_eq!(columns.len(), COLUMNS);
        assert_eq!(columns.iter().flatten().count(), 2);
        let first = Interval { time_ns: second_ns, min: 1.0, max: 3.0, sum: 4.0, weight_ns: 2 };
        assert_eq!(columns[0], Some(first));
        assert_eq!(columns[COLUMNS - 1], Some(Interval::of((9 * second_ns, 2.0), 3)));
    }

    #[test]
    fn points_outside_of_the_job_are_drawn_at_its_ends() {
        assert_eq!(
            [-1.0, 0.0, 0.5, 1.0, 2.0].map(|fraction| part(fraction, COLUMNS)),
            [0, 0, COLUMNS / 2, COLUMNS - 1, COLUMNS - 1]
        );
    }
}
