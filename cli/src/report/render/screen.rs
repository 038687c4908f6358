//! The first screen of a report: the job, meters, findings, and the completeness of the data. Pure.

use polymeter_analysis::advice::facts::Facts;
use polymeter_analysis::model::{Finding, MemoryKind, Report, Severity};
use polymeter_proto::units;
use polymeter_service::clock::rfc3339;

use super::headline::headline;
use crate::output::layout::{left_aligned, shortened, wrapped};
use crate::output::style::{Line, Style};

/// The lines of the smallest terminal that shows the whole screen; it has 80 columns.
pub(crate) const LINES: usize = 24;

/// The columns of a label, and of a meter.
const LABEL: usize = 10;
const METER: usize = 20;

/// The maximum number of notes.
const NOTES: usize = 2;

/// The minimum width of wrapped text.
const TEXT_MIN: usize = 16;

/// The share of the CPU time or of a GPU below which a meter is a warning, and below which it is critical: those of the built-in
/// rules `moderate-cpu-efficiency` and `low-cpu-efficiency`.
const LOW: (f64, f64) = (0.8, 0.65);

/// The share of a limit above which a meter is a warning, and above which it is critical.
const HIGH: (f64, f64) = (0.9, 0.95);

/// Lays out the first screen. Lines are wrapped if the number of columns is limited. Findings that do not fit `lines_max` lines
/// are counted.
pub(crate) fn lines(report: &Report, columns: Option<usize>, lines_max: usize) -> Vec<Line> {
    let columns = columns.unwrap_or(usize::MAX);
    let facts = Facts::of(report);
    let mut lines = job(report, columns);
    lines.push(Line::default());
    lines.extend(meters(report, &facts, columns));
    lines.push(Line::default());
    let last = completeness(report, &facts, columns);
    // The last line of the terminal is left to the prompt.
    let room = lines_max.saturating_sub(lines.len() + last.len() + 2);
    lines.extend(findings(report, columns, room));
    lines.push(Line::default());
    lines.extend(last);
    lines
}

/// Describes the job: its name, owner, resources, times and end.
fn job(report: &Report, columns: usize) -> Vec<Line> {
    let submission = &report.submission;
    let unknown = || "unknown".to_owned();
    let mut lines = Vec::new();
    for (number, text) in wrapped(headline(report).trim_end(), columns).into_iter().enumerate() {
        lines.push(Line::of(if number == 0 { Style::Bold } else { Style::Plain }, text));
    }
    let display = submission.display_id.as_ref().filter(|id| **id != report.job);
    let display = display.map_or_else(String::new, |id| format!(", shown as {id}"));
    let text = |value: &Option<String>| value.clone().unwrap_or_else(unknown);
    let names = format!(
        "{}{display}, account {}, queue {}",
        text(&submission.name),
        text(&submission.account),
        text(&submission.queue)
    );
    let count =
        |number: u64, one: &str| if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") };
    let nodes = report.nodes.len() as u64;
    let cores = match submission.cores {
        None => "unknown cores".to_owned(),
        Some(cores) if nodes == 1 => count(cores, "core"),
        Some(cores) if nodes > 0 && cores % nodes == 0 => format!("{} each", count(cores / nodes, "core")),
        Some(cores) => format!("{} in all", count(cores, "core")),
    };
    let gpus = submission.gpus.map_or_else(|| "unknown GPUs".to_owned(), |gpus| count(gpus, "GPU"));
    let resources = format!("{} with {cores}, {gpus}", count(nodes, "node"));
    let end = report.ended_us.map_or_else(|| "now".to_owned(), time);
    let limit = submission.time_limit_s.map(units::to_f64).map_or_else(unknown, units::elapsed);
    let times =
        format!("{} to {end} UTC, {} of {limit}", time(report.started_us), units::elapsed(report.wall_s));
    for (label, text) in [("name", names), ("resources", resources), ("time", times)] {
        lines.extend(labelled(label, Style::Plain, &[(Style::Plain, text)], columns));
    }
    lines
}

/// Formats a time in UTC, to the second.
fn time(time_us: i64) -> String {
    let text = rfc3339(time_us);
    text.get(..19).unwrap_or(&text).replace('T', " ")
}

/// Lays out a label and paragraphs beside it.
fn labelled(label: &str, style: Style, paragraphs: &[(Style, String)], columns: usize) -> Vec<Line> {
    let room = columns.saturating_sub(LABEL).max(TEXT_MIN);
    let texts = paragraphs.iter().flat_map(|(style, text)| {
        let style = *style;
        wrapped(text, room).into_iter().map(move |text| (style, text))
    });
    let line = |(number, (text_style, text)): (usize, (Style, String))| {
        let label = if number == 0 { label } else { "" };
        Line::of(style, left_aligned(label, LABEL)).with(text_style, text)
    };
    texts.enumerate().map(line).collect()
}

