//! A report as people read it.

use super::chart::sparkline;
use super::gather::{LossReport, Report, SeriesReport, SourceReport};
use super::{history, units};
use crate::terminal;

/// Which series have a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Those that changed, and not too many; the same of what happened.
    Changing,
    /// All.
    All,
}

/// Lines of one kind before a note says how many more there are.
pub(super) const LINES: usize = 30;

/// The least and the greatest width of a chart.
const CHART: (usize, usize) = (10, 60);

/// The report as text, at most `bound` columns wide where there is a bound.
pub(crate) fn text(report: &Report, detail: Detail, bound: Option<usize>) -> String {
    let mut text = String::new();
    let owner = report.owner.as_ref().map_or_else(String::new, |owner| format!(" of {owner}"));
    let outcome = report.outcome.text().map_or_else(String::new, |outcome| format!(": {outcome}"));
    let state = match (report.ended, report.lost_nodes.as_slice()) {
        (false, _) => ", still running".to_owned(),
        (true, lost) if !lost.is_empty() && outcome.is_empty() => {
            format!(", whose end is unknown: the agent on {} was lost", lost.join(", "))
        }
        (true, _) => outcome,
    };
    text.push_str(&format!("job {}{owner} on {}{state}\n", report.job, report.nodes.join(", ")));
    text.push_str(&totals(report));
    text.push('\n');
    text.push_str(&series(report, detail, bound));
    text.push('\n');
    text.push_str(&history::text(report, detail, bound));
    text.push_str(&completeness(report));
    if detail == Detail::All {
        text.push('\n');
        text.push_str(&sources(report, bound));
    }
    text
}

fn totals(report: &Report) -> String {
    let used = &report.used;
    let mut rows = vec![("wall time", format!("{:.3} s", report.wall_s))];
    if let Some(cpu_s) = used.cpu_s {
        let parts = match (used.user_s, used.system_s) {
            (Some(user_s), Some(system_s)) => format!(" (user {user_s:.3} s, system {system_s:.3} s)"),
            _ => String::new(),
        };
        let cores = if report.wall_s > 0.0 { cpu_s / report.wall_s } else { 0.0 };
        rows.push(("CPU time", format!("{cpu_s:.3} s{parts}, {cores:.2} cores used")));
    }
    let bytes = |value: f64| units::value("bytes", value);
    if let Some(peak) = used.peak_memory_bytes {
        rows.push(("peak memory", bytes(peak)));
    }
    if let (Some(read), Some(written)) = (used.read_bytes, used.written_bytes) {
        rows.push(("I/O", format!("{} read, {} written", bytes(read), bytes(written))));
    }
    if let Some(faults) = used.page_faults {
        let major =
            used.page_faults_major.map_or_else(String::new, |major| format!(", {major:.0} of them with I/O"));
        rows.push(("page faults", format!("{faults:.0}{major}")));
    }
    if let Some(switches) = used.context_switches {
        let migrations = used
            .cpu_migrations
            .map_or_else(String::new, |migrations| format!(", {migrations:.0} migrations"));
        rows.push(("context switches", format!("{switches:.0}{migrations}")));
    }
    rows.into_iter().map(|(name, value)| format!("  {name:<18}{value}\n")).collect()
}

