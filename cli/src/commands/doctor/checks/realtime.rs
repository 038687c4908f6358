//! Real-time priority of the sampler.

use std::fs;

use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::role::Role;

/// Number in capabilities(7), and name.
const CAP_SYS_NICE: (u32, &str) = (23, "CAP_SYS_NICE");

pub(super) fn check(machine: &Machine, _: Role, findings: &mut Findings) {
    let Some(config) = machine.agent.valid() else { return };
    let Some(wanted) = config.realtime_priority else {
        findings.ok("the configuration asks for no real-time priority");
        return;
    };
    let runtime = machine.mounts.proc.join("sys/kernel/sched_rt_runtime_us");
    if fs::read_to_string(runtime).is_ok_and(|text| text.trim() == "0") {
        findings.problem(
            "the kernel gives real-time threads no CPU time: the sampler misses deadlines on a busy node",
            "sysctl kernel.sched_rt_runtime_us=950000",
        );
        return;
    }
    let Some(daemon) = machine.agent_daemon() else {
        match &machine.agent_unit {
            Some(unit) if unit.user.is_some() && !may_be_realtime(unit, wanted) => without(findings),
            Some(_) => findings.ok(format!("the unit permits priority {wanted}")),
            None => findings.not_checked("no agent runs"),
        }
        return;
    };
    match daemon.rt_priority {
        Some(priority) => findings.ok(format!("the sampler runs with priority {priority} of SCHED_FIFO")),
        None if daemon.has_capability(CAP_SYS_NICE.0) => findings.warning(
            "the sampler has no real-time priority, though the agent has CAP_SYS_NICE: its cgroup has no real-time budget",
            "echo 950000 > cpu.rt_runtime_us in the agent's cgroup of the controller cpu and in those above it",
        ),
        None => without(findings),
    }
}

fn without(findings: &mut Findings) {
    findings.warning(
        "the agent may not set the real-time priority of its sampler: deadlines are missed on a busy node",
        "give the service CAP_SYS_NICE and LimitRTPRIO=10 as the packaged unit does, and restart it",
    );
}

fn may_be_realtime(unit: &crate::commands::doctor::unit::Unit, wanted: u8) -> bool {
    unit.rt_priority.is_some_and(|limit| limit >= u64::from(wanted))
        || unit.capabilities.iter().any(|name| name == CAP_SYS_NICE.1)
}
