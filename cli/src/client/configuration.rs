//! The address of the collector: an option, `POLYMETER_COLLECTOR`, or `/etc/polymeter/client.toml`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;

use crate::failure::Failure;

/// The environment variable with the address of the collector.
const VARIABLE: &str = "POLYMETER_COLLECTOR";

/// The configuration of login nodes.
const FILE: &str = "/etc/polymeter/client.toml";

/// The default socket of a collector on this machine.
const SOCKET: &str = "/run/polymeter/collector.sock";

/// The address of a collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CollectorEndpoint {
    /// A socket on this machine.
    Socket(PathBuf),
    /// HOST:PORT.
    Tcp(String),
}

impl FromStr for CollectorEndpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let has_port = |address: &str| {
            let parts = address.rsplit_once(':');
            parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        match text.strip_prefix("tcp://") {
            Some(address) if has_port(address) => Ok(Self::Tcp(address.to_owned())),
            None if Path::new(text).is_absolute() => Ok(Self::Socket(text.into())),
            Some(_) | None => Err(format!(
                "invalid collector address `{text}`: expected tcp://HOST:PORT or the absolute path of its socket"
            )),
        }
    }
}

impl fmt::Display for CollectorEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

/// The keys of `client.toml`.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    /// The address of the collector.
    collector: Option<String>,
    /// The socket of munged, if it is not munge's default.
    munge_socket: Option<PathBuf>,
}

/// A collector and the way to authenticate to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CollectorConfig {
    pub(super) endpoint: CollectorEndpoint,
    pub(super) munge_socket: Option<PathBuf>,
}

impl CollectorConfig {
    /// Returns the collector at `endpoint`, else the one in the environment or the configuration; none if there is none.
    pub(super) fn find(
        endpoint: Option<&CollectorEndpoint>,
        munge_socket: Option<&Path>,
    ) -> Result<Option<Self>, Failure> {
        let config = read(Path::new(FILE))?;
        let of_variable = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
        let configured = of_variable.map(|text| (text, VARIABLE));
        let configured = configured.or_else(|| config.collector.map(|text| (text, FILE)));
        let endpoint = match (endpoint, configured) {
            (Some(endpoint), _) => Some(endpoint.clone()),
            (None, Some((text, place))) => {
                Some(text.parse().map_err(|error| Failure::Usage(format!("{place}: {error}")))?)
            }
            (None, None) => {
                Some(CollectorEndpoint::Socket(SOCKET.into())).filter(|_| Path::new(SOCKET).exists())
            }
        };
        let munge_socket = munge_socket.map(Path::to_owned).or(config.munge_socket);
        Ok(endpoint.map(|endpoint| Self { endpoint, munge_socket }))
    }
}

fn read(path: &Path) -> Result<RawConfig, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            toml::from_str(&text).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(RawConfig::default()),
        Err(error) => Err(Failure::Usage(format!("cannot read {}: {error}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_an_address_or_an_absolute_path() {
        assert_eq!("tcp://head:7718".parse(), Ok(CollectorEndpoint::Tcp("head:7718".to_owned())));
        assert_eq!("/run/c.sock".parse(), Ok(CollectorEndpoint::Socket("/run/c.sock".into())));
        for text in ["", "head:7718", "tcp://head", "tcp://:7718", "tcp://head:x", "c.sock", "ipc:///x"] {
            assert!(text.parse::<CollectorEndpoint>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_example_configuration_is_valid() {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/client.toml");
        let config = read(&example).unwrap();
        assert!(config.collector.unwrap().parse::<CollectorEndpoint>().is_ok());
        assert_eq!(read(Path::new("/nowhere/client.toml")).unwrap(), RawConfig::default());
    }
}
