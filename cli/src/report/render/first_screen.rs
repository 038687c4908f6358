//! First screen of a report: the verdict, findings, meters, and facts about the job and its data. Pure.

use crate::output::layout::{left_aligned, shortened, wrapped};
use crate::output::printable::printable;
use crate::output::style::{Line, Style};
use crate::report::summary::{self, Level, Meter, headline};
use polymeter_analysis::advice::facts::Facts;
use polymeter_analysis::model::{Finding, Report, Severity};
use polymeter_proto::units;

/// Lines of the smallest terminal that shows the whole screen; it has 80 columns.
pub(crate) const LINES: usize = 24;

const LABEL: usize = 10;
const METER: usize = 20;

/// Kept intervals at most, on a screen with a limited number of lines.
const KEPT: usize = 1;

/// Triggers that fired at most, on a screen with a limited number of lines.
const FIRINGS: usize = 2;

/// Notes at most, on a screen with a limited number of lines.
const NOTES: usize = 2;

const TEXT_MIN: usize = 16;

/// Wraps lines if the number of columns is limited, and counts the findings that do not fit `lines_max`
/// lines.
pub(crate) fn lines(report: &Report, columns: Option<usize>, lines_max: usize) -> Vec<Line> {
    let columns = columns.unwrap_or(usize::MAX);
    let facts = Facts::of(report);
    let mut lines = verdict(report, columns);
    let kept_max = if lines_max == usize::MAX { usize::MAX } else { KEPT };
    for text in summary::kept(report, kept_max) {
        let text = printable(&text).into_owned();
        lines.extend(labelled("kept", Style::Plain, &[(Style::Bold, text)], columns));
    }
    lines.push(Line::default());
    let mut last = firings(report, columns, lines_max);
    last.push(Line::default());
    last.extend(summary::meters(report, &facts).iter().flat_map(|row| meter(row, columns)));
    if let Some(energy) = summary::energy(report) {
        last.extend(plain("energy", energy, columns));
    }
    last.push(Line::default());
    last.extend(job(report, columns, lines_max));
    last.extend(plain("data", summary::completeness(report, &facts), columns));
    let notes_max = if lines_max == usize::MAX { usize::MAX } else { NOTES };
    for note in report.notes.iter().take(notes_max) {
        last.extend(plain("note", note.clone(), columns));
    }
    // The last line of the terminal is left to the prompt.
    let room = lines_max.saturating_sub(lines.len() + last.len() + 1);
    lines.extend(findings(report, columns, room));
    lines.extend(last);
    lines
}

/// Triggers that fired; on a screen with a limited number of lines, one line for each of the latest ones.
pub(super) fn firings(report: &Report, columns: usize, lines_max: usize) -> Vec<Line> {
    let room = columns.saturating_sub(LABEL).max(TEXT_MIN);
    let is_limited = lines_max != usize::MAX;
    let mut texts = summary::firings(report, if is_limited { FIRINGS } else { usize::MAX });
    if is_limited {
        texts = texts.iter().map(|text| shortened(&printable(text), room)).collect();
    }
    let more = report.firings.len().saturating_sub(texts.len());
    if more > 0 {
        texts.push(format!("and {more} more: polymeter report --show firings"));
    }
    let mut lines = Vec::new();
    for (number, text) in texts.into_iter().enumerate() {
        let label = if number == 0 { "fired" } else { "" };
        lines.extend(plain(label, printable(&text).into_owned(), columns));
    }
    lines
}

pub(super) fn verdict(report: &Report, columns: usize) -> Vec<Line> {
    let lines = |style, text: &str| -> Vec<Line> {
        wrapped(text, columns).into_iter().map(|text| Line::of(style, text)).collect()
    };
    [lines(Style::Bold, &report.verdict.text), lines(Style::Plain, &headline(report))].concat()
}

/// Lines as far as the facts are known.
fn job(report: &Report, columns: usize, lines_max: usize) -> Vec<Line> {
    let run = report.submission.run.as_ref();
    let room = columns.saturating_sub(LABEL).max(TEXT_MIN);
    // A long command would leave no room for findings.
    let fitted = |text: String| if lines_max == usize::MAX { text } else { shortened(&text, room) };
    let environment = run.map(|run| run.assignments().join(" ")).filter(|text| !text.is_empty());
    let texts = [
        ("name", summary::names(report)),
        ("command", run.and_then(summary::command).map(fitted)),
        ("directory", run.and_then(summary::place).map(fitted)),
        ("variables", environment.map(fitted)),
        ("resources", Some(summary::resources(report))),
        ("time", Some(summary::times(report))),
    ];
    texts.into_iter().filter_map(|(label, text)| Some(plain(label, text?, columns))).flatten().collect()
}

fn plain(label: &str, text: String, columns: usize) -> Vec<Line> {
    labelled(label, Style::Plain, &[(Style::Plain, text)], columns)
}

