//! What the text of a ZeroMQ endpoint says of who can be at its other end.

use std::net::IpAddr;

/// Whether only this machine can be at the other end. What is not known to be so is not: a name, an interface, `*`.
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
