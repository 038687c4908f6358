//! What the file says of control: the doors for users, and how it is found out who they are.

use std::path::PathBuf;
use std::str::FromStr;

use polymeter_proto::series::Identifier;

use super::Fault;
use crate::control::munge::Unmunge;
use crate::control::{ControlConfig, NetworkConfig};

/// Where Debian and most others put it.
const UNMUNGE: &str = "/usr/bin/unmunge";

/// What a file said of control.
#[derive(Debug, Default)]
pub struct SaidControl {
    /// See [`ControlConfig::socket`].
    pub socket: Option<AbsolutePath>,
    /// How users of other machines are known.
    pub auth: Option<Auth>,
    /// See [`NetworkConfig::address`].
    pub address: Option<Address>,
    /// See [`Unmunge::program`].
    pub unmunge: Option<AbsolutePath>,
    /// See [`Unmunge::socket`].
    pub munge_socket: Option<AbsolutePath>,
    /// See [`ControlConfig::requests`].
    pub requests: Option<AbsolutePath>,
    /// See [`ControlConfig::scheduler_user`].
    pub scheduler_user: Option<UserName>,
    /// Where `control` stands in the file.
    pub place: String,
}

impl SaidControl {
    /// Whoever can be reached from other machines must know who asks.
    pub(super) fn check(&self, faults: &mut Vec<Fault>) {
        if self.address.is_some() && self.auth.unwrap_or_default() != Auth::Munge {
            faults.push(Fault {
                place: self.place.clone(),
                message: "`control` needs `auth = \"munge\"`, by which it knows who asks".to_owned(),
            });
        }
    }

    /// What is meant by it.
    pub(super) fn meant(self) -> ControlConfig {
        let unmunge = Unmunge {
            program: self.unmunge.and_then(|path| path.0).unwrap_or_else(|| UNMUNGE.into()),
            socket: self.munge_socket.and_then(|path| path.0),
        };
        let network = self.address.map(|address| NetworkConfig { address: address.0, unmunge });
        let path = |said: Option<AbsolutePath>| said.and_then(|path| path.0);
        let scheduler_user = self.scheduler_user.map(|user| user.0);
        ControlConfig { socket: path(self.socket), network, requests: path(self.requests), scheduler_user }
    }
}

/// How users of other machines are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Auth {
    /// Not at all.
    #[default]
    None,
    /// By MUNGE credentials.
    Munge,
}

impl FromStr for Auth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "munge" => Ok(Self::Munge),
            _ => Err(format!("`{}` is none of none, munge", crate::log::printable(text))),
        }
    }
}

/// An absolute path; none for `off`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbsolutePath(Option<PathBuf>);

impl FromStr for AbsolutePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = PathBuf::from(text);
        match text {
            "off" => Ok(Self(None)),
            _ if path.is_absolute() => Ok(Self(Some(path))),
            _ => Err(format!("`{}` is no absolute path, and not \"off\"", crate::log::printable(text))),
        }
    }
}

/// The name of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserName(String);

impl FromStr for UserName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Identifier::try_from(text).map_err(|error| format!("it cannot be the name of a user: {error}"))?;
        Ok(Self(text.to_owned()))
    }
}

/// HOST:PORT, written as tcp://HOST:PORT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(String);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.strip_prefix("tcp://");
        let complete = address
            .and_then(|address| address.rsplit_once(':'))
            .is_some_and(|(host, port)| !host.is_empty() && host != "*" && port.parse::<u16>().is_ok());
        match address.filter(|_| complete) {
            Some(address) => Ok(Self(address.to_owned())),
            None => Err(format!("`{}` is no address: write tcp://ADDRESS:PORT", crate::log::printable(text))),
        }
    }
}
