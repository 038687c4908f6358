//! The job's series over time, one below the other, as an SVG that browsers and documents show.

use std::fmt::Write;

use crate::printable::printable;
use crate::report::units::{seconds_between, to_f64};
use crate::report::{Report, SeriesReport};

/// The file's name.
pub(super) const NAME: &str = "plot.svg";

/// The most series in it: with more it is too long to be looked at. All are in the samples.
const SERIES_MOST: usize = 100;

/// Into how many columns the points of a series fall. In pixels, they are more than one wide.
const COLUMNS: usize = 400;

/// The plot's width, that of the names and values left of the curves, and a curve's height with and without the room
/// below it. In pixels.
const WIDTH: f64 = 1000.0;
const NAMES_WIDTH: f64 = 330.0;
const ROW_HEIGHT: f64 = 64.0;
const CURVE_HEIGHT: f64 = 50.0;

/// The room above the first curve, and below the last.
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// What a column shows of the points in it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Column {
    least: f64,
    most: f64,
    sum: f64,
    count: u32,
}

/// The plot of a job that began at `began_ns`, as the text of an SVG file. Series that never changed are left out.
pub(super) fn render(report: &Report, began_ns: i64) -> String {
    let changed: Vec<&SeriesReport> = report.series.iter().filter(|series| series.changed()).collect();
    let shown = changed.iter().take(SERIES_MOST);
    let height = TOP + ROW_HEIGHT * to_f64(shown.len() as u64) + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(
        &mut svg,
        (10.0, 24.0),
        "start",
        &format!(
            "job {}: each curve is the mean of its points, within the least and the most of them",
            report.job
        ),
    );
    let mut top = TOP;
    for series in shown {
        curve(&mut svg, top, series, report, began_ns);
        top += ROW_HEIGHT;
    }
    text(&mut svg, (NAMES_WIDTH, top + 14.0), "start", "0 s");
    text(&mut svg, (WIDTH - 10.0, top + 14.0), "end", &format!("{:.3} s", report.wall_s));
    let (constant, more) = (report.series.len() - changed.len(), changed.len().saturating_sub(SERIES_MOST));
    if constant + more > 0 {
        let left_out = format!("left out: {constant} series that never changed and {more} more");
        text(&mut svg, (10.0, top + 34.0), "start", &left_out);
    }
    svg.push_str("</svg>\n");
    svg
}

/// One series: its name, its least and most, and its curve between them.
fn curve(svg: &mut String, top: f64, series: &SeriesReport, report: &Report, began_ns: i64) {
    let bottom = top + CURVE_HEIGHT;
    text(svg, (10.0, top + 30.0), "start", &series.name(report.nodes.len() > 1));
    // Of a curve whose foot is not zero noise looks like a mountain, as in the charts of the report.
    let (foot, most) = (series.least.unwrap_or(0.0).min(0.0), series.most.unwrap_or(0.0));
    text(svg, (NAMES_WIDTH - 8.0, top + 10.0), "end", &series.shown(Some(most)));
    text(svg, (NAMES_WIDTH - 8.0, bottom), "end", &series.shown(Some(foot)));
    let y =
        |value: f64| bottom - (if most > foot { (value - foot) / (most - foot) } else { 0.0 }) * CURVE_HEIGHT;
    let (mut above, mut below, mut means) = (String::new(), Vec::new(), String::new());
    for (number, column) in columns(series, report.wall_s, began_ns).into_iter().enumerate() {
        let Some(Column { least, most, sum, count }) = column else { continue };
        let part = (to_f64(number as u64) + 0.5) / to_f64(COLUMNS as u64);
        let x = NAMES_WIDTH + part * (WIDTH - 10.0 - NAMES_WIDTH);
        // Writing to a text does not fail, here and below.
        write!(above, "{x:.1},{:.1} ", y(most)).ok();
        write!(means, "{x:.1},{:.1} ", y(sum / f64::from(count))).ok();
        below.push(format!("{x:.1},{:.1}", y(least)));
    }
    below.reverse();
    let below = below.join(" ");
    writeln!(
        svg,
        "<line x1=\"{NAMES_WIDTH}\" y1=\"{bottom}\" x2=\"{}\" y2=\"{bottom}\" stroke=\"#bbb\"/>",
        WIDTH - 10.0
    )
    .ok();
    writeln!(svg, "<polygon points=\"{above}{below}\" fill=\"#56b4e9\" stroke=\"#56b4e9\"/>").ok();
    writeln!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"#0072b2\"/>", means.trim_end()).ok();
}

/// The points of a series by column; none where no point is.
fn columns(series: &SeriesReport, wall_s: f64, began_ns: i64) -> Vec<Option<Column>> {
    let mut columns = vec![None; COLUMNS];
    for (time_ns, value) in series.points.iter().copied().filter(|(_, value)| value.is_finite()) {
        let part = if wall_s > 0.0 { seconds_between(began_ns, time_ns) / wall_s } else { 0.0 };
        let Some(place) = columns.get_mut(column_of(part)) else { continue };
        let Column { least, most, sum, count } =
            place.unwrap_or(Column { least: value, most: value, sum: 0.0, count: 0 });
        *place = Some(Column {
            least: least.min(value),
            most: most.max(value),
            sum: sum + value,
            count: count + 1,
        });
    }
    columns
}

/// Into which column a part of the whole, from 0 to 1, falls.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the few columns of a plot"
)]
fn column_of(part: f64) -> usize {
    ((part.clamp(0.0, 1.0) * to_f64(COLUMNS as u64)) as usize).min(COLUMNS - 1)
}

fn text(svg: &mut String, at: (f64, f64), anchor: &str, words: &str) {
    let words = printable(words).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{words}</text>", at.0, at.1).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(points: Vec<(i64, f64)>) -> SeriesReport {
        SeriesReport {
            metric: "pids.current".to_owned(),
            labels: String::new(),
            node: "n1".to_owned(),
            unit: "count".to_owned(),
            kind: "gauge".to_owned(),
            rate_unit: None,
            window_s: None,
            is_clamped: false,
            samples: 3,
            period: None,
            least: points.iter().map(|(_, value)| *value).reduce(f64::min),
            mean: None,
            most: points.iter().map(|(_, value)| *value).reduce(f64::max),
            growth: None,
            is_of_part: false,
            points,
        }
    }

    #[test]
    fn a_column_has_what_falls_into_it_and_gaps_have_nothing() {
        let second_ns = 1_000_000_000;
        let points =
            vec![(second_ns, 3.0), (second_ns + 1, 1.0), (second_ns + 2, f64::NAN), (9 * second_ns, 2.0)];
        let columns = columns(&series(points), 8.0, second_ns);
        assert_eq!(columns.len(), COLUMNS);
        assert_eq!(columns.iter().flatten().count(), 2);
        assert_eq!(columns[0], Some(Column { least: 1.0, most: 3.0, sum: 4.0, count: 2 }));
        assert_eq!(columns[COLUMNS - 1], Some(Column { least: 2.0, most: 2.0, sum: 2.0, count: 1 }));
    }

    #[test]
    fn times_outside_of_the_job_are_at_its_ends() {
        assert_eq!([-1.0, 0.0, 0.5, 1.0, 2.0].map(column_of), [0, 0, COLUMNS / 2, COLUMNS - 1, COLUMNS - 1]);
    }
}
