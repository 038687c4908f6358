//! The series of a report as people read them, a line each.

use super::chart::sparkline;
use super::gather::{Report, SeriesReport};
use super::text::{Detail, LINES};
use super::{rates, units};
use crate::printable::printable;
use crate::terminal;

/// The least and the greatest width of a chart.
const CHART: (usize, usize) = (10, 60);

/// The least width of a name.
const NAME_LEAST: usize = 12;

/// What stands before each line, and between its columns.
const GAP: usize = 2;

/// Metrics that a remark names; of more it says how many.
const NAMED: usize = 4;

/// The table of the series, and what is to be known of it.
pub(super) fn text(report: &Report, detail: Detail, bound: Option<usize>) -> String {
    let chosen: Vec<&SeriesReport> =
        report.series.iter().filter(|series| detail == Detail::All || series.changed()).collect();
    let limit = if detail == Detail::All { usize::MAX } else { LINES };
    let shown = chosen.get(..limit.min(chosen.len())).unwrap_or_default();
    let mut text = terminal::indented_table_within(&rows(report, shown, bound), bound);
    for remark in remarks(shown) {
        text.push_str(&terminal::remark(&remark, bound));
    }
    let constant = report.series.len() - chosen.len();
    let hidden = chosen.len() - shown.len();
    if constant + hidden > 0 {
        let left_out = format!(
            "{constant} series that never changed and {hidden} more are left out; `polymeter report --all` shows them"
        );
        text.push_str(&terminal::remark(&left_out, bound));
    }
    text
}

fn rows(report: &Report, shown: &[&SeriesReport], bound: Option<usize>) -> Vec<Vec<String>> {
    let head = ["metric", "period", "samples", "least", "mean", "most"].map(str::to_owned).to_vec();
    let row = |series: &&SeriesReport| {
        vec![
            printable(&series.name(report.nodes.len() > 1)).into_owned(),
            series.period.clone().unwrap_or_else(|| "-".to_owned()),
            series.samples.to_string(),
            series.shown(series.least),
            series.shown(series.mean),
            series.shown(series.most),
        ]
    };
    let mut rows: Vec<Vec<String>> = std::iter::once(head).chain(shown.iter().map(row)).collect();
    let width = |column| terminal::column_width(&rows, column);
    let values: usize = (1..6).map(|column| width(column) + GAP).sum();
    let room = bound.map(|bound| bound.saturating_sub(values + GAP));
    let names: Vec<String> = rows.iter().skip(1).filter_map(|row| row.first().cloned()).collect();
    let (names, has_chart) = fitted(names, room);
    for (row, name) in rows.iter_mut().skip(1).zip(names) {
        row.iter_mut().take(1).for_each(|cell| name.clone_into(cell));
    }
    if has_chart {
        let used = terminal::column_width(&rows, 0) + values + GAP + GAP;
        let width = bound.unwrap_or(terminal::COLUMNS).saturating_sub(used).clamp(CHART.0, CHART.1);
        rows.iter_mut().take(1).for_each(|head| head.push(String::new()));
        for (row, series) in rows.iter_mut().skip(1).zip(shown) {
            row.push(sparkline(&series.points, width));
        }
    }
    rows
}

/// The names in at most so many columns as there is `room` for, and whether that leaves room for charts: a chart goes
/// before two names become one.
fn fitted(names: Vec<String>, room: Option<usize>) -> (Vec<String>, bool) {
    let Some(room) = room else { return (names, true) };
    let beside_chart = room.saturating_sub(CHART.0 + GAP);
    if beside_chart >= NAME_LEAST {
        let short = terminal::distinct_names(&names, beside_chart);
        let is_same = |one: usize, other: usize| {
            short.get(one) == short.get(other) && names.get(one) != names.get(other)
        };
        if !(0..names.len()).any(|one| (0..one).any(|other| is_same(one, other))) {
            return (short, true);
        }
    }
    (terminal::distinct_names(&names, room.max(NAME_LEAST)), false)
}

fn add<'a>(names: &mut Vec<&'a str>, name: &'a str) {
    if !names.contains(&name) {
        names.push(name);
    }
}

/// What the rates of counters mean where that is not what happened between two samples.
fn remarks(shown: &[&SeriesReport]) -> Vec<String> {
    // By the window, and by whether it is as long as it should be.
    let mut windows: Vec<((f64, bool), Vec<&str>)> = Vec::new();
    let mut clamped: Vec<&str> = Vec::new();
    for series in shown {
        let name = series.metric.as_str();
        if let Some(window_s) = series.window_s {
            let is_long = window_s >= units::seconds_between(0, rates::window_ns(name)) - 1e-9;
            let is_same = |known: (f64, bool)| (known.0 - window_s).abs() < 1e-9 && known.1 == is_long;
            match windows.iter_mut().find(|(known, _)| is_same(*known)) {
                Some((_, names)) => add(names, name),
                None => windows.push(((window_s, is_long), vec![name])),
            }
        }
        if series.is_clamped {
            add(&mut clamped, name);
        }
    }
    let window = |((window_s, is_long), names): &((f64, bool), Vec<&str>)| {
        let (names, window) = (named(names), units::seconds_of_ns(window_s * 1e9));
        if *is_long {
            format!(
                "{names}: least and most are rates over at least {window}, within which the counter is accurate"
            )
        } else {
            format!("{names}: sampled for {window} only, too short for an accurate rate")
        }
    };
    let impossible = format!(
        "{}: counted more CPU time than the node's CPUs have, even over the whole time; most is lowered to that",
        named(&clamped)
    );
    windows.iter().map(window).chain((!clamped.is_empty()).then_some(impossible)).collect()
}

fn named(metrics: &[&str]) -> String {
    let names = metrics.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match metrics.len().saturating_sub(NAMED) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_what_tells_them_apart() {
        let names =
            ["cpu.usage{step=0}", "cpu.usage{step=1}", "cpu.usage{step=batch}", "cpu.usage{step=extern}"];
        let names = names.map(str::to_owned).to_vec();
        assert_eq!(fitted(names.clone(), None), (names.clone(), true));
        let (short, has_chart) = fitted(names.clone(), Some(26));
        assert!(has_chart);
        assert_eq!(short, ["cpu.usa…tep=0}", "cpu.usa…tep=1}", "cpu.usa…batch}", "cpu.usa…xtern}"]);
        // No room for both: the chart goes.
        assert_eq!(fitted(names.clone(), Some(22)), (names, false));
    }

    #[test]
    fn equal_remarks_are_one() {
        let names = ["a", "b", "c", "d", "e", "f"];
        assert_eq!(named(&names), "a, b, c, d and 2 more");
        assert_eq!(named(&names[..2]), "a, b");
    }
}