fn labelled(label: &str, style: Style, paragraphs: &[(Style, String)], columns: usize) -> Vec<Line> {
    let room = columns.saturating_sub(LABEL).max(TEXT_MIN);
    let texts = paragraphs.iter().flat_map(|(style, text)| {
        let style = *style;
        wrapped(text, room).into_iter().map(move |text| (style, text))
    });
    texts
        .enumerate()
        .map(|(number, (text_style, text))| {
            let label = if number == 0 { label } else { "" };
            Line::of(style, left_aligned(label, LABEL)).with(text_style, text)
        })
        .collect()
}

const fn style(level: Level) -> Style {
    match level {
        Level::Plain => Style::Plain,
        Level::Good => Style::Good,
        Level::Warning => Style::Warning,
        Level::Critical => Style::Critical,
    }
}

/// Lines without a bar if the share is unknown.
fn meter(meter: &Meter, columns: usize) -> Vec<Line> {
    let label = Line::of(Style::Plain, left_aligned(meter.label, LABEL));
    let Some(share) = meter.share else { return plain(meter.label, meter.text.clone(), columns) };
    let before = LABEL + METER + 10;
    let mut texts = wrapped(&meter.text, columns.saturating_sub(before).max(TEXT_MIN)).into_iter();
    let full = filled(share);
    let first = label
        .with(style(meter.level), "█".repeat(full))
        .with(Style::Dim, "░".repeat(METER - full))
        .with(Style::Plain, format!(" {:>7}  ", summary::percent(share)))
        .with(Style::Plain, texts.next().unwrap_or_default());
    let others = texts.map(|text| Line::of(Style::Plain, format!("{:before$}{text}", "")));
    std::iter::once(first).chain(others).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the columns of a meter"
)]
fn filled(share: f64) -> usize {
    ((share.clamp(0.0, 1.0) * units::to_f64(METER as u64)).round() as usize).min(METER)
}

/// Lays out as many findings as fit `room` lines, and counts the others.
pub(super) fn findings(report: &Report, columns: usize, room: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for (number, finding) in report.findings.iter().enumerate() {
        let next = of_finding(finding, report, columns);
        let others = report.findings.len() - number;
        // A line is left for the number of the others.
        let reserve = usize::from(others > 1);
        if lines.len() + next.len() + reserve > room {
            let noun = if others == 1 { "finding" } else { "findings" };
            let text = format!("{others} more {noun}: polymeter report --show findings");
            lines.extend(labelled("", Style::Plain, &[(Style::Bold, text)], columns));
            return lines;
        }
        lines.extend(next);
    }
    if report.findings.is_empty() {
        let style = if report.advice_from_s.is_none() { Style::Good } else { Style::Plain };
        lines.extend(labelled("findings", Style::Plain, &[(style, report.no_findings())], columns));
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

#[cfg(test)]
mod tests {
    use polymeter_analysis::advice::Advice;
    use polymeter_analysis::model::{
        MeasuringCost, MemoryKind, NodeReport, Outcome, Resources, Submission, Usage,
    };
    use polymeter_proto::run::Run;

    use super::*;
    use crate::output::layout::width;
    use crate::output::style::painted;
    use crate::snapshot;

    fn node(number: u32, hour_s: f64) -> NodeReport {
        NodeReport {
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
        }
    }

    /// A job that used 65 % of one node and nothing of the others.
    fn report(nodes: u32) -> Report {
        let hour_s = 3600.0;
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
            by_node: (1..=nodes).map(|number| node(number, hour_s)).collect(),
            stored: 123_456,
            measuring: Some(MeasuringCost {
                cpu_s: 2.5,
                core_percent: Some(0.0347),
                nodes: u64::from(nodes),
                highest_node: Some("node0002".to_owned()),
                highest_core_percent: Some(0.05),
            }),
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
    fn what_is_not_known_is_left_out() {
        let mut report = Report { job: "7".to_owned(), wall_s: 0.05, ended: true, ..Report::default() };
        Advice::built_in().advise(&mut report);
        let text = screen(&report, 80);
        snapshot::check("report-screen-unknown", &text);
        for word in ["NaN", "inf", "unknown"] {
            assert!(!text.contains(word), "{text}");
        }
    }

    #[test]
    fn a_run_is_named_by_its_command() {
        let long = "x".repeat(3000);
        let command = ["mpirun", "-n", "2", "a b\u{1b}[2J", &long];
        let mut run = report(1);
        run.submission.run = Some(Run::of(
            command.iter().map(|text| text.as_bytes()),
            Some(b"/home/zoe"),
            Some(b"n1"),
            [("OMP_NUM_THREADS", b"4".to_vec())].into_iter(),
        ));
        let text = screen(&run, 80);
        assert!(text.lines().count() < LINES && text.lines().all(|line| width(line) <= 80), "{text}");
        for line in [
            r"command   mpirun -n 2 $'a b\x1b[2J' xxx",
            "directory /home/zoe on n1",
            "variables OMP_NUM_THREADS=4",
        ] {
            assert!(text.contains(line), "no {line} in {text}");
        }
        assert!(painted(&lines(&run, None, usize::MAX), false).contains(&long));
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
