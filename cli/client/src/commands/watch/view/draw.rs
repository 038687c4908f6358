//! Lines of the view. The selected row is among them in a terminal of any size.

use crossterm::style::{Color, ContentStyle, StyledContent, Stylize};
use polymeter_proto::control::PlanLine;

use super::recent_series::RecentSeries;
use super::state::{Mode, Progress, Row, View, name};
use crate::control_view::plan;
use crate::output::layout::{head, left_aligned, right_aligned, shortened, width, without_middle, wrapped};
use crate::output::printable::{printable, printable_name};
use crate::output::table::{elapsed, figure};
use crate::output::{chart, units};

/// Widths; that of a name is a minimum.
const VALUE: usize = 11;
const PERIOD: usize = 6;
const NAME_MIN: usize = 12;
/// Widths, if there is room; those of a chart are its bounds.
const REASON: usize = 16;
const CHART_MIN: usize = 10;
const CHART_MAX: usize = 60;

/// Required beyond a reason or a chart in the rows.
const SPARE: usize = 12;

/// Minimum height for a chart below the table.
const CHART_LINES: usize = 12;

/// Limit of memory above which there is none: cgroup version 1 has a number near 2^63 instead.
const MEMORY_LIMIT_MAX: f64 = 4.6e18;

const KEYS: usize = 17;

const HELP: [(&str, &str); 7] = [
    ("up, down, j, k", "select a metric"),
    ("+", "sample it at a shorter period, for 10 min"),
    ("-", "sample it at a longer period, unless another lease needs the shorter one"),
    ("r", "end all your changes for this job"),
    ("/", "show only names that contain a text; Enter, Esc"),
    ("?", "this help"),
    ("q, Ctrl-C", "quit"),
];

/// 0 for columns that are left out.
#[derive(Debug, Clone, Copy)]
struct Widths {
    name: usize,
    reason: usize,
    chart: usize,
}

impl Widths {
    fn fit(columns: usize, longest_name: usize) -> Self {
        // The mark of the selected row, and the blanks between columns.
        let fixed = 2 + VALUE + 1 + PERIOD + 1;
        let left = columns.saturating_sub(fixed);
        let name = longest_name.clamp(NAME_MIN, left.max(NAME_MIN));
        let reason = if left >= NAME_MIN + REASON + CHART_MIN + SPARE { REASON } else { 0 };
        let chart = if left >= NAME_MIN + CHART_MIN + SPARE { CHART_MIN } else { 0 };
        let others = reason + usize::from(reason > 0) + chart + usize::from(chart > 0);
        let name = name.min(left.saturating_sub(others)).max(NAME_MIN.min(left));
        let rest = left.saturating_sub(name + others);
        let chart = if chart > 0 { (chart + rest).min(CHART_MAX) } else { 0 };
        Self { name, reason, chart }
    }
}

pub(in crate::commands::watch) type ScreenLine = StyledContent<String>;

impl View {
    /// Draws at most `height` lines of at most `columns`, from the top of the screen.
    pub(in crate::commands::watch) fn lines(&self, columns: usize, height: usize) -> Vec<ScreenLine> {
        let plain = ContentStyle::new();
        let bar = |text: String| plain.reverse().apply(left_aligned(&text, columns));
        let (has_chart, has_detail) = (height >= CHART_LINES, height >= 5);
        let (has_completeness, has_foot, has_title) = (height >= 6, height >= 3, height >= 2);
        let others = [has_chart, has_detail, has_completeness, has_foot, has_title];
        let table_height = height - others.into_iter().filter(|is_shown| *is_shown).count();
        let mut lines = Vec::with_capacity(height);
        if has_title {
            lines.push(bar(fit(&self.title(), "  ", columns)));
        }
        if has_completeness {
            let warning = self.coloured(Color::Yellow, self.has_losses());
            lines.push(warning.apply(fit(&self.completeness(), ", ", columns)));
        }
        let rows = self.rows();
        let mut table = if self.mode == Mode::Help {
            help(columns).into_iter().map(|line| plain.apply(line)).collect()
        } else {
            self.table(&rows, columns, table_height)
        };
        table.resize(table_height, plain.apply(String::new()));
        lines.append(&mut table);
        let selected = self.position(&rows).and_then(|at| rows.get(at));
        if has_detail {
            let detail = selected.map(|row| shortened(&self.detail(row), columns));
            lines.push(plain.apply(detail.unwrap_or_default()));
        }
        if has_chart {
            let series = selected.and_then(|row| Some((&row.key.0, row.series?)));
            let chart = series.map(|(metric, series)| self.chart_with_scale(metric, series, columns));
            lines.push(self.coloured(Color::Cyan, true).apply(chart.unwrap_or_default()));
        }
        if has_foot {
            lines.push(bar(self.foot(columns)));
        }
        lines
    }

