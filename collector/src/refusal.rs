//! Refused messages: the reason for the agent's answer, the log and the metrics.

use polymeter_proto::wire::DecodeError;

/// The reason for which a message is refused, as counted in the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// It is neither a frame nor a message, or it is damaged.
    Undecodable,
    /// It has a version of the protocol that this collector does not support.
    Version,
    /// Its contents contradict each other or earlier messages.
    Contradiction,
    /// The key of its connection is no longer authorised.
    Key,
    /// It names a node other than the one that its connection's key is bound to.
    Node,
    /// Its peer has sent too many messages that contain nothing to store.
    Useless,
}

impl RefusalKind {
    /// All reasons.
    pub const ALL: [Self; 6] =
        [Self::Undecodable, Self::Version, Self::Contradiction, Self::Key, Self::Node, Self::Useless];

    /// Returns the value of the label `reason` in the collector's metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Undecodable => "undecodable",
            Self::Version => "version",
            Self::Contradiction => "contradiction",
            Self::Key => "key",
            Self::Node => "node",
            Self::Useless => "useless",
        }
    }

    /// Returns the remedy for the log.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Undecodable | Self::Version | Self::Contradiction => {
                "check that the peer is a polymeter-agent of this version"
            }
            Self::Useless => "the peer is not a polymeter-agent; use keys so that only your nodes can send",
            Self::Key => {
                "the agent keeps its data; to accept it again, restore its key in the directory of authorised agents"
            }
            Self::Node => {
                "name the key file NODE.pub after its node, or set bind_node_to_key = false if agents may send the data of any node"
            }
        }
    }
}

/// A refused message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRefusal {
    /// The kind of reason.
    pub kind: RefusalKind,
    /// The reason as text.
    pub reason: String,
}

impl MessageRefusal {
    pub fn contradiction(reason: impl Into<String>) -> Self {
        Self { kind: RefusalKind::Contradiction, reason: reason.into() }
    }
}

impl From<DecodeError> for MessageRefusal {
    fn from(error: DecodeError) -> Self {
        let kind = if matches!(error, DecodeError::Version { .. }) {
            RefusalKind::Version
        } else {
            RefusalKind::Undecodable
        };
        Self { kind, reason: error.to_string() }
    }
}
