//! Parsers of single values.

use std::path::PathBuf;
use std::str::FromStr;

use polymeter_proto::period::{InvalidPeriod, Period};
use polymeter_service::byte_size::{self, InvalidSize};

/// Sizes of outbox and spool that can be configured, in bytes.
const SIZE_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=64 << 30;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidValue {
    #[error("invalid endpoint `{0}`: expected tcp://HOST:PORT or ipc:///PATH")]
    Endpoint(String),
    #[error("invalid endpoint `{0}`: the port is missing; write tcp://HOST:PORT")]
    Port(String),
    #[error("expected the absolute path of a Unix socket, ADDRESS:PORT, or \"off\", found `{0}`")]
    PageAddress(String),
    #[error("expected an absolute path, found `{0}`")]
    Path(String),
    #[error("unknown order `{0}`: expected \"listed\" or \"spread\"")]
    Order(String),
    #[error("unknown visibility `{0}`: expected \"own\" or \"all\"")]
    Visibility(String),
    #[error("{0}, or \"off\"")]
    Size(InvalidSize),
}

/// Order in which an agent tries its collectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CollectorOrder {
    /// Order of the configuration; the addresses of one name in an order of the node's own.
    #[default]
    Listed,
    /// An order of the node's own, so that the nodes share all collectors and, after a failure, those that
    /// are left.
    Spread,
}

impl FromStr for CollectorOrder {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        match text {
            "listed" => Ok(Self::Listed),
            "spread" => Ok(Self::Spread),
            _ => Err(InvalidValue::Order(text.to_owned())),
        }
    }
}

/// Jobs that an ordinary user can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JobVisibility {
    #[default]
    Own,
    /// All jobs, and the node.
    All,
}

impl FromStr for JobVisibility {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        match text {
            "own" => Ok(Self::Own),
            "all" => Ok(Self::All),
            _ => Err(InvalidValue::Visibility(text.to_owned())),
        }
    }
}

/// Parses a ZeroMQ endpoint of a kind that can reach a collector.
pub fn endpoint(text: &str) -> Result<String, InvalidValue> {
    let address = ["tcp://", "ipc://", "inproc://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match address {
        None | Some("") => Err(InvalidValue::Endpoint(text.to_owned())),
        Some(_) if text.starts_with("tcp://") && !has_port => Err(InvalidValue::Port(text.to_owned())),
        Some(_) => Ok(text.to_owned()),
    }
}

pub(super) fn absolute(text: &str) -> Result<PathBuf, InvalidValue> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err(InvalidValue::Path(text.to_owned())) }
}

/// Parses an absolute path, or `off`.
pub(super) fn path_or_off(text: &str) -> Result<Option<PathBuf>, InvalidValue> {
    if text == "off" { Ok(None) } else { absolute(text).map(Some) }
}

/// Parses a period, or `off`.
pub(super) fn period_or_off(text: &str) -> Result<Option<Period>, InvalidPeriod> {
    if text == "off" { Ok(None) } else { text.parse().map(Some) }
}

/// Parses a number of bytes: `64MiB`.
pub(super) fn bytes(text: &str) -> Result<usize, InvalidSize> {
    byte_size::parse(text, SIZE_BYTES).map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Parses a size, or `off` for 0.
pub(super) fn bytes_or_off(text: &str) -> Result<usize, InvalidValue> {
    if text == "off" { Ok(0) } else { bytes(text).map_err(InvalidValue::Size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_a_scheme_and_an_address() {
        for valid in ["tcp://10.0.0.1:7717", "tcp://[::1]:7717", "ipc:///run/c", "inproc://x"] {
            assert_eq!(endpoint(valid).as_deref(), Ok(valid));
        }
        for invalid in ["", "here", "tcp://", "tcp://host", "tcp://host:x", "ipc://", "http://x:1"] {
            assert!(endpoint(invalid).is_err(), "{invalid}");
        }
    }
}
