//! The collector can be reached: by the agent, by users, and on its own machine.

use std::io::{self, Read};
use std::net::ToSocketAddrs;
use std::time::Duration;

use polymeter_agent::config::AgentConfig;
use polymeter_agent::delivery::handshake::handshake;
use polymeter_agent::keys::{AgentKeyFiles, Keys};
use polymeter_client::connection::collector::{Collector, ZMTP_SIGNATURE};
use polymeter_client::connection::configuration::CollectorEndpoint;
use polymeter_client::connection::stream::Stream;
use polymeter_proto::{endpoint, units};
use polymeter_service::users;

use crate::client::greeting::greet;
use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::{COLLECTOR_UNIT, Machine};
use crate::commands::doctor::role::Role;

const HANDSHAKE_MS: u32 = 3000;

const TIMEOUT: Duration = Duration::from_secs(3);

pub(super) fn check(machine: &Machine, role: Role, findings: &mut Findings) {
    match role {
        Role::Node => of_agent(machine, findings),
        Role::Collector => of_collector(machine, findings),
        Role::Login => of_users(findings),
    }
}

/// Asks the running agent. If it is not connected, or none runs, the collectors are asked with the agent's
/// keys.
fn of_agent(machine: &Machine, findings: &mut Findings) {
    let Some(config) = machine.agent.valid() else { return };
    if let Some(Ok(status)) = machine.status()
        && status.collector.connected
    {
        let collector = &status.collector;
        let acknowledged = collector.acknowledged_us.map_or_else(
            || "nothing acknowledged yet".to_owned(),
            |us| {
                let age_us = (collector.now_us - us).unsigned_abs();
                format!("last acknowledgement {} ago", units::duration(age_us.saturating_mul(1000)))
            },
        );
        let waiting = units::bytes(collector.backlog_bytes);
        findings.ok(format!(
            "the agent is connected to {}, {acknowledged}, {waiting} waiting",
            collector.address
        ));
        return;
    }
    let keys = match (&config.keys, machine.agent_uid()) {
        (None, _) => None,
        (Some(files), Ok(uid)) => match users::act_as(uid, || AgentKeyFiles::read(files)) {
            Ok(Ok(keys)) => Some(keys),
            // The keys have a check of their own.
            Ok(Err(_)) => return findings.not_checked("the collector: the agent's keys cannot be used"),
            Err(_) => return findings.not_checked("the collector: the agent's key can be read by root only"),
        },
        (Some(_), Err(error)) => return findings.not_checked(error),
    };
    for (place, address) in config.collectors.iter().enumerate() {
        greet_as_agent(config, keys.as_ref(), place, address, findings);
    }
}

fn greet_as_agent(
    config: &AgentConfig,
    keys: Option<&Keys>,
    place: usize,
    address: &str,
    findings: &mut Findings,
) {
    let keys = keys.and_then(|keys| Some((keys.own.clone(), keys.of_collector(place)?)));
    let encrypted = if config.keys.is_some() { "encrypted" } else { "not encrypted" };
    match handshake(&zmq::Context::new(), address, keys, HANDSHAKE_MS) {
        Ok(()) => findings.ok(format!("the collector at {address} accepts this node's agent, {encrypted}")),
        Err(refused) => {
            findings.problem(format!("cannot connect to {address}: {}", refused.cause), refused.remedy)
        }
    }
}

fn of_collector(machine: &Machine, findings: &mut Findings) {
    let Some(config) = machine.collector.valid() else { return };
    let listen = config.listen.as_str();
    match greets(listen) {
        Ok(()) => findings.ok(format!("the collector listens at {listen}")),
        Err(error) => {
            let is_enabled = machine.collector_unit.as_ref().is_some_and(|unit| unit.is_enabled);
            let remedy = match &machine.collector_unit {
                Some(_) if is_enabled => {
                    format!("systemctl start {COLLECTOR_UNIT}; journalctl -u {COLLECTOR_UNIT}")
                }
                Some(_) => format!("systemctl enable --now {COLLECTOR_UNIT}"),
                None => "start polymeter-collector, or install its unit: docs/how-to/systemd.md".to_owned(),
            };
            findings.problem(format!("no collector listens at {listen}: {error}"), remedy);
        }
    }
    if endpoint::is_local(listen) && !machine.roles.contains(&Role::Node) {
        findings.warning(
            format!("the collector listens at {listen}, which other machines cannot reach"),
            "polymeter setup collector --keys, or set `listen` and keys in collector.toml",
        );
    }
    if let Some(socket) = &config.control.socket {
        let path = socket.display();
        match Stream::unix(socket, TIMEOUT) {
            Ok(_) => findings.ok(format!("users of this machine can ask at {path}")),
            Err(error) => findings.problem(
                format!("users cannot ask at the control socket {path}: {error}"),
                format!("systemctl restart {COLLECTOR_UNIT}"),
            ),
        }
    }
}

/// Reads the first byte of the peer's greeting.
fn greets(endpoint: &str) -> io::Result<()> {
    let mut first = [0];
    if let Some(path) = endpoint.strip_prefix("ipc://") {
        Stream::unix(path.as_ref(), TIMEOUT)?.read_exact(&mut first)?;
    } else {
        let address = endpoint.trim_start_matches("tcp://");
        let (host, port) = address.rsplit_once(':').ok_or_else(|| io::Error::other("no port"))?;
        let is_any = ["*", "0.0.0.0", "[::]"].contains(&host);
        let port = port.parse().map_err(io::Error::other)?;
        let host = if is_any { "127.0.0.1" } else { host.trim_start_matches('[').trim_end_matches(']') };
        let mut addresses = (host, port).to_socket_addrs()?;
        let address = addresses.next().ok_or_else(|| io::Error::other("unknown address"))?;
        Stream::tcp(address, TIMEOUT)?.read_exact(&mut first)?;
    }
    if first == [ZMTP_SIGNATURE] { Ok(()) } else { Err(io::Error::other("another program listens there")) }
}

fn of_users(findings: &mut Findings) {
    let endpoints = match Collector::find(None, None) {
        Ok(Some(collector)) => collector.endpoints().to_vec(),
        Ok(None) => {
            findings.problem(
                "no collector is configured: users reach only the agent of this machine",
                "polymeter setup login --collector tcp://COLLECTOR:7718",
            );
            return;
        }
        // The configuration has a check of its own.
        Err(_) => return,
    };
    for endpoint in &endpoints {
        let reached = match endpoint {
            CollectorEndpoint::Socket(path) => Stream::unix(path, TIMEOUT).map(drop),
            CollectorEndpoint::Tcp(address) => greet(address).map(drop),
        };
        match reached {
            Ok(()) => findings.ok(format!("the collector at {endpoint} answers")),
            Err(error) => findings.problem(
                format!("cannot reach the collector at {endpoint}: {error}"),
                "set `control_listen` and `auth = \"munge\"` in collector.toml; check the address and firewalls",
            ),
        }
    }
}
