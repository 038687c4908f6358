//! Completeness of a job's samples as text: the ledger, and the losses.

use super::paragraph::{indented_table_within, paragraph};
use crate::output::printable::{printable, printable_name};
use crate::output::units;
use crate::report::summary;
use polymeter_analysis::model::{LossReport, Report, SourceReport};

pub(super) fn text(report: &Report, limit: Option<usize>) -> String {
    let mut text = paragraph("samples", &samples(report), limit);
    if let Some(ring) = summary::ring(report) {
        text.push_str(&paragraph("rings", &ring, limit));
    }
    for loss in &report.losses {
        let (label, description) = loss_text(loss);
        text.push_str(&paragraph(label, &description, limit));
    }
    text
}

fn samples(report: &Report) -> String {
    let ledger = &report.ledger;
    // Absent values, such as a limit that is not set, do not exist in their source.
    let available = ledger.due.saturating_sub(ledger.absent);
    let percent =
        if available > 0 { 100.0 * units::to_f64(ledger.taken) / units::to_f64(available) } else { 100.0 };
    let others = [
        (report.skipped, "skipped"),
        (report.rejected, "rejected"),
        (report.quarantined, "quarantined"),
        (report.unknown, "unaccounted for"),
    ];
    let not_stored = ledger.dropped + others.iter().map(|(samples, _)| samples).sum::<u64>();
    let others: String = others
        .iter()
        .filter(|(samples, _)| *samples > 0)
        .map(|(samples, fate)| format!(", {samples} {fate}"))
        .collect();
    let deleted = match ledger.taken.saturating_sub(not_stored).saturating_sub(report.stored) {
        0 => String::new(),
        deleted => format!(", {deleted} deleted later"),
    };
    let total = if report.losses.iter().any(LossReport::is_gap) { "those known" } else { "those available" };
    format!(
        "{} due, {} taken ({percent:.2} % of {total}), {} late, {} missed, {} absent, {} dropped{others}; {} stored{deleted}",
        ledger.due, ledger.taken, ledger.late, ledger.missed, ledger.absent, ledger.dropped, report.stored,
    )
}

fn loss_text(loss: &LossReport) -> (&'static str, String) {
    let LossReport { node, source, samples, first_s, last_s, .. } = loss;
    let (node, cause) = (printable_name(node), printable(loss.cause()));
    let interval = format!("from {first_s:.3} s to {last_s:.3} s");
    if loss.is_gap() {
        return ("unknown", format!("{:.3} s on {node}, {interval}: {cause}", last_s - first_s));
    }
    let source = source.as_deref().map_or_else(|| "unknown sources".into(), printable);
    ("lost", format!("{} of {source} on {node}, {interval}: {cause}", units::counted(samples, "sample")))
}

pub(super) fn sources(report: &Report, limit: Option<usize>) -> String {
    let head = ["source", "node"].into_iter().chain(SourceReport::COUNTS);
    let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).collect()];
    for source in &report.sources {
        let names = [source.source.clone(), source.node.clone()];
        rows.push(names.into_iter().chain(source.counts().map(|count| count.to_string())).collect());
    }
    if limit.is_some() {
        remove_zero_columns(&mut rows);
    }
    indented_table_within(&rows, limit)
}

/// Removes the columns of fates without samples, so that the others fit a terminal.
fn remove_zero_columns(rows: &mut [Vec<String>]) {
    const ALWAYS: [&str; 5] = ["source", "node", "due", "taken", "stored"];
    let Some(head) = rows.first() else { return };
    let kept: Vec<bool> = head
        .iter()
        .enumerate()
        .map(|(column, name)| {
            ALWAYS.contains(&name.as_str())
                || !rows.iter().skip(1).all(|row| row.get(column).is_none_or(|cell| cell == "0"))
        })
        .collect();
    for row in rows {
        let mut kept = kept.iter();
        row.retain(|_| kept.next() == Some(&true));
    }
}
