//! Metrics of the plan that are unavailable, with the reasons.

use polymeter_proto::control::UnavailableGroup;

use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::role::Role;

/// Words of reasons that a right would remove.
const DENIED: [&str; 4] = ["ermission denied", "not permitted", "capability", "CAP_"];

pub(super) fn is_denied(reason: &str) -> bool {
    DENIED.iter().any(|word| reason.contains(word))
}

pub(super) fn check(machine: &Machine, _: Role, findings: &mut Findings) {
    let status = match machine.status() {
        Some(Ok(status)) => status,
        Some(Err(failure)) => return findings.not_checked(failure.to_string()),
        None => {
            return findings
                .not_checked("only a running agent tells which metrics of its plan are unavailable");
        }
    };
    if !status.subjects.iter().any(|subject| subject.job.is_none()) {
        return findings.not_checked("the metrics of the node: only administrators see them");
    }
    let mut unavailable: Vec<(String, String)> = Vec::new();
    for pair in status.subjects.iter().flat_map(|subject| &subject.unavailable) {
        if !unavailable.contains(pair) {
            unavailable.push(pair.clone());
        }
    }
    for group in UnavailableGroup::by_reason(&unavailable) {
        let reason = group.reason.to_string();
        let text = format!("unavailable: {}: {reason}", group.metrics_text());
        if is_denied(&reason) {
            findings.warning(
                text,
                "grant the right with a drop-in of /usr/share/polymeter/drop-ins: docs/how-to/systemd.md",
            );
        } else {
            findings.ok(text);
        }
    }
    if unavailable.is_empty() {
        findings.ok("all metrics of the plan are available");
    }
}
