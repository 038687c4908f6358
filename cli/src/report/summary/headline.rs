//! The first line of a report, and the final state of the job. Pure.

use polymeter_analysis::model::Report;
use polymeter_analysis::outcome::outcome_text;
use polymeter_proto::text::abridged_list;

use crate::output::printable::{printable, printable_name};

/// The maximum number of nodes that a line names.
pub(crate) const NODES_MAX: usize = 8;

/// The final state, or that the job runs; none if nothing is known.
pub(crate) fn state(report: &Report) -> Option<String> {
    match (report.ended, report.lost_nodes.as_slice(), outcome_text(&report.outcome)) {
        (false, _, _) => Some("still running".to_owned()),
        (true, [], None) => None,
        (true, lost, None) => {
            Some(format!("final state unknown: lost contact with the agent on {}", lost.join(", ")))
        }
        (true, _, Some(outcome)) => Some(outcome),
    }
}

/// The first line: the job, its owner, its nodes and its final state.
pub(crate) fn headline(report: &Report) -> String {
    let owner = report.owner.as_ref().map_or_else(String::new, |owner| format!(" of {owner}"));
    let state = match state(report) {
        None => String::new(),
        Some(state) if report.ended && outcome_text(&report.outcome).is_some() => {
            format!(": {state}")
        }
        Some(state) => format!(", {state}"),
    };
    let (job, owner) = (printable_name(&report.job), printable(&owner));
    let nodes: Vec<_> = report.nodes.iter().map(|node| printable_name(node)).collect();
    let nodes: Vec<&str> = nodes.iter().map(AsRef::as_ref).collect();
    let nodes =
        if nodes.is_empty() { String::new() } else { format!(" on {}", abridged_list(&nodes, NODES_MAX)) };
    format!("job {job}{owner}{nodes}{state}\n")
}
