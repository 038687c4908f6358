//! Failed handshakes, as libzmq's socket monitor reports them.

use zmq::SocketEvent;

/// Reason for which a connection failed before its first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeFailure {
    UnknownKey,
    /// Only one side has keys.
    Mechanism,
    /// Public key of this collector, as configured for the agent, is not the collector's key.
    CollectorKey,
    Protocol,
    /// Peer disconnected before it identified itself.
    Disconnected,
}

impl HandshakeFailure {
    pub(crate) const ALL: [Self; 5] =
        [Self::UnknownKey, Self::Mechanism, Self::CollectorKey, Self::Protocol, Self::Disconnected];

    /// Label `reason` in the collector's metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownKey => "unknown_key",
            Self::Mechanism => "mechanism",
            Self::CollectorKey => "collector_key",
            Self::Protocol => "protocol",
            Self::Disconnected => "disconnected",
        }
    }

    /// Cause and remedy for the log; none if there is no remedy.
    pub(super) const fn explanation(self, has_keys: bool) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Mechanism if has_keys => Some((
                "the peer has no key, but this collector requires one",
                "set `key` and `collector_key` in the agent's configuration",
            )),
            Self::Mechanism => Some((
                "the peer has a key, but this collector has none",
                "set `key` and `authorised_agents` in the collector's configuration",
            )),
            Self::CollectorKey => Some((
                "the peer expects a different public key of this collector",
                "correct `collector_key` in the agent's configuration",
            )),
            Self::Protocol => {
                Some(("the peer is not an agent", "restrict access to this endpoint to agents"))
            }
            // The authentication request was logged, and a disconnection is no fault.
            Self::UnknownKey | Self::Disconnected => None,
        }
    }
}

/// Detail of `HANDSHAKE_FAILED_PROTOCOL`, from libzmq's zmq.h: `ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC`.
const CRYPTOGRAPHIC: u32 = 0x1100_0001;

/// `ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH`.
const MECHANISM_MISMATCH: u32 = 0x1100_0002;

// `SocketEvent::from_raw` panics for unknown numbers; therefore the numbers are compared.
const MONITOR_STOPPED: u16 = SocketEvent::MONITOR_STOPPED as u16;
const FAILED_NO_DETAIL: u16 = SocketEvent::HANDSHAKE_FAILED_NO_DETAIL as u16;
const FAILED_PROTOCOL: u16 = SocketEvent::HANDSHAKE_FAILED_PROTOCOL as u16;

/// Unauthorised keys are known from the authentication request.
pub(super) const EVENTS: i32 = (MONITOR_STOPPED | FAILED_NO_DETAIL | FAILED_PROTOCOL) as i32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MonitorEvent {
    Failed(HandshakeFailure),
    SocketClosed,
}

/// Parses the first part of a report: number and value, in native byte order.
pub(super) fn parse(part: &[u8]) -> Option<MonitorEvent> {
    let (event, value) = part.split_first_chunk::<2>()?;
    let value = u32::from_ne_bytes(*value.first_chunk()?);
    let failure = match (u16::from_ne_bytes(*event), value) {
        (MONITOR_STOPPED, _) => return Some(MonitorEvent::SocketClosed),
        (FAILED_PROTOCOL, CRYPTOGRAPHIC) => HandshakeFailure::CollectorKey,
        (FAILED_PROTOCOL, MECHANISM_MISMATCH) => HandshakeFailure::Mechanism,
        (FAILED_PROTOCOL, _) => HandshakeFailure::Protocol,
        (FAILED_NO_DETAIL, _) => HandshakeFailure::Disconnected,
        _ => return None,
    };
    Some(MonitorEvent::Failed(failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_reports_of_the_monitor() {
        let event = |number: u16, value: u32| [&number.to_ne_bytes()[..], &value.to_ne_bytes()[..]].concat();
        let failed = |failure| Some(MonitorEvent::Failed(failure));
        assert_eq!(parse(&event(0x2000, 0x1100_0001)), failed(HandshakeFailure::CollectorKey));
        assert_eq!(parse(&event(0x2000, 0x1100_0002)), failed(HandshakeFailure::Mechanism));
        assert_eq!(parse(&event(0x2000, 0x1000_0000)), failed(HandshakeFailure::Protocol));
        assert_eq!(parse(&event(0x0800, 32)), failed(HandshakeFailure::Disconnected));
        assert_eq!(parse(&event(0x0400, 0)), Some(MonitorEvent::SocketClosed));
        assert_eq!(parse(&event(0x4000, 400)), None);
        assert_eq!(parse(&event(0x2000, 1)[..5]), None);
        assert_eq!(parse(b""), None);
        assert_eq!(parse(&event(0xabcd, 0)), None);
        assert_eq!(EVENTS, 0x2c00);
    }
}
