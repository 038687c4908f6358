//! What single values mean.

use std::path::PathBuf;

use super::Look;

/// A ZeroMQ endpoint of a kind that reaches a collector.
///
/// # Errors
/// When it is of another kind, or has no address.
pub fn endpoint(text: &str) -> Result<String, String> {
    let address = ["tcp://", "ipc://", "inproc://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    let has_port = || text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match address {
        None | Some("") => Err(format!("`{text}` is no endpoint: write tcp://HOST:PORT or ipc:///PATH")),
        Some(_) if text.starts_with("tcp://") && !has_port() => {
            Err(format!("`{text}` has no port: write tcp://HOST:PORT"))
        }
        Some(_) => Ok(text.to_owned()),
    }
}

pub(super) fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err(format!("`{text}` is no absolute path")) }
}

pub(super) fn socket(text: &str) -> Result<Option<PathBuf>, String> {
    if text == "off" { Ok(None) } else { absolute(text).map(Some) }
}

pub(super) fn look(text: &str) -> Result<Look, String> {
    match text {
        "own" => Ok(Look::Own),
        "all" => Ok(Look::All),
        _ => Err(format!("`{text}` is neither \"own\" nor \"all\"")),
    }
}

/// A number of bytes: `64MiB`.
pub(super) fn bytes(text: &str) -> Result<usize, String> {
    let refuse =
        || format!("`{text}` is no size: write a whole number and one of KiB, MiB, GiB, from 64KiB to 64GiB");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or_else(refuse)?;
    let shift = match unit {
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return Err(refuse()),
    };
    let bytes =
        number.parse::<usize>().ok().and_then(|number| number.checked_mul(1 << shift)).ok_or_else(refuse)?;
    if (64 << 10..=64 << 30).contains(&bytes) { Ok(bytes) } else { Err(refuse()) }
}
