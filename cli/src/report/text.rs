//! A report as people read it.

use super::gather::{LossReport, Report, SourceReport};
use super::{history, series, units};
use crate::printable::{printable, printable_lines, printable_name};
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
    let (job, owner) = (printable_name(&report.job), printable(&owner));
    let nodes: Vec<_> = report.nodes.iter().map(|node| printable_name(node)).collect();
    text.push_str(&format!("job {job}{owner} on {}{state}\n", nodes.join(", ")));
    text.push_str(&totals(report));
    text.push_str(&notes(report, bound));
    text.push('\n');
    text.push_str(&series::text(report, detail, bound));
    text.push('\n');
    text.push_str(&history::text(report, detail, bound));
    text.push_str(&completeness(report, bound));
    if detail == Detail::All {
        text.push('\n');
        text.push_str(&sources(report, bound));
    }
    printable_lines(&text).into_owned()
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

/// What the report says beyond numbers.
fn notes(report: &Report, bound: Option<usize>) -> String {
    report.notes.iter().map(|note| terminal::paragraph("note", note, bound)).collect()
}

/// What became of the samples of each source.
fn sources(report: &Report, bound: Option<usize>) -> String {
    let head = [
        "source",
        "node",
        "due",
        "taken",
        "late",
        "missed",
        "absent",
        "dropped",
        "skipped",
        "rejected",
        "quarantined",
        "stored",
        "unknown",
    ];
    let row = |source: &SourceReport| {
        let tally = &source.tally;
        let counts = [tally.due, tally.taken, tally.late, tally.missed, tally.absent, tally.dropped];
        let rest = [source.skipped, source.rejected, source.quarantined, source.stored, source.unknown];
        let counts = counts.iter().chain(&rest).map(u64::to_string);
        [source.source.clone(), source.node.clone()].into_iter().chain(counts).collect()
    };
    let head = head.map(str::to_owned).to_vec();
    let mut rows: Vec<Vec<String>> = std::iter::once(head).chain(report.sources.iter().map(row)).collect();
    if bound.is_some() {
        leave_out_zeros(&mut rows);
    }
    terminal::indented_table_within(&rows, bound)
}

/// Leaves out what happened to no sample of any source, so that the rest fits a terminal.
fn leave_out_zeros(rows: &mut [Vec<String>]) {
    const ALWAYS: [&str; 5] = ["source", "node", "due", "taken", "stored"];
    let is_shown = |(column, head): (usize, &String)| {
        let is_zero = |row: &Vec<String>| row.get(column).is_none_or(|cell| cell == "0");
        ALWAYS.contains(&head.as_str()) || !rows.iter().skip(1).all(is_zero)
    };
    let Some(head) = rows.first() else { return };
    let shown: Vec<bool> = head.iter().enumerate().map(is_shown).collect();
    for row in rows {
        let mut shown = shown.iter();
        row.retain(|_| shown.next() == Some(&true));
    }
}

fn completeness(report: &Report, bound: Option<usize>) -> String {
    let ledger = &report.ledger;
    // What a source does not have, such as a limit that is not set, is no sample that could be taken.
    let takeable = ledger.due.saturating_sub(ledger.absent);
    let share =
        if takeable > 0 { 100.0 * units::to_f64(ledger.taken) / units::to_f64(takeable) } else { 100.0 };
    let elsewhere = ledger.dropped + report.skipped + report.rejected + report.quarantined + report.unknown;
    let expected = ledger.taken.saturating_sub(elsewhere);
    let others = [
        (report.skipped, "skipped"),
        (report.rejected, "rejected"),
        (report.quarantined, "quarantined"),
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
    let samples = format!(
        "{} due, {} taken ({share:.2} % of {of}), {} late, {} missed, {} absent, {} dropped{others}; {} stored{missing}",
        ledger.due, ledger.taken, ledger.late, ledger.missed, ledger.absent, ledger.dropped, report.stored,
    );
    let mut text = terminal::paragraph("samples", &samples, bound);
    for loss in &report.losses {
        let LossReport { node, source, samples, reason, first_s, last_s } = loss;
        let (node, reason) = (printable_name(node), printable(reason));
        if loss.is_gap() {
            let lasted_s = last_s - first_s;
            let gap = format!(
                "{lasted_s:.3} s on {node}, from {first_s:.3} s to {last_s:.3} s: the agent was lost"
            );
            text.push_str(&terminal::paragraph("unknown", &gap, bound));
            continue;
        }
        let source = printable(source.as_deref().unwrap_or("nobody knows what"));
        let lost = format!(
            "{samples} samples of {source} on {node}, from {first_s:.3} s to {last_s:.3} s: {reason}"
        );
        text.push_str(&terminal::paragraph("lost", &lost, bound));
    }
    if let Some(measuring) = &report.measuring {
        text.push_str(&format!(
            "  {:<18}{:.3} s CPU time, {:.2} % of one core\n",
            "measuring cost", measuring.cpu_s, measuring.core_percent
        ));
    }
    text
}
