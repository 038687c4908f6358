//! Keys of control: the endpoints for users, and their authentication.

use std::path::PathBuf;

use polymeter_proto::series::Identifier;
use polymeter_service::keys::Value;

use crate::control::NetworkConfig;
use crate::control::munge::Unmunge;

/// Path in Debian and most other distributions.
const DEFAULT_UNMUNGE_PATH: &str = "/usr/bin/unmunge";

/// Takes the listener for users of other machines, and the way in which it authenticates them.
pub(super) fn network(Value { section, reporter, .. }: Value<'_, '_, '_>) -> Option<NetworkConfig> {
    let place = section.span("control_listen");
    let is_authenticated = section.parse("auth", reporter, is_munge).unwrap_or(false);
    let address = section.parse("control_listen", reporter, address);
    let program = section.parse("unmunge_path", reporter, path_or_off).flatten();
    let socket = section.parse("munge_socket", reporter, path_or_off).flatten();
    let address = address?;
    if let Some(place) = place.filter(|_| !is_authenticated) {
        let message = "`control_listen`: requires `auth = \"munge\"`, which authenticates users";
        reporter.fault(&place, message);
    }
    let program = program.unwrap_or_else(|| DEFAULT_UNMUNGE_PATH.into());
    Some(NetworkConfig { address, unmunge: Unmunge { program, socket } })
}

/// MUNGE authenticates users of other machines; otherwise they cannot connect.
fn is_munge(text: &str) -> Result<bool, String> {
    match text {
        "none" => Ok(false),
        "munge" => Ok(true),
        _ => Err(format!("unknown auth method `{text}`: expected `none` or `munge`")),
    }
}

/// None for `off`.
pub(super) fn path_or_off(text: &str) -> Result<Option<PathBuf>, String> {
    let path = PathBuf::from(text);
    match text {
        "off" => Ok(None),
        _ if path.is_absolute() => Ok(Some(path)),
        _ => Err(format!("expected an absolute path or \"off\", found `{text}`")),
    }
}

pub(super) fn user_name(text: &str) -> Result<String, String> {
    Identifier::try_from(text).map_err(|error| format!("invalid user name `{text}`: {error}"))?;
    Ok(text.to_owned())
}

/// HOST:PORT of tcp://HOST:PORT.
fn address(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("tcp://").filter(|address| {
        let parts = address.rsplit_once(':');
        parts.is_some_and(|(host, port)| !host.is_empty() && host != "*" && port.parse::<u16>().is_ok())
    });
    let address = address.ok_or_else(|| format!("invalid address `{text}`: expected tcp://ADDRESS:PORT"))?;
    Ok(address.to_owned())
}
