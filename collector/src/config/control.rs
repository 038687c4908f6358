//! The keys of control: the endpoints for users, and their authentication.

use std::path::PathBuf;
use std::str::FromStr;

use polymeter_proto::series::Identifier;
use polymeter_service::document::{Faults, Reporter, Section};

use crate::control::munge::Unmunge;
use crate::control::{ControlConfig, NetworkConfig};

/// The path of `unmunge` in Debian and most other distributions.
const DEFAULT_UNMUNGE_PATH: &str = "/usr/bin/unmunge";

/// The raw keys.
#[derive(Debug, Default)]
pub(super) struct RawControl {
    control_socket: Option<AbsolutePath>,
    auth: Option<AuthMethod>,
    control_listen: Option<Address>,
    unmunge_path: Option<AbsolutePath>,
    munge_socket: Option<AbsolutePath>,
    scheduler_user: Option<UserName>,
    administrators: Vec<String>,
    /// The file and line of `control_listen`.
    listen_place: String,
}

impl RawControl {
    /// Takes the keys out of the document.
    pub(super) fn take(root: &mut Section<'_>, reporter: &mut Reporter<'_>) -> Self {
        let listen_place = root.span("control_listen").map(|span| reporter.place(&span));
        Self {
            control_socket: root.parse("control_socket", reporter, str::parse),
            auth: root.parse("auth", reporter, str::parse),
            control_listen: root.parse("control_listen", reporter, str::parse),
            unmunge_path: root.parse("unmunge_path", reporter, str::parse),
            munge_socket: root.parse("munge_socket", reporter, str::parse),
            scheduler_user: root.parse("scheduler_user", reporter, str::parse),
            administrators: administrators(root, reporter),
            listen_place: listen_place.unwrap_or_default(),
        }
    }

    /// Adds a fault if users of other machines could connect without authentication.
    pub(super) fn check(&self, faults: &mut Faults) {
        if self.control_listen.is_some() && self.auth.unwrap_or_default() != AuthMethod::Munge {
            faults.add(
                &*self.listen_place,
                "`control_listen`: requires `auth = \"munge\"`, which authenticates users",
            );
        }
    }

    pub(super) fn resolve(self) -> ControlConfig {
        let path = |raw: Option<AbsolutePath>| raw.and_then(|path| path.0);
        let unmunge = Unmunge {
            program: path(self.unmunge_path).unwrap_or_else(|| DEFAULT_UNMUNGE_PATH.into()),
            socket: path(self.munge_socket),
        };
        ControlConfig {
            socket: path(self.control_socket),
            network: self.control_listen.map(|address| NetworkConfig { address: address.0, unmunge }),
            scheduler_user: self.scheduler_user.map(|user| user.0),
            administrators: self.administrators,
            ..ControlConfig::default()
        }
    }
}

/// Takes the names of users, and of groups with a leading `@`.
fn administrators(root: &mut Section<'_>, reporter: &mut Reporter<'_>) -> Vec<String> {
    let mut administrators = Vec::new();
    for (name, span) in root.strings("administrators", reporter).unwrap_or_default() {
        match Identifier::try_from(name.strip_prefix('@').unwrap_or(&name)) {
            Ok(_) => administrators.push(name),
            Err(error) => reporter.fault(&span, format_args!("`administrators`: {error}")),
        }
    }
    administrators
}

/// The authentication of users of other machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum AuthMethod {
    /// None: such users cannot connect.
    #[default]
    None,
    /// MUNGE credentials.
    Munge,
}

impl FromStr for AuthMethod {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "munge" => Ok(Self::Munge),
            _ => Err(format!("unknown auth method `{text}`: expected `none` or `munge`")),
        }
    }
}

/// An absolute path; none for `off`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AbsolutePath(Option<PathBuf>);

impl FromStr for AbsolutePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = PathBuf::from(text);
        match text {
            "off" => Ok(Self(None)),
            _ if path.is_absolute() => Ok(Self(Some(path))),
            _ => Err(format!("expected an absolute path or \"off\", found `{text}`")),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct UserName(String);

impl FromStr for UserName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Identifier::try_from(text).map_err(|error| format!("invalid user name `{text}`: {error}"))?;
        Ok(Self(text.to_owned()))
    }
}

/// HOST:PORT, written as tcp://HOST:PORT.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Address(String);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.strip_prefix("tcp://");
        let complete = address
            .and_then(|address| address.rsplit_once(':'))
            .is_some_and(|(host, port)| !host.is_empty() && host != "*" && port.parse::<u16>().is_ok());
        match address.filter(|_| complete) {
            Some(address) => Ok(Self(address.to_owned())),
            None => Err(format!("invalid address `{text}`: expected tcp://ADDRESS:PORT")),
        }
    }
}
