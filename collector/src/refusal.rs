//! Refused messages: the reason for the agent's answer, the log and the metrics.

use polymeter_proto::wire::DecodeError;

/// Reason of a refusal, by which the metrics count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    Undecodable,
    /// Version of the protocol that this collector does not support.
    Version,
    /// Contents contradict each other or earlier messages.
    Contradiction,
    /// Key of its connection is no longer authorised.
    Key,
    /// The connection's key is bound to another node.
    Node,
    /// Peer has sent too many messages that contain nothing to store.
    Useless,
}

impl RefusalKind {
    pub const ALL: [Self; 6] =
        [Self::Undecodable, Self::Version, Self::Contradiction, Self::Key, Self::Node, Self::Useless];

    /// Label `reason` in the collector's metrics.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRefusal {
    pub kind: RefusalKind,
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
