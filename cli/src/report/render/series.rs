//! The series of a report as a table.

use polymeter_proto::text::abridged_list;

use super::detail::Detail;
use super::paragraph;
use crate::output::layout::{distinct_names, has_distinct};
use crate::output::printable::printable;
use crate::output::sparkline::sparkline;
use crate::output::{table, terminal, units};
use crate::report::summary;
use polymeter_analysis::model::{Report, SeriesReport};
use polymeter_analysis::rates;

/// The minimum and maximum widths of a chart.
const CHART_MIN: usize = 10;
const CHART_MAX: usize = 60;

/// The minimum width of a name.
const NAME_MIN: usize = 12;

/// The width of the indentation, and of the gap between two columns.
const GAP: usize = 2;

/// The maximum number of periods of a series that are listed; of the others it states the number.
const PERIODS: usize = 3;

/// The maximum number of metrics that a remark names; of the others it states the number.
const NAMED: usize = 4;

/// Lays out the table of the series, and remarks on it.
pub(super) fn text(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    let chosen: Vec<&SeriesReport> =
        report.series.iter().filter(|series| detail == Detail::All || series.has_changed()).collect();
    let listed = chosen.get(..detail.lines_max().min(chosen.len())).unwrap_or_default();
    let mut text = paragraph::indented_table_within(&rows(report, listed, limit), limit);
    for remark in remarks(report, listed) {
        text.push_str(&paragraph::remark(&remark, limit));
    }
    let constant = report.series.len() - chosen.len();
    let hidden = chosen.len() - listed.len();
    if constant + hidden > 0 {
        let left_out = format!(
            "not shown: {constant} constant series and {hidden} others; `polymeter report --all` shows them"
        );
        text.push_str(&paragraph::remark(&left_out, limit));
    }
    text
}

/// Rows of series, below a head.
fn rows(report: &Report, listed: &[&SeriesReport], limit: Option<usize>) -> Vec<Vec<String>> {
    let mut rows = vec![table::head(["metric", "period", "samples", "min", "mean", "max"])];
    for series in listed {
        rows.push(vec![
            printable(&series.name(report.nodes.len() > 1)).into_owned(),
            periods(series),
            series.samples.to_string(),
            series.point_text(series.min),
            series.point_text(series.mean),
            series.point_text(series.max),
        ]);
    }
    let width = |column| table::column_width(&rows, column);
    let values: usize = (1..6).map(|column| width(column) + GAP).sum();
    let room = limit.map(|limit| limit.saturating_sub(values + GAP));
    let names: Vec<String> = rows.iter().skip(1).filter_map(|row| row.first().cloned()).collect();
    let (names, has_chart) = fitted(names, room);
    for (row, name) in rows.iter_mut().skip(1).zip(names) {
        row.iter_mut().take(1).for_each(|cell| name.clone_into(cell));
    }
    if has_chart {
        let used = table::column_width(&rows, 0) + values + GAP + GAP;
        let width = limit.unwrap_or(terminal::COLUMNS).saturating_sub(used).clamp(CHART_MIN, CHART_MAX);
        rows.iter_mut().take(1).for_each(|head| head.push(String::new()));
        for (row, series) in rows.iter_mut().skip(1).zip(listed) {
            // The intervals of a rollup may be fewer than the columns.
            let points = report.rollup_s.map_or(usize::MAX, |_| series.curve.intervals().len());
            row.push(sparkline(&series.curve, width.min(points)));
        }
    }
    rows
}

/// Lists each period that was in force, and for how long if there were several.
fn periods(series: &SeriesReport) -> String {
    if let ([], Some(period)) = (series.periods.as_slice(), &series.period) {
        return period.clone();
    }
    let in_force: Vec<(&str, f64)> =
        series.periods.iter().map(|used| (used.period.as_str(), used.seconds)).collect();
    summary::periods(&in_force, PERIODS)
}

