//! Draws the view. The selected row is visible in a terminal of any size.

use polymeter_proto::control::PlanLine;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::Paragraph;

use super::state::{Mode, Progress, Row, View, name};
use crate::control_view::plan;
use crate::output::layout::{left_aligned, right_aligned, shortened, width, without_middle};
use crate::output::printable::{printable, printable_name};
use crate::output::{chart, units};

/// The widths of a value and of a period, and the minimum width of a name.
const VALUE: usize = 11;
const PERIOD: usize = 6;
const NAME_MIN: usize = 12;
/// The width of a reason, and the minimum and maximum widths of a chart, if there is room.
const REASON: usize = 16;
const CHART_MIN: usize = 10;
const CHART_MAX: usize = 60;

/// The additional width that is required for a reason or a chart in the rows.
const SPARE: usize = 12;

/// The minimum height for a chart of the selected row below the table.
const CHART_LINES: u16 = 12;

/// The help page.
const HELP: [&str; 10] = [
    "up, down, j, k   select a metric",
    "+                sample it at a shorter period, for 10 min",
    "-                sample it at a longer period, unless another lease needs the shorter one",
    "r                end all your changes for this job",
    "/                show only names that contain a text; Enter, Esc",
    "?                this help",
    "q, Ctrl-C        quit",
    "",
    "A counter is shown as a rate per second.",
    "The charts show the last minute.",
];

/// The widths of the table's columns; 0 for columns that are left out.
#[derive(Debug, Clone, Copy)]
struct Widths {
    name: usize,
    reason: usize,
    chart: usize,
}

impl Widths {
    /// Fits the table into `columns`.
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

impl View {
    /// Draws the whole view.
    pub(in crate::commands::watch) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let columns = usize::from(area.width);
        let has_chart = area.height >= CHART_LINES;
        let heights = [
            Constraint::Length(1),
            Constraint::Length(u16::from(area.height >= 6)),
            Constraint::Min(1),
            Constraint::Length(u16::from(area.height >= 5)),
            Constraint::Length(u16::from(has_chart)),
            Constraint::Length(u16::from(area.height >= 3)),
        ];
        let [title, completeness, table, detail, chart, foot] = Layout::vertical(heights).areas(area);
        let reversed = Style::new().add_modifier(Modifier::REVERSED);
        frame.render_widget(Paragraph::new(fit(&self.title(), "  ", columns)).style(reversed), title);
        frame.render_widget(Paragraph::new(fit(&self.completeness(), ", ", columns)), completeness);
        let rows = self.rows();
        if self.mode == Mode::Help {
            frame.render_widget(Paragraph::new(Text::from_iter(HELP)), table);
        } else {
            frame.render_widget(Paragraph::new(self.table(&rows, table)), table);
        }
        if let Some(row) = self.position(&rows).and_then(|at| rows.get(at)) {
            frame.render_widget(Paragraph::new(shortened(&self.detail(row), columns)), detail);
            let bars = row.series.map(|series| chart::bars(&series.columns(self.now_us, columns)));
            frame.render_widget(Paragraph::new(bars.unwrap_or_default()), chart);
        }
        frame.render_widget(Paragraph::new(self.foot(columns)).style(reversed), foot);
    }

    /// The parts of the title line.
    fn title(&self) -> Vec<String> {
        let job =
            self.job.as_ref().map_or_else(|| "node".to_owned(), |job| format!("job {}", printable_name(job)));
        let state = self.has_ended.then(|| "ended".to_owned());
        let cost = self.progress.map(|Progress { cpu_percent, .. }| format!("agent {cpu_percent:.2} % CPU"));
        let time = self.progress.map(|Progress { seconds, .. }| format!("watched {seconds:.0} s"));
        [Some(job), state, cost, time].into_iter().flatten().collect()
    }

    /// The parts of the line about completeness.
    fn completeness(&self) -> Vec<String> {
        let Some(Progress { tally, .. }) = self.progress else {
            return vec!["waiting for samples".to_owned()];
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

    /// The head of the table, and the page of rows that contains the selected one.
    fn table(&self, rows: &[Row<'_>], area: Rect) -> Text<'static> {
        let longest = rows.iter().map(|row| width(&name(&row.key))).max().unwrap_or(0);
        let widths = Widths::fit(usize::from(area.width), longest);
        let has_head = area.height > 1;
        let page = usize::from(area.height).saturating_sub(usize::from(has_head)).max(1);
        let selected = self.position(rows).unwrap_or(0);
        let head = cells(widths, ["METRIC", "NOW", "PERIOD", "REASON", "LAST MINUTE"]);
        let head = Line::styled(format!("  {head}"), Style::new().add_modifier(Modifier::BOLD));
        let first = (selected / page * page).min(rows.len().saturating_sub(page));
        let listed = rows.iter().enumerate().skip(first).take(page);
        let lines = listed.map(|(at, row)| {
            let line = self.row(row, widths);
            if at == selected {
                Line::styled(format!("> {line}"), Style::new().add_modifier(Modifier::BOLD))
            } else {
                Line::raw(format!("  {line}"))
            }
        });
        let empty = rows.is_empty().then(|| Line::raw("  no sampled metric matches"));
        Text::from_iter(has_head.then_some(head).into_iter().chain(empty).chain(lines))
    }

    /// The line of a row.
    fn row(&self, row: &Row<'_>, widths: Widths) -> String {
        let now = row.series.map_or_else(|| "-".to_owned(), |series| series.current_text(&row.key.0));
        let bars = row.series.map(|series| chart::bars(&series.columns(self.now_us, widths.chart)));
        let reason = row.plan.map(|line| reason(line, None)).unwrap_or_default();
        let period = printable(row.period().unwrap_or("-"));
        cells(widths, [&name(&row.key), &printable(&now), &period, &reason, &bars.unwrap_or_default()])
    }

    /// The full name and reason of the selected row.
    fn detail(&self, row: &Row<'_>) -> String {
        let reason =
            row.plan.map(|line| format!(": {}", reason(line, Some(self.now_us)))).unwrap_or_default();
        format!("{}{reason}", name(&row.key))
    }

    /// The last line: a message, or the keys.
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

/// Formats the reason for a period, with the time until the end of a lease if `now_us` is given.
fn reason(line: &PlanLine, now_us: Option<i64>) -> String {
    let ends = line.until_us.zip(now_us).map(|(until_us, now_us)| units::remaining(now_us, until_us));
    let ends = ends.map_or_else(String::new, |time| format!(", ends in {time}"));
    let longer = line.reason.as_ref().filter(|_| now_us.is_some());
    let longer = longer.map_or_else(String::new, |reason| format!("; {reason}"));
    printable(&format!("{}{ends}{longer}", plan::reason(line))).into_owned()
}

/// Lays out a line of the table.
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
