//! The agent runs and serves its control socket.

use std::fs;

use polymeter_proto::units::counted;

use crate::commands::doctor::checks::{oar, slurm};
use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::{AGENT_UNIT, Machine, user_name};
use crate::commands::doctor::process::Daemon;
use crate::commands::doctor::role::Role;

pub(super) fn check(machine: &Machine, _: Role, findings: &mut Findings) {
    let Some(socket) = machine.agent_socket() else {
        let has_faults = machine.agent.valid().is_none();
        let reason = if has_faults { "its configuration has faults" } else { "it has no control socket" };
        return findings.not_checked(format!("the agent: {reason}"));
    };
    match machine.agent_daemon() {
        Some(daemon) => running(machine, daemon, findings),
        None => {
            let socket = socket.display();
            let found = if fs::symlink_metadata(socket.to_string()).is_ok() {
                format!("no agent runs: nothing listens at {socket}")
            } else {
                format!("no agent runs: there is no {socket}")
            };
            let starts_at_jobs = slurm::starts_agent() || oar::starts_agent();
            match &machine.agent_unit {
                Some(unit) if unit.is_enabled => findings
                    .problem(found, format!("systemctl start {AGENT_UNIT}; journalctl -u {AGENT_UNIT}")),
                Some(_) | None if starts_at_jobs => {
                    findings.ok("no agent runs; the prolog starts one when a job starts");
                }
                Some(_) => findings.problem(found, format!("systemctl enable --now {AGENT_UNIT}")),
                None => findings
                    .problem(found, "start polymeter-agent, or install its unit: docs/how-to/systemd.md"),
            }
        }
    }
}

fn running(machine: &Machine, daemon: &Daemon, findings: &mut Findings) {
    if daemon.is_outdated {
        findings.warning(
            "the agent runs a program that was replaced since",
            format!("systemctl restart {AGENT_UNIT}"),
        );
    }
    match machine.status() {
        Some(Ok(status)) if status.counts.jobs_left_out.unwrap_or(0) > 0 => findings.problem(
            format!(
                "the agent has too few file descriptors to track {} more",
                counted(status.counts.jobs_left_out.unwrap_or(0), "job")
            ),
            format!("raise LimitNOFILE of the service: systemctl edit {AGENT_UNIT}"),
        ),
        Some(Ok(status)) => findings.ok(format!(
            "runs as {}, tracks {}, has taken {}, missed {}",
            user_name(daemon.uid),
            counted(status.counts.jobs, "job"),
            counted(status.counts.taken, "sample"),
            status.counts.missed
        )),
        Some(Err(failure)) => findings.problem_of(&failure.to_string(), "journalctl -u polymeter-agent"),
        None => {}
    }
}
