//! Versions of command, agents and collector.

use std::collections::BTreeMap;

use polymeter_client::connection::configuration::CollectorEndpoint;
use polymeter_proto::units::counted;

use crate::client::greeting::{Greeted, greet};
use crate::commands::doctor::doctor_report::listed;
use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::role::Role;

const OWN: &str = env!("CARGO_PKG_VERSION");

pub(super) fn check(machine: &Machine, role: Role, findings: &mut Findings) {
    match role {
        Role::Collector => agents(machine, findings),
        Role::Node | Role::Login => collectors(machine, findings),
    }
}

/// This command belongs to the collector's package.
fn agents(machine: &Machine, findings: &mut Findings) {
    let agents = match machine.store() {
        Ok(store) => &store.agents,
        Err(reason) => return findings.not_checked(format!("the versions of agents: {reason}")),
    };
    let mut others: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for agent in agents.iter().filter(|agent| agent.version != OWN) {
        others.entry(&agent.version).or_default().push(agent.node.clone());
    }
    for (version, nodes) in &others {
        findings.warning(
            format!(
                "version {version}, not {OWN}, on {} of {}: {}",
                nodes.len(),
                counted(agents.len(), "node"),
                listed(nodes)
            ),
            "update the package polymeter-agent there; the collector comes first",
        );
    }
    if others.is_empty() {
        findings.ok(format!("{OWN}, as {} of the last day", counted(agents.len(), "agent")));
    }
}

/// Examines the collectors that this machine's users ask.
fn collectors(machine: &Machine, findings: &mut Findings) {
    let mut is_known = false;
    for endpoint in machine.user_endpoints() {
        let CollectorEndpoint::Tcp(address) = &endpoint else { continue };
        // That it cannot be reached is a finding of another check.
        let Ok(Greeted { version, .. }) = greet(address) else { continue };
        is_known = true;
        if version == OWN {
            findings.ok(format!("{OWN}, as the collector at {endpoint}"));
        } else {
            findings.warning(
                format!("the collector at {endpoint} has version {version}, this machine {OWN}"),
                "update the packages of the collector first, then those of this machine",
            );
        }
    }
    if !is_known {
        findings.not_checked(format!(
            "{OWN}; no collector at a TCP address of /etc/polymeter/client.toml tells its own"
        ));
    }
}
