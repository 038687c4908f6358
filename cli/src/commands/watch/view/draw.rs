//! How the view looks: whatever the size of the terminal, the selected row is there, and what fits beside it.

use polymeter_agent::control::PlanLine;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::Paragraph;

use super::{Mode, Progress, Row, View, shown};
use crate::control::left_between;
use crate::printable::{printable, printable_name};
use crate::report::chart;
use crate::report::units;
use crate::terminal::{shortened, without_middle};

/// Columns of a value and of a period, and the least of a name.
const VALUE: usize = 11;
const PERIOD: usize = 6;
const NAME_LEAST: usize = 12;
/// Columns of a cause, and the least and the most of a chart, where there is room for them.
const CAUSE: usize = 16;
const CHART: (usize, usize) = (10, 60);

/// From this height on the selected row has a chart of its own below, where the rows have none.
const CHART_LINES: u16 = 12;

const HELP: [&str; 10] = [
    "up, down, j, k   choose a metric",
    "+                sample it more often, for 10 min",
    "-                sample it less often; never less than others want",
    "r                end all your changes of this job",
    "/                show only names with what you type; Enter, Esc",
    "?                this page",
    "q, Ctrl-C        end",
    "",
    "A counter is shown by what it grows per second.",
    "The charts show the last minute.",
];

/// Columns of the table; 0 for what there is no room for.
#[derive(Debug, Clone, Copy)]
struct Widths {
    name: usize,
    cause: usize,
    chart: usize,
}

impl Widths {
    /// What fits into so many columns.
    fn fit(columns: usize, longest_name: usize) -> Self {
        // A mark of the selection, and a space between each two.
        let fixed = 2 + VALUE + 1 + PERIOD + 1;
        let left = columns.saturating_sub(fixed);
        let name = longest_name.clamp(NAME_LEAST, left.max(NAME_LEAST));
        let cause = if left >= NAME_LEAST + CAUSE + CHART.0 + 12 { CAUSE } else { 0 };
        let chart = if left >= NAME_LEAST + CHART.0 + 12 { CHART.0 } else { 0 };
        let others = cause + usize::from(cause > 0) + chart + usize::from(chart > 0);
        let name = name.min(left.saturating_sub(others)).max(NAME_LEAST.min(left));
        let rest = left.saturating_sub(name + others);
        let chart = if chart > 0 { (chart + rest).min(CHART.1) } else { 0 };
        Self { name, cause, chart }
    }
}

