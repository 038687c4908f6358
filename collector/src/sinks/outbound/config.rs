//! Settings of a sink that sends.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use hyper::Uri;
use polymeter_proto::name::{Selector, matches_glob};

use super::protocol::Protocol;

/// Port at which InfluxDB receives datagrams.
const UDP_PORT: u16 = 8089;

pub(crate) const SHARDS_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboundConfig {
    pub url: ReceiverUrl,
    pub protocol: &'static Protocol,
    /// Metrics that are sent.
    pub metrics: Vec<Selector>,
    /// Job ids whose series are sent. The series of nodes do not depend on it.
    pub jobs: Vec<Glob>,
    /// Nodes whose series are sent.
    pub nodes: Vec<Glob>,
    pub labels: Vec<(String, String)>,
    pub spool: PathBuf,
    /// Limit in bytes.
    pub spool_bytes: u64,
    /// Each connection has a part of the series.
    pub shards: usize,
    pub batch_samples: u32,
    /// Longest time for which samples wait for others.
    pub batch_wait: Duration,
    pub timeout: Duration,
    /// How long accepted samples are kept, to be sent again after the receiver was lost; zero for none.
    pub resend_window: Duration,
    pub credentials: Option<Credentials>,
    pub headers: Vec<Header>,
    /// Further headers, one in each line.
    pub headers_file: Option<PathBuf>,
    /// Root certificates; none for those of the operating system.
    pub ca_file: Option<PathBuf>,
}

impl OutboundConfig {
    pub fn new(protocol: &'static Protocol, url: ReceiverUrl) -> Self {
        Self {
            url,
            protocol,
            metrics: all(),
            jobs: all(),
            nodes: all(),
            labels: Vec::new(),
            spool: protocol.spool.into(),
            spool_bytes: 8 << 30,
            shards: 4,
            batch_samples: 2000,
            batch_wait: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
            resend_window: Duration::ZERO,
            credentials: None,
            headers: Vec::new(),
            headers_file: None,
            ca_file: None,
        }
    }
}

fn all<T: FromStr>() -> Vec<T> {
    "*".parse().into_iter().collect()
}

/// Pattern of node names or job ids: `*` stands for any text, and `?` for one byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(String);

impl Glob {
    /// Matches only all of `text`.
    pub fn matches(&self, text: &str) -> bool {
        matches_glob(&self.0, text)
    }
}

impl FromStr for Glob {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("a pattern is empty".to_owned()) } else { Ok(Self(text.to_owned())) }
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct ReceiverUrl(Uri);

impl ReceiverUrl {
    /// True for `https`.
    pub fn is_tls(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }

    /// HTTP, or with `udp://HOST:PORT` datagrams.
    pub(crate) fn http_or_udp(text: &str) -> Result<Self, String> {
        if !text.starts_with("udp://") {
            return text.parse();
        }
        let uri: Option<Uri> = text.parse().ok();
        let uri = uri.filter(|uri| uri.host().is_some_and(|host| !host.is_empty()));
        let uri =
            uri.filter(|uri| !uri.authority().is_some_and(|authority| authority.as_str().contains('@')));
        uri.map(Self).ok_or_else(|| "invalid URL: expected udp://HOST:PORT".to_owned())
    }

    pub(crate) fn is_udp(&self) -> bool {
        self.0.scheme_str() == Some("udp")
    }

    /// Name or address, without brackets.
    pub fn host(&self) -> &str {
        self.0.host().unwrap_or_default().trim_matches(['[', ']'])
    }

    pub fn port(&self) -> u16 {
        let usual = match self.0.scheme_str() {
            Some("https") => 443,
            Some("udp") => UDP_PORT,
            _ => 80,
        };
        self.0.port_u16().unwrap_or(usual)
    }

    pub(crate) fn authority(&self) -> &str {
        self.0.authority().map_or("", |authority| authority.as_str())
    }

    /// Path and query.
    pub(crate) fn target(&self) -> &str {
        self.0.path_and_query().map_or("/", |target| target.as_str())
    }
}

impl FromStr for ReceiverUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Option<Uri> = text.parse().ok();
        let uri = uri.filter(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
        });
        let uri = uri.ok_or("invalid URL: expected http://HOST:PORT/PATH or https://HOST:PORT/PATH")?;
        // The text is not repeated, since it has a password.
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("the URL has credentials; use `username` and `password_file`".to_owned());
        }
        Ok(Self(uri))
    }
}

/// Writes the URL without its query, which may have a secret.
impl fmt::Display for ReceiverUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.0.scheme_str().unwrap_or("http");
        write!(f, "{scheme}://{}{}", self.authority(), self.0.path())
    }
}

impl fmt::Debug for ReceiverUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceiverUrl({self})")
    }
}

/// Secrets are read from files for each connection, so that they can be renewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// User's name and the file with the password.
    Basic { username: String, password_file: PathBuf },
    /// File with a token, and the scheme by which it is sent: `Bearer`, or `Token` for InfluxDB.
    Token { scheme: &'static str, token_file: PathBuf },
}

/// Name in lower case, and the value.
#[derive(Clone, PartialEq, Eq)]
pub struct Header(pub(super) String, pub(super) String);

const OWN_HEADERS: [&str; 8] = [
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
    "x-prometheus-remote-write-version",
];

impl FromStr for Header {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || "invalid header: expected \"NAME: VALUE\"".to_owned();
        let (name, value) = text.split_once(':').ok_or_else(invalid)?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        if name.is_empty()
            || !name.bytes().all(|c| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c))
            || !value.bytes().all(|c| c == b' ' || c.is_ascii_graphic())
        {
            return Err(invalid());
        }
        if OWN_HEADERS.contains(&name.as_str()) {
            return Err(format!(
                "the header `{name}` is set by the sink; for credentials use `username` and `password_file`, or a file with a token"
            ));
        }
        Ok(Self(name, value.to_owned()))
    }
}

/// Writes the name alone: the value may be a secret.
impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Header({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_complete_and_without_credentials() {
        let url: ReceiverUrl = "https://[::1]:9009/api/v1/push?token=x".parse().unwrap();
        assert_eq!((url.host(), url.port(), url.is_tls()), ("::1", 9009, true));
        assert_eq!(url.target(), "/api/v1/push?token=x");
        assert_eq!(url.to_string(), "https://[::1]:9009/api/v1/push");
        let url: ReceiverUrl = "http://mimir".parse().unwrap();
        assert_eq!((url.host(), url.port(), url.target()), ("mimir", 80, "/"));
        for wrong in ["", "mimir:9009", "ftp://mimir/", "http:///x", "/api"] {
            assert!(wrong.parse::<ReceiverUrl>().unwrap_err().contains("expected http"), "{wrong}");
        }
        let error = "http://user:secret@mimir/".parse::<ReceiverUrl>().unwrap_err();
        assert!(error.contains("password_file") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn headers_are_valid_and_not_those_of_the_sink() {
        let header: Header = "X-Scope-OrgID: hpc".parse().unwrap();
        assert_eq!((header.0.as_str(), header.1.as_str()), ("x-scope-orgid", "hpc"));
        assert!(!format!("{header:?}").contains("hpc"));
        for wrong in ["", "X-Scope", "a b: c", "a: b\r\nc: d", ": x"] {
            assert!(wrong.parse::<Header>().unwrap_err().contains("NAME: VALUE"), "{wrong}");
        }
        assert!("Authorization: Bearer x".parse::<Header>().unwrap_err().contains("password_file"));
    }
}
