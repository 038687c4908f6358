//! Counters of energy of the node.

use super::metrics::is_denied;
use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::role::Role;

const PREFIXES: [&str; 5] =
    ["node.energy.", "node.cray.", "node.ipmi.", "node.hwmon.power.", "node.gpu.energy"];

pub(super) fn check(machine: &Machine, _: Role, findings: &mut Findings) {
    let lines = match machine.metrics() {
        Some(Ok(lines)) => lines,
        Some(Err(failure)) => return findings.not_checked(failure.to_string()),
        None => return findings.not_checked("only a running agent tells which counters it can read"),
    };
    let of_energy: Vec<_> =
        lines.iter().filter(|line| PREFIXES.iter().any(|prefix| line.metric.starts_with(prefix))).collect();
    let available: Vec<&str> =
        of_energy.iter().filter(|line| line.available).map(|line| line.metric.as_str()).collect();
    let denied = of_energy.iter().find(|line| line.reason.as_deref().is_some_and(is_denied));
    if let Some(line) = denied {
        findings.warning(
            format!("{} is unavailable: {}", line.metric, line.reason.as_deref().unwrap_or_default()),
            "grant it: install /usr/share/polymeter/drop-ins/root-files.conf as docs/how-to/systemd.md describes",
        );
    }
    if !available.is_empty() {
        findings.ok(format!("{} can be sampled", available.join(", ")));
    } else if denied.is_none() {
        let reason = of_energy.first().and_then(|line| line.reason.as_deref()).unwrap_or("no such counters");
        findings.ok(format!("none on this machine: {reason}"));
    }
}
