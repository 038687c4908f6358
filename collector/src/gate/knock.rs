//! Connections that came to nothing before the first message: what libzmq's monitor tells of them.

/// Why a connection came to nothing, as it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turned {
    /// The agent's key is not authorised.
    UnknownKey,
    /// One side has keys, and the other has not.
    Mechanism,
    /// The agent has another key for this collector than this collector's.
    CollectorKey,
    /// It was something else than an agent.
    Protocol,
    /// It went before it had said who it is.
    Gone,
}

impl Turned {
    /// All there are.
    pub(crate) const ALL: [Self; 5] =
        [Self::UnknownKey, Self::Mechanism, Self::CollectorKey, Self::Protocol, Self::Gone];

    /// The word for it in the collector's own metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownKey => "unknown_key",
            Self::Mechanism => "mechanism",
            Self::CollectorKey => "collector_key",
            Self::Protocol => "protocol",
            Self::Gone => "gone",
        }
    }

    /// What the log says of it, where it tells more than that somebody knocked. `has_keys` says whether the collector has.
    pub(super) const fn told(self, has_keys: bool) -> Option<&'static str> {
        match self {
            Self::Mechanism if has_keys => Some(
                "a peer without a key tries to connect, and is refused; give its agent `key` and `collector_key`",
            ),
            Self::Mechanism => Some(
                "a peer with a key tries to connect, and this collector has none; give it `key` and `authorised_agents`",
            ),
            Self::CollectorKey => Some(
                "a peer has another key for this collector than this collector's, and cannot connect; correct its agent's `collector_key`",
            ),
            Self::Protocol => Some("a peer that is no agent tries to connect, and is refused"),
            // The question whose key it is has been told of; and who goes early is no news.
            Self::UnknownKey | Self::Gone => None,
        }
    }
}

/// libzmq's events, from its header zmq.h.
const STOPPED: u16 = 0x0400;
const FAILED_NO_DETAIL: u16 = 0x0800;
const FAILED_PROTOCOL: u16 = 0x2000;

/// What the monitor is to tell of. A key that is not authorised is known before it tells.
pub(super) const EVENTS: i32 = (STOPPED | FAILED_NO_DETAIL | FAILED_PROTOCOL) as i32;

/// libzmq's details of [`FAILED_PROTOCOL`].
const CRYPTOGRAPHIC: u32 = 0x1100_0001;
const MECHANISM_MISMATCH: u32 = 0x1100_0002;

/// What the monitor tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Knock {
    /// A connection came to nothing.
    Turned(Turned),
    /// The socket is closed, and nothing more will be told.
    Closed,
}

/// What an event's first part tells: its number and its value, as the machine writes them.
pub(super) fn parse(part: &[u8]) -> Option<Knock> {
    let (event, value) = part.split_first_chunk::<2>()?;
    let turned = match (u16::from_ne_bytes(*event), u32::from_ne_bytes(*value.first_chunk()?)) {
        (STOPPED, _) => return Some(Knock::Closed),
        (FAILED_PROTOCOL, CRYPTOGRAPHIC) => Some(Turned::CollectorKey),
        (FAILED_PROTOCOL, MECHANISM_MISMATCH) => Some(Turned::Mechanism),
        (FAILED_PROTOCOL, _) => Some(Turned::Protocol),
        (FAILED_NO_DETAIL, _) => Some(Turned::Gone),
        _ => None,
    };
    turned.map(Knock::Turned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_understood() {
        let event = |number: u16, value: u32| [&number.to_ne_bytes()[..], &value.to_ne_bytes()[..]].concat();
        assert_eq!(parse(&event(0x2000, 0x1100_0001)), Some(Knock::Turned(Turned::CollectorKey)));
        assert_eq!(parse(&event(0x2000, 0x1100_0002)), Some(Knock::Turned(Turned::Mechanism)));
        assert_eq!(parse(&event(0x2000, 0x1000_0000)), Some(Knock::Turned(Turned::Protocol)));
        assert_eq!(parse(&event(0x0800, 32)), Some(Knock::Turned(Turned::Gone)));
        assert_eq!(parse(&event(0x0400, 0)), Some(Knock::Closed));
        assert_eq!(parse(&event(0x4000, 400)), None);
        assert_eq!(parse(&event(0x2000, 1)[..5]), None);
        assert_eq!(parse(b""), None);
    }
}