impl View {
    /// Draws everything.
    pub(in crate::watch) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let columns = usize::from(area.width);
        let own_chart = area.height >= CHART_LINES;
        let heights = [
            Constraint::Length(1),
            Constraint::Length(u16::from(area.height >= 6)),
            Constraint::Min(1),
            Constraint::Length(u16::from(area.height >= 5)),
            Constraint::Length(u16::from(own_chart)),
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

    fn title(&self) -> Vec<String> {
        let job =
            self.job.as_ref().map_or_else(|| "node".to_owned(), |job| format!("job {}", printable_name(job)));
        let state = self.has_ended.then(|| "ended".to_owned());
        let cost = self.progress.map(|Progress { cpu_percent, .. }| format!("agent {cpu_percent:.2} % CPU"));
        let since = self.progress.map(|Progress { seconds, .. }| format!("watched {seconds:.0} s"));
        [Some(job), state, cost, since].into_iter().flatten().collect()
    }

    fn completeness(&self) -> Vec<String> {
        let Some(Progress { tally, .. }) = self.progress else {
            return vec!["waiting for samples".to_owned()];
        };
        // What a source does not have is no sample that could be taken.
        let takeable = tally.due.saturating_sub(tally.absent);
        let share =
            if takeable > 0 { 100.0 * units::to_f64(tally.taken) / units::to_f64(takeable) } else { 100.0 };
        let mut parts = vec![format!("{share:.2} % of {takeable} taken")];
        let losses = [("missed", tally.missed), ("dropped", tally.dropped), ("late", tally.late)];
        parts.extend(losses.map(|(word, count)| format!("{count} {word}")));
        if self.passed_by > 0 {
            parts.insert(1, format!("{} not shown", self.passed_by));
        }
        parts
    }

    /// The head and the page of rows on which the selected one is.
    fn table(&self, rows: &[Row<'_>], area: Rect) -> Text<'static> {
        let longest = rows.iter().map(|row| shown(&row.key).chars().count()).max().unwrap_or(0);
        let widths = Widths::fit(usize::from(area.width), longest);
        let has_head = area.height > 1;
        let page = usize::from(area.height).saturating_sub(usize::from(has_head)).max(1);
        let selected = self.position(rows).unwrap_or(0);
        let head = cells(widths, ["METRIC", "NOW", "PERIOD", "BECAUSE OF", "THE LAST MINUTE"]);
        let head = Line::styled(format!("  {head}"), Style::new().add_modifier(Modifier::BOLD));
        let first = (selected / page * page).min(rows.len().saturating_sub(page));
        let shown = rows.iter().enumerate().skip(first).take(page);
        let lines = shown.map(|(at, row)| {
            let line = self.row(row, widths);
            if at == selected {
                Line::styled(format!("> {line}"), Style::new().add_modifier(Modifier::BOLD))
            } else {
                Line::raw(format!("  {line}"))
            }
        });
        let nothing = rows.is_empty().then(|| Line::raw("  nothing is sampled that is chosen here"));
        Text::from_iter(has_head.then_some(head).into_iter().chain(nothing).chain(lines))
    }

    fn row(&self, row: &Row<'_>, widths: Widths) -> String {
        let now = row.series.map_or_else(|| "-".to_owned(), |series| series.now_text(&row.key.0));
        let bars = row.series.map(|series| chart::bars(&series.columns(self.now_us, widths.chart)));
        let because = row.plan.map(|line| cause(line, None)).unwrap_or_default();
        let period = printable(row.period().unwrap_or("-"));
        cells(widths, [&shown(&row.key), &printable(&now), &period, &because, &bars.unwrap_or_default()])
    }

    /// All about the selected row that may have been too long for it.
    fn detail(&self, row: &Row<'_>) -> String {
        let because =
            row.plan.map(|line| format!(": {}", cause(line, Some(self.now_us)))).unwrap_or_default();
        format!("{}{because}", shown(&row.key))
    }

    fn foot(&self, columns: usize) -> String {
        match self.mode {
            Mode::Filter => format!("/{}_", self.filter),
            Mode::Help => "any key: back".to_owned(),
            Mode::Rows if self.asked.is_some() => "asking the agent ...".to_owned(),
            Mode::Rows if !self.message.is_empty() => shortened(&printable(&self.message), columns),
            Mode::Rows => {
                let keys = ["? help", "q end", "+ - rate", "r reset", "/ filter", "up down choose"];
                let mut parts = keys.map(str::to_owned).to_vec();
                if !self.filter.is_empty() {
                    parts.insert(0, format!("only `{}`", self.filter));
                }
                fit(&parts, "  ", columns)
            }
        }
    }
}

/// Because of whom, and where the time is known, until when.
fn cause(line: &PlanLine, now_us: Option<i64>) -> String {
    let by = line.by.as_ref().map_or_else(String::new, |by| format!(" of {by}"));
    let ends = line.until_us.zip(now_us).map(|(until_us, now_us)| left_between(now_us, until_us));
    let ends = ends.map_or_else(String::new, |left| format!(", ends in {left}"));
    let asked = line.asked.as_ref().filter(|_| now_us.is_some());
    let asked = asked.map_or_else(String::new, |asked| format!(", stretched from {asked}"));
    printable(&format!("{}{by}{ends}{asked}", line.cause)).into_owned()
}

/// A line of the table.
fn cells(widths: Widths, [name, now, period, cause, chart]: [&str; 5]) -> String {
    let Widths { name: name_width, cause: cause_width, chart: chart_width } = widths;
    let (name, now, period) =
        (without_middle(name, name_width), shortened(now, VALUE), shortened(period, PERIOD));
    let mut line = format!("{name:name_width$} {now:>VALUE$} {period:>PERIOD$}");
    if cause_width > 0 {
        line.push_str(&format!(" {:cause_width$}", shortened(cause, cause_width)));
    }
    if chart_width > 0 {
        line.push_str(&format!(" {}", shortened(chart, chart_width)));
    }
    line
}

/// As many of the parts as fit, from the first on.
fn fit(parts: &[String], between: &str, columns: usize) -> String {
    let mut line = String::new();
    for part in parts {
        let wanted = if line.is_empty() { part.clone() } else { format!("{line}{between}{part}") };
        if wanted.chars().count() > columns && !line.is_empty() {
            break;
        }
        line = wanted;
    }
    shortened(&line, columns)
}
