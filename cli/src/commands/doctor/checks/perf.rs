//! Right to count perf events of jobs.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::role::Role;

/// Lock of LIKWID: its owner may use the hardware's counters.
const LIKWID_LOCK: &str = "/var/run/likwid.lock";

/// Reports another user who has reserved the counters.
fn check_lock(machine: &Machine, findings: &mut Findings) {
    let Ok(lock) = fs::metadata(LIKWID_LOCK) else { return };
    let agent = machine.agent_daemon().map_or(0, |daemon| daemon.uid);
    if lock.uid() != agent {
        findings.warning(
            format!("uid {} has reserved the hardware counters by {LIKWID_LOCK}", lock.uid()),
            "polymeter pmu release --node --for TIME, or: rm /var/run/likwid.lock",
        );
    }
}

/// Numbers in capabilities(7). `CAP_SYS_ADMIN` was needed before Linux 5.8.
const CAPABILITIES: [(u32, &str); 2] = [(38, "CAP_PERFMON"), (21, "CAP_SYS_ADMIN")];

/// Level up to which a user without capabilities may count events of a whole CPU, as those of a cgroup are.
const UNPRIVILEGED: i32 = 0;

pub(super) fn check(machine: &Machine, _: Role, findings: &mut Findings) {
    check_lock(machine, findings);
    let path = machine.mounts.proc.join("sys/kernel/perf_event_paranoid");
    let paranoid = match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().unwrap_or(i32::MAX),
        Err(_) => {
            findings.warning(
                "this kernel has no perf events: perf.* are unavailable",
                "use a kernel with CONFIG_PERF_EVENTS",
            );
            return;
        }
    };
    let capable = match (machine.agent_daemon(), &machine.agent_unit) {
        (Some(daemon), _) => CAPABILITIES.iter().any(|(number, _)| daemon.has_capability(*number)),
        (None, Some(unit)) => {
            unit.user.is_none()
                || unit.capabilities.iter().any(|held| CAPABILITIES.iter().any(|(_, name)| held == name))
        }
        // Root, by a prolog.
        (None, None) => true,
    };
    if capable {
        findings.ok(format!(
            "perf_event_paranoid is {paranoid}, and the agent has the capability for perf events"
        ));
    } else if paranoid <= UNPRIVILEGED {
        findings.ok(format!("perf_event_paranoid is {paranoid}, which lets the agent count events"));
    } else {
        findings.warning(
            format!(
                "perf_event_paranoid is {paranoid}, and the agent has no capability: perf.* are unavailable"
            ),
            "give the service CAP_PERFMON as the packaged unit does, or: sysctl kernel.perf_event_paranoid=0",
        );
    }
}
