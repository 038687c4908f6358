//! Lines that name a job. Pure.

use polymeter_analysis::model::Report;
use polymeter_proto::text::abridged_list;

use crate::output::printable::{printable, printable_name};

/// Nodes that a line names.
pub(crate) const NODES_MAX: usize = 8;

pub(crate) fn headline(report: &Report) -> String {
    let owner = report.owner.as_ref().map_or_else(String::new, |owner| format!(" of {owner}"));
    let (job, owner) = (printable_name(&report.job), printable(&owner));
    let nodes: Vec<_> = report.nodes.iter().map(|node| printable_name(node)).collect();
    let nodes: Vec<&str> = nodes.iter().map(AsRef::as_ref).collect();
    let nodes =
        if nodes.is_empty() { String::new() } else { format!(" on {}", abridged_list(&nodes, NODES_MAX)) };
    format!("job {job}{owner}{nodes}")
}
