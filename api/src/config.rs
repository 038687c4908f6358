//! Configuration of the API.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use polymeter_proto::series::Identifier;

use crate::limits::ApiLimits;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl Listen {
    /// None for a TCP address.
    pub fn unix_path(&self) -> Option<&Path> {
        match self {
            Self::Unix(path) => Some(path),
            Self::Tcp(_) => None,
        }
    }

    /// Tells whether other machines can reach the address.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Tcp(address) if !address.ip().is_loopback())
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        text.parse().map(Self::Tcp).map_err(|_invalid| {
            format!("expected the absolute path of a Unix socket, ADDRESS:PORT such as \"127.0.0.1:7719\", or \"off\", found `{text}`")
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "http://{address}"),
        }
    }
}

/// Proxy that authenticates users, and is trusted to name them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proxy {
    /// Machines of a network: an address, and the number of bits that count.
    Network(IpAddr, u8),
    /// User of this machine, on the Unix socket.
    User(String),
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl Proxy {
    pub fn contains(&self, address: IpAddr) -> bool {
        let Self::Network(network, bits) = self else { return false };
        let mask = u128::MAX.checked_shl(128 - u32::from(*bits)).unwrap_or(0);
        network.is_ipv4() == address.is_ipv4() && (bits_of(*network) ^ bits_of(address)) & mask == 0
    }
}

impl FromStr for Proxy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(user) = text.strip_prefix("user:") {
            Identifier::try_from(user).map_err(|error| format!("invalid user name `{user}`: {error}"))?;
            return Ok(Self::User(user.to_owned()));
        }
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: Option<IpAddr> = address.parse().ok();
        let bits_max = if address.is_some_and(|address| address.is_ipv4()) { 32 } else { 128 };
        let bits = bits.map_or(Some(bits_max), |bits| bits.parse().ok().filter(|bits| *bits <= bits_max));
        address.zip(bits).map(|(address, bits)| Self::Network(address, bits)).ok_or_else(|| {
            format!("expected an address, a network such as 192.0.2.0/24, or user:NAME, found `{text}`")
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiConfig {
    pub listen: Listen,
    /// Names by which browsers may address the API, besides addresses and `localhost`.
    pub server_names: Vec<String>,
    pub trusted_proxies: Vec<Proxy>,
    pub user_header: String,
    pub limits: ApiLimits,
}

/// Used if none is configured.
const USER_HEADER: &str = "X-Remote-User";

impl ApiConfig {
    pub fn new(listen: Listen) -> Self {
        Self {
            listen,
            server_names: Vec::new(),
            trusted_proxies: Vec::new(),
            user_header: USER_HEADER.to_owned(),
            limits: ApiLimits::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_addresses_networks_and_users() {
        let proxy = |text: &str| text.parse::<Proxy>();
        let contains =
            |network: &str, address: &str| proxy(network).unwrap().contains(address.parse().unwrap());
        assert!(contains("192.0.2.0/24", "192.0.2.255") && !contains("192.0.2.0/24", "192.0.3.0"));
        assert!(contains("192.0.2.7", "192.0.2.7") && !contains("192.0.2.7", "192.0.2.6"));
        assert!(contains("0.0.0.0/0", "8.8.8.8") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("2001:db8::/32", "2001:db8:ffff::1") && !contains("2001:db8::/32", "2001:db9::"));
        assert_eq!(proxy("user:www-data"), Ok(Proxy::User("www-data".to_owned())));
        for wrong in
            ["", "host", "192.0.2.0/33", "192.0.2.0/-1", "192.0.2.0/", "::/129", "user:", "user:a b\n"]
        {
            assert!(proxy(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_of_other_machines_are_remote() {
        let listen = |text: &str| text.parse::<Listen>().unwrap();
        for local in ["/run/polymeter/api.sock", "127.0.0.1:7719", "[::1]:7719"] {
            assert!(!listen(local).is_remote(), "{local}");
        }
        assert!(listen("0.0.0.0:7719").is_remote() && listen("[::]:7719").is_remote());
        for wrong in ["", "localhost:7719", "api.sock", "127.0.0.1", "tcp://127.0.0.1:1"] {
            assert!(wrong.parse::<Listen>().is_err(), "{wrong}");
        }
    }
}
