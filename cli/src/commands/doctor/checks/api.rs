//! Pages and HTTP API of the collector.

use std::net::TcpStream;

use super::clock::get;
use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::role::Role;

pub(super) fn check(machine: &Machine, _: Role, findings: &mut Findings) {
    let Some(config) = machine.collector.valid() else { return };
    let Some(api) = &config.api else {
        return findings.ok("the pages are off; `polymeter setup collector --api` switches them on");
    };
    let place = api.listen.to_string();
    let answered = match api.listen.unix_path() {
        Some(socket) => get(socket, "/ready").map(drop),
        None => TcpStream::connect(place.trim_start_matches("http://")).map(drop),
    };
    match answered {
        Ok(()) => findings.ok(format!("the pages are at {place}")),
        Err(error) => findings.problem(
            format!("the pages at {place} do not answer: {error}"),
            "systemctl restart polymeter-collector",
        ),
    }
}
