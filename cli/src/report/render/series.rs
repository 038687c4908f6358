//! Series of a report as a table.

use polymeter_proto::text::abridged_list;

use super::detail::Detail;
use super::paragraph;
use crate::output::layout::{width, without_middle};
use crate::output::printable::printable;
use crate::output::sparkline::sparkline;
use crate::output::{table, terminal, units};
use crate::report::summary;
use polymeter_analysis::model::{Report, SeriesReport};
use polymeter_analysis::rates;
use polymeter_analysis::regions::METRICS as REGIONS;
use polymeter_proto::catalogue::PROCESS_RANK;

const CHART_MIN: usize = 10;
const CHART_MAX: usize = 60;

const GAP: usize = 2;

/// Periods of a series that are listed; further ones are counted.
const PERIODS: usize = 3;

/// Metrics that a remark names; further ones are counted.
const NAMED: usize = 4;

/// Metrics of the measurement itself.
const OWN: &str = "agent.";

pub(super) fn text(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    // The table of regions has their sums, and that of functions the ranks.
    let is_elsewhere =
        |series: &&SeriesReport| series.metric.starts_with(REGIONS) || series.metric == PROCESS_RANK.name;
    let all = || report.series.iter().filter(|series| detail == Detail::All || !is_elsewhere(series));
    let mut chosen: Vec<&SeriesReport> =
        all().filter(|series| detail == Detail::All || series.has_changed()).collect();
    chosen.sort_by_key(|series| series.metric.starts_with(OWN));
    let listed = chosen.get(..detail.lines_max().min(chosen.len())).unwrap_or_default();
    let mut text = table(report, listed, limit);
    let unknown = unknown(report).filter(|_| detail == Detail::All);
    for remark in remarks(report, listed).into_iter().chain(unknown) {
        text.push_str(&paragraph::remark(&remark, limit));
    }
    let constant = all().count() - chosen.len();
    let hidden = chosen.len() - listed.len();
    if constant + hidden > 0 {
        let left_out = format!(
            "not shown: {constant} constant series and {hidden} others; `polymeter report --show all` shows them"
        );
        text.push_str(&paragraph::remark(&left_out, limit));
    }
    text
}

/// Derived metrics that are unknown, with the reasons.
fn unknown(report: &Report) -> Option<String> {
    let reasons: Vec<String> = report
        .derived
        .iter()
        .filter_map(|derived| {
            let reason = derived.reason.as_ref()?;
            Some(format!("{} of {} ({reason})", derived.metric, printable(&derived.node)))
        })
        .collect();
    (!reasons.is_empty()).then(|| format!("unknown: {}", reasons.join(", ")))
}