    fn title(&self) -> Vec<String> {
        let job =
            self.job.as_ref().map_or_else(|| "node".to_owned(), |job| format!("job {}", printable_name(job)));
        let state = self.has_ended.then(|| "ended".to_owned());
        let since = self.facts.started_us.map(|started_us| elapsed(self.now_us - started_us));
        let cost = self.progress.map(|Progress { cpu_percent, .. }| format!("agent {cpu_percent:.2} % CPU"));
        let time = self.progress.map(|Progress { seconds, .. }| format!("watched {seconds:.0} s"));
        [Some(job), state, since, self.cores(), self.memory(), cost, time].into_iter().flatten().collect()
    }

    fn cores(&self) -> Option<String> {
        let used = units::number(self.job_total("cpu.usage")? / 1e9);
        Some(match self.facts.cores {
            None => units::counted(used, "core"),
            Some(cores) => format!("{used} of {}", units::counted(cores, "core")),
        })
    }

    fn memory(&self) -> Option<String> {
        let used = self.job_total("memory.current")?;
        let limit = self.job_total("memory.limit").filter(|limit| *limit < MEMORY_LIMIT_MAX);
        let of = limit.map_or_else(String::new, |limit| {
            format!(" of {} ({:.0} %)", units::value("bytes", limit), 100.0 * used / limit)
        });
        Some(format!("{}{of}", units::value("bytes", used)))
    }

    fn coloured(&self, colour: Color, is_wanted: bool) -> ContentStyle {
        let plain = ContentStyle::new();
        if is_wanted && self.has_colours { plain.with(colour) } else { plain }
    }

    fn has_losses(&self) -> bool {
        self.not_shown > 0
            || self.progress.is_some_and(|Progress { tally, .. }| tally.missed + tally.dropped > 0)
    }

    /// Chart within `columns`, and the values of its lowest and highest bars.
    fn chart_with_scale(&self, metric: &str, series: &RecentSeries, columns: usize) -> String {
        let mut scale = String::new();
        if let Some((base, max)) = chart::scale(&series.columns(self.now_us, columns)) {
            scale = format!(" {} to {}", series.text(metric, base), series.text(metric, max));
        }
        if columns < width(&scale) + CHART_MIN {
            scale.clear();
        }
        let bars = chart::bars(&series.columns(self.now_us, columns.saturating_sub(width(&scale))));
        format!("{bars}{scale}")
    }

    fn completeness(&self) -> Vec<String> {
        let Some(Progress { tally, .. }) = self.progress else {
            // Only the agent of a node reports progress.
            return vec![self.newest_us().map_or_else(
                || "waiting for samples".to_owned(),
                |newest_us| {
                    format!(
                        "stored samples of all nodes, the newest {} old",
                        units::remaining(newest_us, self.now_us)
                    )
                },
            )];
        };
        // Absent values do not exist in their source.
        let available = tally.due.saturating_sub(tally.absent);
        let percent =
            if available > 0 { 100.0 * units::to_f64(tally.taken) / units::to_f64(available) } else { 100.0 };
        let mut parts = vec![format!("{percent:.2} % of {available} taken")];
        let losses = [("missed", tally.missed), ("dropped", tally.dropped), ("late", tally.late)];
        parts.extend(losses.map(|(word, count)| format!("{count} {word}")));
        if self.not_shown > 0 {
            parts.insert(1, format!("{} not shown", self.not_shown));
        }
        parts
    }

