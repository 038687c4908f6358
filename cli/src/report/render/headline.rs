//! The first line of a report. Pure.

use polymeter_analysis::model::Report;
use polymeter_proto::text::abridged_list;

use super::outcome;
use crate::output::printable::{printable, printable_name};

/// The maximum number of nodes that the first line names.
const NODES_MAX: usize = 8;

/// The first line: the job, its owner, its nodes and its final state.
pub(super) fn headline(report: &Report) -> String {
    let owner = report.owner.as_ref().map_or_else(String::new, |owner| format!(" of {owner}"));
    let outcome = outcome::outcome_text(&report.outcome);
    let state = match (report.ended, report.lost_nodes.as_slice(), outcome) {
        (false, _, _) => ", still running".to_owned(),
        (true, [], None) => String::new(),
        (true, lost, None) => {
            format!(", final state unknown: lost contact with the agent on {}", lost.join(", "))
        }
        (true, _, Some(outcome)) => format!(": {outcome}"),
    };
    let (job, owner) = (printable_name(&report.job), printable(&owner));
    let nodes: Vec<_> = report.nodes.iter().map(|node| printable_name(node)).collect();
    let nodes: Vec<&str> = nodes.iter().map(AsRef::as_ref).collect();
    let nodes =
        if nodes.is_empty() { String::new() } else { format!(" on {}", abridged_list(&nodes, NODES_MAX)) };
    format!("job {job}{owner}{nodes}{state}\n")
}
