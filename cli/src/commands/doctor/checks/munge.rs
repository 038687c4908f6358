//! MUNGE, by which a collector recognises the users of other machines.

use std::path::PathBuf;

use polymeter_client::connection::collector::Collector;
use polymeter_client::connection::configuration::CollectorEndpoint;
use polymeter_client::connection::munge::credential;

use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::role::Role;

pub(super) fn check(machine: &Machine, role: Role, findings: &mut Findings) {
    let socket: Option<PathBuf> = match role {
        Role::Collector => {
            let network = machine.collector.valid().and_then(|config| config.control.network.as_ref());
            if network.is_none() {
                return findings.ok("not needed: only users of this machine can ask the collector");
            }
            None
        }
        Role::Node | Role::Login => {
            let Ok(Some(collector)) = Collector::find(None, None) else { return };
            if !collector.endpoints().iter().any(|endpoint| matches!(endpoint, CollectorEndpoint::Tcp(_))) {
                return findings.ok("not needed: the collector is on this machine");
            }
            collector.munge_socket().map(ToOwned::to_owned)
        }
    };
    match credential(socket.as_deref(), "polymeter doctor") {
        Ok(_) => findings.ok("munged signs credentials"),
        Err(error) => {
            let message = error.to_string();
            let remedy = if message.starts_with("cannot run") {
                "install munge"
            } else {
                "systemctl enable --now munge"
            };
            findings.problem(message.rsplit_once("; ").map_or(message.as_str(), |(text, _)| text), remedy);
        }
    }
}
