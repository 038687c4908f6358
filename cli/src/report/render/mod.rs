//! A report as text.

mod completeness;
mod detail;
mod events;
mod outcome;
mod series;
mod usage;

use super::model::Report;
use crate::output::printable::{printable, printable_lines, printable_name};
use crate::output::table;
pub(crate) use detail::Detail;

/// Writes a report as text of at most `limit` columns, if there is a limit.
pub(crate) fn text(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    let mut text = headline(report);
    text.push_str(&usage::text(report));
    for note in &report.notes {
        text.push_str(&table::paragraph("note", note, limit));
    }
    text.push('\n');
    text.push_str(&series::text(report, detail, limit));
    text.push('\n');
    text.push_str(&events::text(report, detail, limit));
    text.push_str(&completeness::text(report, limit));
    if detail == Detail::All {
        text.push('\n');
        text.push_str(&completeness::sources(report, limit));
    }
    printable_lines(&text).into_owned()
}

/// The first line: the job, its owner, its nodes and its final state.
fn headline(report: &Report) -> String {
    let owner = report.owner.as_ref().map_or_else(String::new, |owner| format!(" of {owner}"));
    let outcome = outcome::outcome_text(&report.outcome);
    let state = match (report.ended, report.lost_nodes.as_slice(), outcome) {
        (false, _, _) => ", still running".to_owned(),
        (true, [], None) => String::new(),
        (true, lost, None) => format!(", final state unknown: the agent on {} was lost", lost.join(", ")),
        (true, _, Some(outcome)) => format!(": {outcome}"),
    };
    let (job, owner) = (printable_name(&report.job), printable(&owner));
    let nodes: Vec<_> = report.nodes.iter().map(|node| printable_name(node)).collect();
    format!("job {job}{owner} on {}{state}\n", nodes.join(", "))
}
