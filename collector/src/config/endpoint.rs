//! Endpoint for agents.

use std::fmt;

use polymeter_proto::endpoint;

/// A ZeroMQ endpoint to bind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(String);

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = ["tcp://", "ipc://", "inproc://"]
            .iter()
            .find_map(|scheme| Some((*scheme, text.strip_prefix(scheme)?)));
        let complete = match known {
            Some(("tcp://", rest)) => {
                rest.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && is_port(port))
            }
            Some((_, rest)) => !rest.is_empty(),
            None => false,
        };
        if complete {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("invalid endpoint `{text}`: expected tcp://ADDRESS:PORT or ipc://PATH"))
    }
}

/// Accepts `*` for any free one.
fn is_port(text: &str) -> bool {
    text == "*" || text.parse::<u16>().is_ok()
}

impl Endpoint {
    /// Only this machine can reach the endpoint. Names, interfaces and `*` count as reachable by others.
    pub fn is_local(&self) -> bool {
        endpoint::is_local(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_and_files_are_local() {
        for local in ["tcp://127.0.0.1:1", "tcp://127.9.9.9:*", "tcp://[::1]:1", "ipc:///run/x", "inproc://x"]
        {
            assert!(local.parse::<Endpoint>().unwrap().is_local(), "{local}");
        }
        for open in [
            "tcp://*:1",
            "tcp://0.0.0.0:1",
            "tcp://[::]:1",
            "tcp://10.0.0.1:1",
            "tcp://eth0:1",
            "tcp://localhost:1",
            "tcp://[::ffff:10.0.0.1]:1",
        ] {
            assert!(!open.parse::<Endpoint>().unwrap().is_local(), "{open}");
        }
    }
}