/// Lays out series with their figures and their course, below a head. A name that is too long to stand beside
/// them has a line of its own.
fn table(report: &Report, listed: &[&SeriesReport], limit: Option<usize>) -> String {
    let mut rows = rows(listed, PERIODS);
    let figures_width = |rows: &[Vec<String>]| -> usize {
        (1..6).map(|column| table::column_width(rows, column) + GAP).sum()
    };
    if limit.is_some_and(|limit| figures_width(&rows) + CHART_MIN + 2 * GAP > limit) {
        rows = self::rows(listed, 1);
    }
    let beside =
        limit.map_or(usize::MAX, |limit| limit.saturating_sub(GAP + figures_width(&rows) + CHART_MIN + GAP));
    let names: Vec<String> =
        listed.iter().map(|series| printable(&series.name(report.nodes.len() > 1)).into_owned()).collect();
    let is_beside = |name: &String| width(name) <= beside;
    for (row, name) in rows.iter_mut().skip(1).zip(&names).filter(|(_, name)| is_beside(name)) {
        row.iter_mut().take(1).for_each(|cell| name.clone_into(cell));
    }
    let used = 2 * GAP + table::column_width(&rows, 0) + figures_width(&rows);
    let room = limit.unwrap_or(terminal::COLUMNS).saturating_sub(used);
    if limit.is_none() || room >= CHART_MIN {
        rows.iter_mut().take(1).for_each(|head| head.push(String::new()));
        for (row, series) in rows.iter_mut().skip(1).zip(listed) {
            // The intervals of a rollup may be fewer than the columns.
            let points = report.rollup_s.map_or(usize::MAX, |_| series.curve.intervals().len());
            row.push(sparkline(&series.curve, room.clamp(CHART_MIN, CHART_MAX).min(points)));
        }
    }
    let table = paragraph::indented_table_within(&rows, limit);
    let mut lines = table.lines();
    let mut text = lines.next().map_or_else(String::new, |head| format!("{head}\n"));
    for (name, line) in names.iter().zip(lines) {
        if !is_beside(name) {
            let name = without_middle(name, limit.unwrap_or(usize::MAX).saturating_sub(GAP));
            text.push_str(&format!("{:GAP$}{name}\n", ""));
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Rows of series without names, below a head. At most `periods_max` periods are listed.
fn rows(listed: &[&SeriesReport], periods_max: usize) -> Vec<Vec<String>> {
    let mut rows = vec![table::head(["metric", "period", "samples", "min", "mean", "max"])];
    for series in listed {
        let [min, mean, max] = figures(series);
        rows.push(vec![
            String::new(),
            periods(series, periods_max),
            series.samples.to_string(),
            min,
            mean,
            max,
        ]);
    }
    rows
}

/// Minimum, mean and maximum. The unit of numbers of cores stands once.
fn figures(series: &SeriesReport) -> [String; 3] {
    let [min, mean, max] = [series.min, series.mean, series.max].map(|value| series.point_text(value));
    if series.rate_unit != Some("cores") {
        return [min, mean, max];
    }
    let number = |text: String| text.split(' ').next().unwrap_or_default().to_owned();
    [number(min), number(mean), max]
}

/// Lists each period that was in force, and for how long if there were several.
fn periods(series: &SeriesReport, most: usize) -> String {
    if let ([], Some(period)) = (series.periods.as_slice(), &series.period) {
        return period.clone();
    }
    let in_force: Vec<(&str, f64)> =
        series.periods.iter().map(|used| (used.period.as_str(), used.seconds)).collect();
    summary::periods(&in_force, most)
}

fn add<'a>(names: &mut Vec<&'a str>, name: &'a str) {
    if !names.contains(&name) {
        names.push(name);
    }
}

/// Explains the rates of counters over windows longer than the time between two samples.
fn remarks(report: &Report, listed: &[&SeriesReport]) -> Vec<String> {
    let mut windows: Vec<Window<'_>> = Vec::new();
    let mut clamped: Vec<&str> = Vec::new();
    let mut within: Vec<(f64, Vec<&str>)> = Vec::new();
    for series in listed {
        let name = series.metric.as_str();
        // A note describes the windows of a rollup.
        if let Some(window_s) = series.window_s.filter(|_| report.rollup_s.is_none()) {
            let is_long = window_s >= units::seconds_between(0, rates::window_ns(name)) - 1e-9;
            match windows
                .iter_mut()
                .find(|known| (known.length_s - window_s).abs() < 1e-9 && known.is_long == is_long)
            {
                Some(known) => add(&mut known.names, name),
                None => windows.push(Window { length_s: window_s, is_long, names: vec![name] }),
            }
        }
        if let Some(inner_s) = series.inner_s {
            match within.iter_mut().find(|(known_s, _)| (*known_s - inner_s).abs() < 1e-9) {
                Some((_, names)) => add(names, name),
                None => within.push((inner_s, vec![name])),
            }
        }
        if series.is_clamped {
            add(&mut clamped, name);
        }
    }
    let mut remarks: Vec<String> = windows.iter().map(Window::remark).collect();
    for (inner_s, names) in within {
        let (names, length) = (abridged_list(&names, NAMED), units::duration_f64(inner_s * 1e9));
        remarks
            .push(format!("{names}: min and max are rates over {length}, within the windows that were sent"));
    }
    if !clamped.is_empty() {
        remarks.push(format!(
            "{}: the kernel counted more CPU time than the node's CPUs can provide; max is limited to their capacity",
            abridged_list(&clamped, NAMED)
        ));
    }
    remarks
}

struct Window<'a> {
    length_s: f64,
    /// Long enough for the counters.
    is_long: bool,
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
            let series = SeriesReport { periods, period: Some("2s".to_owned()), ..SeriesReport::default() };
            super::periods(&series, PERIODS)
        };
        assert_eq!((of(Vec::new()), of(vec![used("1s", 9.0)])), ("2s".to_owned(), "1s".to_owned()));
        let several = vec![used("1s", 3000.0), used("10ms", 60.0), used("5s", 1.5), used("1min", 2.0)];
        assert_eq!(of(several), "1s for 50 min, 10ms for 1 min, 5s for 1.50 s, 1 other");
    }
}