fn series(report: &Report, detail: Detail, bound: Option<usize>) -> String {
    let chosen: Vec<&SeriesReport> =
        report.series.iter().filter(|series| detail == Detail::All || series.changed()).collect();
    let limit = if detail == Detail::All { usize::MAX } else { LINES };
    let several_nodes = report.nodes.len() > 1;
    let head = ["metric", "period", "samples", "least", "mean", "most", ""].map(str::to_owned).to_vec();
    let row = |series: &&SeriesReport| {
        vec![
            series.name(several_nodes),
            series.period.clone().unwrap_or_else(|| "-".to_owned()),
            series.samples.to_string(),
            series.shown(series.least),
            series.shown(series.mean),
            series.shown(series.most),
        ]
    };
    let mut rows: Vec<Vec<String>> =
        std::iter::once(head).chain(chosen.iter().take(limit).map(row)).collect();
    let taken: usize =
        terminal::table_within(&rows, None).lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let width = bound.unwrap_or(terminal::COLUMNS).saturating_sub(taken + 4).clamp(CHART.0, CHART.1);
    for (row, series) in rows.iter_mut().skip(1).zip(&chosen) {
        row.push(sparkline(&series.points, width));
    }
    let mut text = terminal::indented_table_within(&rows, bound);
    let constant = report.series.len() - chosen.len();
    let hidden = chosen.len().saturating_sub(limit);
    if constant + hidden > 0 {
        text.push_str(&format!("  ({constant} series that never changed and {hidden} more are left out; `polymeter report --all` shows them)\n"));
    }
    text
}

/// What became of the samples of each source.
fn sources(report: &Report, bound: Option<usize>) -> String {
    let head = [
        "source", "node", "due", "taken", "late", "missed", "absent", "dropped", "skipped", "rejected",
        "apart", "stored", "unknown",
    ];
    let row = |source: &SourceReport| {
        let tally = &source.tally;
        let counts = [tally.due, tally.taken, tally.late, tally.missed, tally.absent, tally.dropped];
        let rest = [source.skipped, source.rejected, source.apart, source.stored, source.unknown];
        let counts = counts.iter().chain(&rest).map(u64::to_string);
        [source.source.clone(), source.node.clone()].into_iter().chain(counts).collect()
    };
    let head = head.map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(report.sources.iter().map(row)).collect();
    terminal::indented_table_within(&rows, bound)
}

fn completeness(report: &Report) -> String {
    let ledger = &report.ledger;
    // What a source does not have, such as a limit that is not set, is no sample that could be taken.
    let takeable = ledger.due.saturating_sub(ledger.absent);
    let share =
        if takeable > 0 { 100.0 * units::to_f64(ledger.taken) / units::to_f64(takeable) } else { 100.0 };
    let elsewhere = ledger.dropped + report.skipped + report.rejected + report.apart + report.unknown;
    let expected = ledger.taken.saturating_sub(elsewhere);
    let others = [
        (report.skipped, "skipped"),
        (report.rejected, "rejected"),
        (report.apart, "stored apart"),
        (report.unknown, "of unknown fate"),
    ];
    let others: String = others
        .iter()
        .filter(|(samples, _)| *samples > 0)
        .map(|(samples, how)| format!(", {samples} {how}"))
        .collect();
    let missing = match expected.saturating_sub(report.stored) {
        0 => String::new(),
        missing => format!(", {missing} deleted since"),
    };
    let of = if report.losses.iter().any(LossReport::is_gap) { "what is known" } else { "what was there" };
    let mut text = format!(
        "  {:<18}{} due, {} taken ({share:.2} % of {of}), {} late, {} missed, {} absent, {} dropped{others}; {} stored{missing}\n",
        "samples",
        ledger.due,
        ledger.taken,
        ledger.late,
        ledger.missed,
        ledger.absent,
        ledger.dropped,
        report.stored,
    );
    for loss in &report.losses {
        let LossReport { node, source, samples, reason, first_s, last_s } = loss;
        if loss.is_gap() {
            text.push_str(&format!(
                "  {:<18}{:.3} s on {node}, from {first_s:.3} s to {last_s:.3} s: the agent was lost\n",
                "unknown",
                last_s - first_s
            ));
            continue;
        }
        let source = source.as_deref().unwrap_or("nobody knows what");
        text.push_str(&format!(
            "  {:<18}{samples} samples of {source} on {node}, from {first_s:.3} s to {last_s:.3} s: {reason}\n",
            "lost"
        ));
    }
    if let Some(measuring) = &report.measuring {
        text.push_str(&format!(
            "  {:<18}{:.3} s CPU time, {:.2} % of one core\n",
            "measuring cost", measuring.cpu_s, measuring.core_percent
        ));
    }
    text
}
