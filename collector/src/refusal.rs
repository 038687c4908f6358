//! What is refused, and why: for the answer to the agent, the log, and the count.

use polymeter_proto::wire::DecodeError;

/// Why a message is refused, as it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// It is neither a frame nor a message, or damaged.
    Undecodable,
    /// It is of a version of the protocol that this collector does not speak.
    Version,
    /// It says something that cannot be.
    Contradiction,
    /// The key of its connection is not authorised any more.
    Key,
    /// It speaks for a node that the key of its connection is not for.
    Node,
    /// Its peer has sent too much that is of no use.
    Useless,
}

impl RefusalKind {
    /// All there are.
    pub const ALL: [Self; 6] =
        [Self::Undecodable, Self::Version, Self::Contradiction, Self::Key, Self::Node, Self::Useless];

    /// The word for it in the collector's own metrics.
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

    /// What an administrator can do.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Undecodable | Self::Version | Self::Contradiction => {
                "is it a polymeter-agent of this version?"
            }
            Self::Useless => "no agent does that; use keys, so that only your nodes can send",
            Self::Key => {
                "the agent keeps its data until its key is back in the directory of authorised agents"
            }
            Self::Node => {
                "name the node's key file NODE.pub after its node, or set bind_node_to_key = false if agents may speak for any node"
            }
        }
    }
}

/// A message that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// How it is counted.
    pub kind: RefusalKind,
    /// Why, for a person to read.
    pub why: String,
}

impl Refusal {
    /// What cannot be, for the reason `why`.
    pub fn contradiction(why: impl Into<String>) -> Self {
        Self { kind: RefusalKind::Contradiction, why: why.into() }
    }
}

impl From<DecodeError> for Refusal {
    fn from(error: DecodeError) -> Self {
        let kind = if matches!(error, DecodeError::Version { .. }) {
            RefusalKind::Version
        } else {
            RefusalKind::Undecodable
        };
        Self { kind, why: error.to_string() }
    }
}
