//! Offset of a node's clock from the collector's: samples are dated by the node.

use std::io;
use std::path::Path;
use std::time::Duration;

use polymeter_client::connection::configuration::CollectorEndpoint;
use polymeter_client::connection::stream::Stream;
use polymeter_proto::units;
use serde::Deserialize;

use crate::client::greeting::greet;
use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::role::Role;
use crate::http_get;

/// Reports of several nodes are wrong by as much as the offset.
const PROBLEM_US: i64 = 1_000_000;

/// Synchronized clocks differ by less than a millisecond.
const WARNING_US: i64 = 100_000;

const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn check(machine: &Machine, role: Role, findings: &mut Findings) {
    match role {
        Role::Collector => of_agents(machine, findings),
        Role::Node | Role::Login => own(machine, findings),
    }
}

fn own(machine: &Machine, findings: &mut Findings) {
    let mut is_measured = false;
    for endpoint in machine.user_endpoints() {
        let CollectorEndpoint::Tcp(address) = &endpoint else {
            is_measured = true;
            findings.ok("the collector has the clock of this machine");
            continue;
        };
        let Ok(greeted) = greet(address) else { continue };
        is_measured = true;
        judge("this machine", greeted.clock_us, findings);
    }
    if !is_measured {
        findings.not_checked(
            "no collector at an address of /etc/polymeter/client.toml tells its time; `polymeter doctor` on its machine compares the clocks of agents",
        );
    }
}

/// Microseconds: an offset, and the most by which it may be wrong.
fn judge(whose: &str, (offset_us, error_us): (i64, i64), findings: &mut Findings) {
    let certain_us = offset_us.abs().saturating_sub(error_us);
    let time = |us: i64| units::duration(us.unsigned_abs().saturating_mul(1000));
    let text = format!(
        "the clock of {whose} is {} {} that of the collector (at most {} more or less)",
        time(offset_us),
        if offset_us < 0 { "behind" } else { "ahead of" },
        time(error_us)
    );
    let remedy =
        format!("synchronize the clock of {whose}: systemctl enable --now chrony && chronyc makestep");
    if certain_us >= PROBLEM_US {
        findings.problem(text, remedy);
    } else if certain_us >= WARNING_US {
        findings.warning(text, remedy);
    } else {
        findings.ok(text);
    }
}

#[derive(Debug, Deserialize)]
struct Agent {
    node: String,
    clock_offset_us: Option<i64>,
    clock_error_us: Option<i64>,
}

#[derive(Debug, Deserialize)]
struct Page {
    agents: Vec<Agent>,
    next: Option<String>,
}

fn of_agents(machine: &Machine, findings: &mut Findings) {
    let api = machine.collector.valid().and_then(|config| config.api.as_ref());
    let Some(socket) = api.and_then(|api| api.listen.unix_path()) else {
        of_delays(machine, findings);
        return;
    };
    if !machine.is_root {
        findings.not_checked("the clocks of agents: only administrators see them; run this as root");
        return;
    }
    match agents(socket) {
        Ok(agents) => {
            let measured: Vec<_> = agents
                .iter()
                .filter_map(|agent| Some((&agent.node, agent.clock_offset_us?, agent.clock_error_us)))
                .collect();
            let mut of_nodes = Findings::new("clock", Role::Collector);
            for (node, offset_us, error_us) in &measured {
                judge(node, (*offset_us, error_us.unwrap_or(0)), &mut of_nodes);
            }
            let is_wrong = of_nodes.has_any();
            findings.append_serious(of_nodes);
            if measured.is_empty() {
                findings.not_checked("no agent has told its time yet: the collector asks once a minute");
            } else if !is_wrong {
                findings.ok(format!(
                    "the clocks of {} differ from the collector's by less than 0.1 s",
                    units::counted(measured.len(), "agent")
                ));
            }
        }
        Err(error) => findings.not_checked(format!("the clocks of agents: {}: {error}", socket.display())),
    }
}

/// Judges the clocks by the newest samples: one from the future has a clock that is ahead. One that is behind
/// looks like a delay.
fn of_delays(machine: &Machine, findings: &mut Findings) {
    let Ok(store) = machine.store() else {
        findings.not_checked("the clocks of agents: the store cannot be read");
        return;
    };
    for agent in &store.agents {
        let Some(sample_ns) = agent.last_sample_ns else { continue };
        let ahead_us = sample_ns.saturating_sub(agent.last_seen_ns) / 1000;
        if ahead_us >= WARNING_US {
            judge(&agent.node, (ahead_us, 0), findings);
        }
    }
    if !findings.has_any() {
        findings.not_checked(
            "the clocks of agents: set `listen` in [api] to a Unix socket; no agent's samples are from the future",
        );
    }
}

fn agents(socket: &Path) -> io::Result<Vec<Agent>> {
    let mut all = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let query = cursor.map_or_else(String::new, |cursor| format!("?cursor={}", encoded(&cursor)));
        let Page { agents, next } = serde_json::from_slice(&get(socket, &format!("/api/v1/agents{query}"))?)?;
        all.extend(agents);
        match next {
            Some(next) => cursor = Some(next),
            None => return Ok(all),
        }
    }
}

/// Encodes the bytes of a parameter that are not letters or digits.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

pub(super) fn get(socket: &Path, path: &str) -> io::Result<Vec<u8>> {
    let page = http_get::get(Stream::unix(socket, TIMEOUT)?, path)?;
    if page.is_ok { Ok(page.body) } else { Err(io::Error::other(page.status_line)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::{Finding, Level};

    fn judged(offset: (i64, i64)) -> Finding {
        let mut findings = Findings::new("clock", Role::Login);
        judge("n1", offset, &mut findings);
        findings.into_list().remove(0)
    }

    #[test]
    fn an_offset_counts_beyond_its_error() {
        assert_eq!(judged((3_000_000, 1000)).level, Level::Problem);
        assert_eq!(judged((-3_000_000, 2_500_000)).level, Level::Warning);
        assert_eq!(judged((-3_000_000, 2_950_000)).level, Level::Ok);
        assert!(judged((-3_000_000, 0)).text.contains("the clock of n1 is 3 s behind that of the collector"));
    }
}