/// Fits the names into `room` columns, and returns true if charts fit beside them. Charts are omitted if
/// names would become equal otherwise.
fn fitted(names: Vec<String>, room: Option<usize>) -> (Vec<String>, bool) {
    let Some(room) = room else { return (names, true) };
    let beside_chart = room.saturating_sub(CHART_MIN + GAP);
    if beside_chart >= NAME_MIN {
        let short = distinct_names(&names, beside_chart);
        if has_distinct(&short, &names) {
            return (short, true);
        }
    }
    (distinct_names(&names, room.max(NAME_MIN)), false)
}

/// Adds a name unless it is already contained.
fn add<'a>(names: &mut Vec<&'a str>, name: &'a str) {
    if !names.contains(&name) {
        names.push(name);
    }
}

/// Explains the rates of counters over windows longer than the time between two samples.
fn remarks(report: &Report, listed: &[&SeriesReport]) -> Vec<String> {
    let mut windows: Vec<Window<'_>> = Vec::new();
    let mut clamped: Vec<&str> = Vec::new();
    for series in listed {
        let name = series.metric.as_str();
        // A note describes the windows of a rollup.
        if let Some(window_s) = series.window_s.filter(|_| report.rollup_s.is_none()) {
            let is_long = window_s >= units::seconds_between(0, rates::window_ns(name)) - 1e-9;
            let is_same = |known: &&mut Window<'_>| {
                (known.length_s - window_s).abs() < 1e-9 && known.is_long == is_long
            };
            match windows.iter_mut().find(is_same) {
                Some(known) => add(&mut known.names, name),
                None => windows.push(Window { length_s: window_s, is_long, names: vec![name] }),
            }
        }
        if series.is_clamped {
            add(&mut clamped, name);
        }
    }
    let mut remarks: Vec<String> = windows.iter().map(Window::remark).collect();
    if !clamped.is_empty() {
        remarks.push(format!(
            "{}: the kernel counted more CPU time than the node's CPUs can provide; max is limited to their capacity",
            abridged_list(&clamped, NAMED)
        ));
    }
    remarks
}

/// The window of the rates of counters.
struct Window<'a> {
    length_s: f64,
    /// True if it is long enough for the counters.
    is_long: bool,
    /// The metrics.
    names: Vec<&'a str>,
}

impl Window<'_> {
    fn remark(&self) -> String {
        let (names, length) = (abridged_list(&self.names, NAMED), units::duration_f64(self.length_s * 1e9));
        if self.is_long {
            format!("{names}: min and max are rates over at least {length}, the counter's update interval")
        } else {
            format!("{names}: sampled for {length} only, too short for accurate rates")
        }
    }
}

#[cfg(test)]
mod tests {
    use polymeter_analysis::model::PeriodUse;

    use super::*;

    #[test]
    fn each_period_is_listed_with_its_time() {
        let used = |period: &str, seconds: f64| PeriodUse { period: period.to_owned(), seconds };
        let of = |periods: Vec<PeriodUse>| {
            super::periods(&SeriesReport {
                periods,
                period: Some("2s".to_owned()),
                ..SeriesReport::default()
            })
        };
        assert_eq!((of(Vec::new()), of(vec![used("1s", 9.0)])), ("2s".to_owned(), "1s".to_owned()));
        let several = vec![used("1s", 3000.0), used("10ms", 60.0), used("5s", 1.5), used("1min", 2.0)];
        assert_eq!(of(several), "1s for 50 min, 10ms for 1 min, 5s for 1.50 s, 1 other");
    }

    #[test]
    fn names_keep_their_differences() {
        let names =
            ["cpu.usage{step=0}", "cpu.usage{step=1}", "cpu.usage{step=batch}", "cpu.usage{step=extern}"];
        let names = names.map(str::to_owned).to_vec();
        assert_eq!(fitted(names.clone(), None), (names.clone(), true));
        let (short, has_chart) = fitted(names.clone(), Some(26));
        assert!(has_chart);
        assert_eq!(short, ["cpu.usa…tep=0}", "cpu.usa…tep=1}", "cpu.usa…batch}", "cpu.usa…xtern}"]);
        // The room is insufficient for both: the chart is omitted.
        assert_eq!(fitted(names.clone(), Some(22)), (names, false));
    }
}
