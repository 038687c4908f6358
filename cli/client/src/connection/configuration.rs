//! Addresses of the collectors: an option, `POLYMETER_COLLECTOR`, or `/etc/polymeter/client.toml`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use polymeter_service::document::{Faults, Reporter};

use crate::failure::Failure;

const VARIABLE: &str = "POLYMETER_COLLECTOR";

const FILE: &str = "/etc/polymeter/client.toml";

const SOCKET: &str = "/run/polymeter/collector.sock";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectorEndpoint {
    Socket(PathBuf),
    /// HOST:PORT.
    Tcp(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid collector address `{0}`: expected tcp://HOST:PORT or the absolute path of its socket")]
pub struct InvalidEndpoint(String);

fn has_port(address: &str) -> bool {
    let parts = address.rsplit_once(':');
    parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

impl FromStr for CollectorEndpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        match text.strip_prefix("tcp://") {
            Some(address) if has_port(address) => Ok(Self::Tcp(address.to_owned())),
            None if Path::new(text).is_absolute() => Ok(Self::Socket(text.into())),
            Some(_) | None => Err(InvalidEndpoint(text.to_owned())),
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

#[derive(Debug, Default, PartialEq, Eq)]
struct ClientFile {
    /// Empty if the file names none.
    collectors: Vec<CollectorEndpoint>,
    /// None for munge's default socket.
    munge_socket: Option<PathBuf>,
}

/// Collectors of one store, any of which answers requests, and the way to authenticate to them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CollectorConfig {
    /// Endpoints, at least one, in the order in which they are tried.
    pub(super) endpoints: Vec<CollectorEndpoint>,
    pub(super) munge_socket: Option<PathBuf>,
}

impl CollectorConfig {
    /// Prefers `endpoint`, then the environment, then the configuration; none if there are none.
    pub(super) fn find(
        endpoint: Option<&CollectorEndpoint>,
        munge_socket: Option<&Path>,
    ) -> Result<Option<Self>, Failure> {
        let file = read(Path::new(FILE))?;
        let of_variable = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
        let endpoints = match (endpoint, of_variable) {
            (Some(endpoint), _) => vec![endpoint.clone()],
            (None, Some(text)) => {
                vec![
                    text.parse()
                        .map_err(|error: InvalidEndpoint| Failure::Usage(format!("{VARIABLE}: {error}")))?,
                ]
            }
            (None, None) if file.collectors.is_empty() && Path::new(SOCKET).exists() => {
                vec![CollectorEndpoint::Socket(SOCKET.into())]
            }
            (None, None) => file.collectors,
        };
        let munge_socket = munge_socket.map(Path::to_owned).or(file.munge_socket);
        Ok((!endpoints.is_empty()).then_some(Self { endpoints, munge_socket }))
    }
}

/// A file that does not exist is empty.
fn read(path: &Path) -> Result<ClientFile, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(path, &text).map_err(|faults| Failure::Usage(faults.to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ClientFile::default()),
        Err(error) => Err(Failure::Usage(format!("cannot read {}: {error}", path.display()))),
    }
}

/// Parses `client.toml`, and returns all its faults together.
fn parse(path: &Path, text: &str) -> Result<ClientFile, Faults> {
    let mut reporter = Reporter::new(path, text);
    let mut root = reporter.root();
    let collectors = root.one_or_more("collector", &mut reporter, CollectorEndpoint::from_str);
    let munge_socket = root.parse("munge_socket", &mut reporter, PathBuf::from_str);
    root.finish(&mut reporter);
    reporter
        .into_faults()
        .into_result(ClientFile { collectors: collectors.unwrap_or_default(), munge_socket })
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
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/client.toml");
        assert_eq!(read(&example).unwrap(), ClientFile::default(), "an installation asks no collector");
        let text = std::fs::read_to_string(&example).unwrap().replace("\n# collector = ", "\ncollector = ");
        assert!(matches!(parse(&example, &text).unwrap().collectors.as_slice(), [CollectorEndpoint::Tcp(_)]));
        assert_eq!(read(Path::new("/nowhere/client.toml")).unwrap(), ClientFile::default());
    }

    #[test]
    fn several_collectors_are_a_list() {
        let text = "collector = [\"tcp://c1:7718\", \"tcp://c2:7718\"]\n";
        let file = parse(Path::new("client.toml"), text).unwrap();
        let endpoints: Vec<String> = file.collectors.iter().map(ToString::to_string).collect();
        assert_eq!(endpoints, ["tcp://c1:7718", "tcp://c2:7718"]);
        let faults = parse(Path::new("client.toml"), "collector = [\"tcp://c1:7718\", \"c2\"]")
            .unwrap_err()
            .to_string();
        assert!(faults.contains("invalid collector address `c2`"), "{faults}");
    }

    #[test]
    fn all_faults_of_the_configuration_are_reported_with_their_lines() {
        let text = "colector = \"tcp://head:7718\"\nmunge_socket = 7\ncollector = \"head\"\n";
        let faults = parse(Path::new("client.toml"), text).unwrap_err().to_string();
        for expected in [
            "client.toml:1: unknown key `colector`; did you mean `collector`?",
            "client.toml:2: `munge_socket`: expected a string",
            "client.toml:3: `collector`: invalid collector address `head`",
        ] {
            assert!(faults.contains(expected), "no `{expected}` in:\n{faults}");
        }
    }
}
