//! ZeroMQ endpoints: the reachability of the peer.

use std::net::IpAddr;

/// Returns true if only this machine can be the peer. A name, an interface and `*` count as reachable by
/// other machines.
pub fn is_local(endpoint: &str) -> bool {
    let Some(rest) = endpoint.strip_prefix("tcp://") else { return true };
    let host = rest.rsplit_once(':').map_or(rest, |(host, _)| host);
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_be_anybodys() {
        assert!(is_local("ipc:///run/c") && is_local("tcp://127.0.0.1:7717") && is_local("tcp://[::1]:7717"));
        assert!(
            !is_local("tcp://localhost:7717") && !is_local("tcp://10.0.0.1:7717") && !is_local("tcp://*:1")
        );
    }
}