/// A label, a share, the style of the share, and a text.
type Row = (&'static str, Option<f64>, fn(f64) -> Style, String);

/// Draws the meters of CPU, memory, GPU and time.
fn meters(report: &Report, facts: &Facts, columns: usize) -> Vec<Line> {
    let number = |name: &str| facts.number(name);
    let unknown = || "unknown".to_owned();
    let cores = |cores: f64| if cores < 10.0 { format!("{cores:.2}") } else { format!("{cores:.1}") };
    let bytes = |bytes: f64| units::value("bytes", bytes);
    let cpu = match (number("cores_used"), number("cores")) {
        (Some(used), Some(all)) => format!("{} of {all:.0} cores in use on average", cores(used)),
        (Some(used), None) => format!("{} of unknown cores in use on average", cores(used)),
        (None, _) => unknown(),
    };
    let memory = number("memory_used").map_or_else(unknown, |used| {
        let limit = number("memory_request").or(number("memory_limit")).map_or_else(unknown, bytes);
        let node = if report.nodes.len() > 1 { " a node" } else { "" };
        let kind = report.by_node.iter().find_map(|node| node.used.memory_kind);
        format!("{} of {limit}{node}, {}", bytes(used), kind.map_or("", MemoryKind::short))
    });
    let memory_share = number("memory_request_used").or(number("memory_used_share"));
    let gpu = number("gpu_utilization").map_or_else(
        || if report.submission.gpus == Some(0) { "none".to_owned() } else { unknown() },
        |_| format!("mean utilization of {:.0} GPUs", number("gpus_sampled").unwrap_or_default()),
    );
    let elapsed = number("elapsed").map_or_else(unknown, units::elapsed);
    let limit = number("time_limit").map_or_else(unknown, units::elapsed);
    let rows: [Row; 4] = [
        ("CPU", number("cpu_efficiency"), low, cpu),
        ("memory", memory_share, high, memory),
        ("GPU", number("gpu_utilization"), low, gpu),
        ("time", number("time_limit_used"), plain, format!("{elapsed} of {limit}")),
    ];
    rows.into_iter().map(|(label, share, style, text)| meter(label, share, style, &text, columns)).collect()
}

fn low(share: f64) -> Style {
    if share < LOW.1 {
        Style::Critical
    } else if share < LOW.0 {
        Style::Warning
    } else {
        Style::Good
    }
}

fn high(share: f64) -> Style {
    if share > HIGH.1 {
        Style::Critical
    } else if share > HIGH.0 {
        Style::Warning
    } else {
        Style::Good
    }
}

const fn plain(_: f64) -> Style {
    Style::Plain
}

/// Draws a meter; without a bar if the share is unknown.
fn meter(label: &str, share: Option<f64>, style: fn(f64) -> Style, text: &str, columns: usize) -> Line {
    let label = Line::of(Style::Plain, left_aligned(label, LABEL));
    let before = if share.is_some() { LABEL + METER + 10 } else { LABEL };
    let text = shortened(text, columns.saturating_sub(before).max(TEXT_MIN));
    match share {
        None => label.with(Style::Plain, text),
        Some(share) => {
            let full = filled(share);
            let bar = "█".repeat(full);
            let rest = "░".repeat(METER - full);
            let percent = share * 100.0;
            let digits = usize::from(percent < 9.95);
            let percent = format!(" {percent:>5.digits$} %  ");
            label
                .with(style(share), bar)
                .with(Style::Dim, rest)
                .with(Style::Plain, percent)
                .with(Style::Plain, text)
        }
    }
}

/// Returns the full columns of a meter.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the columns of a meter"
)]
fn filled(share: f64) -> usize {
    ((share.clamp(0.0, 1.0) * units::to_f64(METER as u64)).round() as usize).min(METER)
}

/// Lays out as many findings as fit `room` lines, and the number of the others.
pub(super) fn findings(report: &Report, columns: usize, room: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for (number, finding) in report.findings.iter().enumerate() {
        let next = of_finding(finding, report, columns);
        let others = report.findings.len() - number;
        // A line is left for the number of the others.
        let reserve = usize::from(others > 1);
        if lines.len() + next.len() + reserve > room {
            let noun = if others == 1 { "finding" } else { "findings" };
            let text = format!("{others} more {noun}: polymeter report --findings");
            lines.extend(labelled("", Style::Plain, &[(Style::Bold, text)], columns));
            return lines;
        }
        lines.extend(next);
    }
    if report.findings.is_empty() {
        let text = if report.series.is_empty() { "none: no samples" } else { "none" };
        lines.extend(labelled("findings", Style::Plain, &[(Style::Good, text.to_owned())], columns));
    }
    lines
}

fn of_finding(finding: &Finding, report: &Report, columns: usize) -> Vec<Line> {
    let style = match finding.severity {
        Severity::Critical => Style::Critical,
        Severity::Warning => Style::Warning,
        Severity::Note => Style::Bold,
    };
    let mut paragraphs =
        vec![(Style::Bold, finding.sentence.clone()), (Style::Plain, finding.evidence.clone())];
    let remedy = finding.remedy(report.scheduler);
    paragraphs.extend(remedy.map(|remedy| (Style::Plain, format!("next time: {remedy}"))));
    labelled(finding.severity.name(), style, &paragraphs, columns)
}

