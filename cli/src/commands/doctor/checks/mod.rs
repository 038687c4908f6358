//! Checks: one line each in [`CHECKS`].

mod agent;
mod api;
mod cgroups;
mod clock;
mod configuration;
mod connection;
mod database;
mod disk;
mod energy;
mod extensions;
mod gpus;
mod kernel;
mod keys;
mod metrics;
mod munge;
mod oar;
mod perf;
mod realtime;
mod retention;
mod script;
mod slurm;
mod slurm_conf;
mod spool;
mod versions;

use super::finding::{Finding, Findings};
use super::machine::Machine;
use super::role::Role;

struct Check {
    /// Part of the JSON.
    name: &'static str,
    roles: &'static [Role],
    run: fn(&Machine, Role, &mut Findings),
}

const NODE: &[Role] = &[Role::Node];
const COLLECTOR: &[Role] = &[Role::Collector];
const CLIENTS: &[Role] = &[Role::Collector, Role::Login];
const ALL: &[Role] = &[Role::Node, Role::Collector, Role::Login];

/// Listed in the order of the report.
const CHECKS: &[Check] = &[
    Check { name: "configuration", roles: ALL, run: configuration::check },
    Check { name: "kernel", roles: NODE, run: kernel::check },
    Check { name: "cgroups", roles: NODE, run: cgroups::check },
    Check { name: "perf", roles: NODE, run: perf::check },
    Check { name: "realtime", roles: NODE, run: realtime::check },
    Check { name: "keys", roles: &[Role::Node, Role::Collector], run: keys::check },
    Check { name: "agent", roles: NODE, run: agent::check },
    Check { name: "connection", roles: ALL, run: connection::check },
    Check { name: "api", roles: COLLECTOR, run: api::check },
    Check { name: "munge", roles: CLIENTS, run: munge::check },
    Check { name: "clock", roles: ALL, run: clock::check },
    Check { name: "versions", roles: ALL, run: versions::check },
    Check { name: "database", roles: COLLECTOR, run: database::check },
    Check { name: "timescaledb", roles: COLLECTOR, run: extensions::timescaledb },
    Check { name: "citus", roles: COLLECTOR, run: extensions::citus },
    Check { name: "retention", roles: COLLECTOR, run: retention::check },
    Check { name: "disk", roles: COLLECTOR, run: disk::check },
    Check { name: "spool", roles: NODE, run: spool::check },
    Check { name: "slurm", roles: ALL, run: slurm::check },
    Check { name: "oar", roles: ALL, run: oar::check },
    Check { name: "gpus", roles: NODE, run: gpus::check },
    Check { name: "energy", roles: NODE, run: energy::check },
    Check { name: "metrics", roles: NODE, run: metrics::check },
];

pub(super) fn run(machine: &Machine) -> Vec<Finding> {
    let mut all = Vec::new();
    for check in CHECKS {
        for role in machine.roles.iter().filter(|role| check.roles.contains(role)) {
            let mut findings = Findings::new(check.name, *role);
            (check.run)(machine, *role, &mut findings);
            all.extend(findings.into_list());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_is_documented() {
        let page = include_str!("../../../../../docs/reference/doctor.md");
        for check in CHECKS {
            assert!(page.contains(&format!("\n| `{}` |", check.name)), "no row for {}", check.name);
        }
        let table = page.split("\n## Checks\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
        let rows = table.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, CHECKS.len(), "a row for each check, and no other");
    }
}