    /// Head of the table, and the page of rows that contains the selected one, in `height` lines.
    fn table(&self, rows: &[Row<'_>], columns: usize, height: usize) -> Vec<ScreenLine> {
        let longest = rows.iter().map(|row| width(&name(&row.key))).max().unwrap_or(0);
        let widths = Widths::fit(columns, longest);
        let has_head = height > 1;
        let page = height.saturating_sub(usize::from(has_head)).max(1);
        let selected = self.position(rows).unwrap_or(0);
        let first = (selected / page * page).min(rows.len().saturating_sub(page));
        let mut lines = Vec::with_capacity(height);
        if has_head {
            let titles = cells(widths, ["METRIC", "NOW", "PERIOD", "REASON", "LAST MINUTE"]);
            lines.push(ContentStyle::new().bold().apply(head(&format!("  {titles}"), columns).to_owned()));
        }
        if rows.is_empty() {
            lines.push(ContentStyle::new().apply(shortened("  no sampled metric matches", columns)));
        }
        for (at, row) in rows.iter().enumerate().skip(first).take(page) {
            let (is_selected, line) = (at == selected, self.row(row, widths));
            let line = format!("{} {line}", if is_selected { '>' } else { ' ' });
            let style = self.coloured(Color::Green, row.plan.is_some_and(is_own_lease));
            lines.push(if is_selected { style.bold() } else { style }.apply(head(&line, columns).to_owned()));
        }
        lines
    }

    fn row(&self, row: &Row<'_>, widths: Widths) -> String {
        let now = figure(row.series, |series| series.current_text(&row.key.0));
        let bars = row.series.map(|series| chart::bars(&series.columns(self.now_us, widths.chart)));
        let reason = row.plan.map(|line| reason(line, None)).unwrap_or_default();
        let period = printable(row.period().unwrap_or("-"));
        cells(widths, [&name(&row.key), &printable(&now), &period, &reason, &bars.unwrap_or_default()])
    }

    /// Full name and reason of the selected row.
    fn detail(&self, row: &Row<'_>) -> String {
        let reason =
            row.plan.map(|line| format!(": {}", reason(line, Some(self.now_us)))).unwrap_or_default();
        format!("{}{reason}", name(&row.key))
    }

    fn foot(&self, columns: usize) -> String {
        match self.mode {
            Mode::Filter => format!("/{}_", self.filter),
            Mode::Help => "any key: back".to_owned(),
            Mode::Rows if self.pending.is_some() => "waiting for the agent ...".to_owned(),
            Mode::Rows if !self.message.is_empty() => shortened(&printable(&self.message), columns),
            Mode::Rows => {
                let keys = ["? help", "q quit", "+ - period", "r reset", "/ filter", "up down select"];
                let mut parts = keys.map(str::to_owned).to_vec();
                if !self.filter.is_empty() {
                    parts.insert(0, format!("filter `{}`", self.filter));
                }
                fit(&parts, "  ", columns)
            }
        }
    }
}

/// Reason for a period, with the time until the end of a lease if `now_us` is given.
fn reason(line: &PlanLine, now_us: Option<i64>) -> String {
    let ends = line.until_us.zip(now_us).map(|(until_us, now_us)| units::remaining(now_us, until_us));
    let ends = ends.map_or_else(String::new, |time| format!(", ends in {time}"));
    let longer = line.reason.as_ref().filter(|_| now_us.is_some());
    let longer = longer.map_or_else(String::new, |reason| format!("; {reason}"));
    printable(&format!("{}{ends}{longer}", plan::reason(line))).into_owned()
}

fn is_own_lease(line: &PlanLine) -> bool {
    let you = rustix::process::geteuid().as_raw();
    line.actor.as_ref().is_some_and(|actor| plan::is_user(actor, you))
}

/// Help page in lines of at most `columns`.
fn help(columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for (keys, text) in HELP {
        let wide = columns.saturating_sub(KEYS).max(1);
        for (number, part) in wrapped(text, wide).into_iter().enumerate() {
            let keys = if number == 0 { keys } else { "" };
            lines.push(shortened(&format!("{keys:KEYS$}{part}"), columns));
        }
    }
    lines.extend(
        ["", "A counter is shown as a rate per second.", "The charts show the last minute."]
            .map(str::to_owned),
    );
    lines
}

fn cells(widths: Widths, [name, now, period, reason, chart]: [&str; 5]) -> String {
    let mut cells = vec![
        left_aligned(&without_middle(name, widths.name), widths.name),
        right_aligned(&shortened(now, VALUE), VALUE),
        right_aligned(&shortened(period, PERIOD), PERIOD),
    ];
    if widths.reason > 0 {
        cells.push(left_aligned(&shortened(reason, widths.reason), widths.reason));
    }
    if widths.chart > 0 {
        cells.push(shortened(chart, widths.chart));
    }
    cells.join(" ")
}

/// Joins as many of the parts as fit.
fn fit(parts: &[String], between: &str, columns: usize) -> String {
    let mut line = String::new();
    for part in parts {
        let wanted = if line.is_empty() { part.clone() } else { format!("{line}{between}{part}") };
        if width(&wanted) > columns && !line.is_empty() {
            break;
        }
        line = wanted;
    }
    shortened(&line, columns)
}