/// Describes the completeness of the data and the cost of measuring.
fn completeness(report: &Report, facts: &Facts, columns: usize) -> Vec<Line> {
    let stored = units::number(units::to_f64(report.stored));
    let lost = facts.number("lost_share").map(|lost| (lost * 1e4).round() / 100.0);
    let lost =
        lost.map_or_else(|| "losses unknown".to_owned(), |lost| format!("{lost} % of the due ones lost"));
    let gap = facts.number("gap_share").filter(|gap| *gap > 0.0);
    let gap = gap.map_or_else(String::new, |gap| {
        format!(", no contact for {} of the time", units::value("percent", (gap * 1e4).round() / 100.0))
    });
    let cost = report.measuring.as_ref().map_or_else(
        || "cost of measuring: unknown".to_owned(),
        |cost| format!("measuring used {:.2} % of a core", cost.core_percent),
    );
    let text = format!("{stored} samples stored, {lost}{gap}; {cost}");
    let mut lines = labelled("data", Style::Plain, &[(Style::Plain, text)], columns);
    for note in report.notes.iter().take(NOTES) {
        lines.extend(labelled("note", Style::Plain, &[(Style::Plain, note.clone())], columns));
    }
    lines
}

#[cfg(test)]
mod tests {
    use polymeter_analysis::advice::Advice;
    use polymeter_analysis::model::{NodeReport, Outcome, Resources, Submission, Usage};

    use super::*;
    use crate::output::layout::width;
    use crate::output::style::painted;
    use crate::snapshot;

    /// A job that used 65 % of one node and nothing of the others.
    fn report(nodes: u32) -> Report {
        let hour_s = 3600.0;
        let node = |number: u32| NodeReport {
            node: format!("node{number:04}"),
            cpus: Some(64),
            samples: 1000,
            used: Resources {
                cpu_s: Some(if number == 1 { 0.65 * 32.0 * hour_s } else { 0.0 }),
                memory_bytes: Some(if number == 1 { 6.5e9 } else { 1e8 }),
                memory_kind: Some(MemoryKind::AnonymousAndShared),
                ..Resources::default()
            },
            ..NodeReport::default()
        };
        let mut report = Report {
            job: "4711".to_owned(),
            submission: Submission {
                name: Some("ocean\u{1b}[2J".to_owned()),
                display_id: Some("4009_1".to_owned()),
                account: Some("climate".to_owned()),
                queue: Some("normal".to_owned()),
                cores: Some(u64::from(nodes) * 32),
                gpus: Some(0),
                time_limit_s: Some(86_400),
                memory_bytes: Some(256 << 30),
                ..Submission::default()
            },
            nodes: (1..=nodes).map(|number| format!("node{number:04}")).collect(),
            owner: Some("zoe".to_owned()),
            started_us: 1_795_348_800_000_000,
            ended_us: Some(1_795_352_400_000_000),
            wall_s: hour_s,
            ended: true,
            outcome: Outcome { state: Some("COMPLETED".to_owned()), exit_code: Some(0), exit_signal: None },
            used: Usage { cpu_s: Some(0.65 * 32.0 * hour_s), ..Usage::default() },
            by_node: (1..=nodes).map(node).collect(),
            stored: 123_456,
            ..Report::default()
        };
        (report.ledger.due, report.ledger.taken, report.ledger.missed) = (123_460, 123_456, 4);
        Advice::built_in().advise(&mut report);
        report
    }

    fn screen(report: &Report, columns: usize) -> String {
        painted(&lines(report, Some(columns), LINES), false)
    }

    #[test]
    fn the_first_screen_fits_a_small_terminal() {
        for nodes in [1, 2, 1000] {
            for columns in [80, 120] {
                let text = screen(&report(nodes), columns);
                assert!(text.lines().count() < LINES, "{} lines: {text}", text.lines().count());
                assert!(text.lines().all(|line| width(line) <= columns), "{text}");
            }
        }
        snapshot::check("report-screen", &screen(&report(2), 80));
        let many = screen(&report(1000), 80);
        assert!(many.contains("and 992 others") || many.contains("992 more"), "{many}");
    }

    #[test]
    fn what_is_not_known_is_called_unknown() {
        let text =
            screen(&Report { job: "7".to_owned(), wall_s: 0.05, ended: true, ..Report::default() }, 80);
        snapshot::check("report-screen-unknown", &text);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn findings_without_room_are_counted() {
        let report = report(2);
        let shown = |room: usize| painted(&findings(&report, 80, room), false);
        assert!(report.findings.len() > 1);
        assert!(shown(1).contains(&format!("{} more findings: ", report.findings.len())), "{}", shown(1));
        assert!(!shown(usize::MAX).contains(" more finding"));
        for room in 1..20 {
            assert!(findings(&report, 80, room).len() <= room, "{}", shown(room));
        }
    }

    #[test]
    fn colours_follow_the_severity() {
        let text = painted(&lines(&report(2), Some(80), LINES), true);
        assert!(text.contains("\u{1b}[1;31mcritical"), "{text}");
        assert!(text.contains("ocean\\u{1b}[2J"), "text of the job has no sequences: {text}");
    }
}
