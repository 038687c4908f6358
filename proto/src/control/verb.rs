//! The properties of a verb, declared in its file.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The principals that may use a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Every principal, for a verb that names no job.
    Everybody,
    /// Every principal. The answer is restricted to the jobs that the principal may see.
    Viewer,
    /// The owner of the job, and administrators; for the node administrators alone.
    Owner,
    Administrator,
}

impl Access {
    /// Returns the access rule in the words of the reference.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Everybody => "everybody",
            Self::Viewer => "everybody, for the jobs that the user may see",
            Self::Owner => "the job's owner; for the node, administrators",
            Self::Administrator => "administrators",
        }
    }
}

/// The treatment of a verb that arrives through the collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remote {
    /// It is refused: the verb is available on the control socket of the node only.
    Refused,
    /// Only the collector itself sends it, for no user: users use the control socket of the node.
    CollectorOnly,
    /// All nodes of the job execute it at once. It has no lasting effect.
    Immediate,
    /// One node of the job executes it at once: the first by name that can be reached.
    OneNode,
    /// All nodes of the job grant leases at one common time. Disconnected nodes receive it when they
    /// reconnect.
    GrantsLeases,
    /// All nodes of the job end leases at one common time. Disconnected nodes receive it when they reconnect.
    EndsLeases,
}

impl Remote {
    /// Returns true if the collector passes the requests of users on.
    pub const fn is_for_users(self) -> bool {
        !matches!(self, Self::Refused | Self::CollectorOnly)
    }

    /// Returns the treatment in the words of the reference.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "no",
            Self::CollectorOnly => "no; the collector itself asks each agent",
            Self::Immediate => "all nodes of the job",
            Self::OneNode => "the first node of the job",
            Self::GrantsLeases | Self::EndsLeases => "all nodes of the job, at one common time",
        }
    }
}

/// A request of the control protocol: a struct whose fields are those of the JSON object, without `verb`.
pub trait Verb: Serialize + DeserializeOwned {
    /// The value of the field `verb`.
    const NAME: &'static str;
    /// One line for the reference, beginning with a verb.
    const HELP: &'static str;
    /// The principals that may use it.
    const ACCESS: Access;
    /// The treatment of a request through the collector.
    const REMOTE: Remote;
    /// A valid request, which names the job `4242` where the verb has a field `job`.
    const EXAMPLE: &'static str;
}

/// The properties of one verb, for listings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerbInfo {
    /// The value of the field `verb`.
    pub name: &'static str,
    /// One line for the reference.
    pub help: &'static str,
    /// The principals that may use it.
    pub access: Access,
    /// The treatment of a request through the collector.
    pub remote: Remote,
    /// A valid request.
    pub example: &'static str,
}

impl VerbInfo {
    /// Returns the properties of `V`.
    pub const fn of<V: Verb>() -> Self {
        Self { name: V::NAME, help: V::HELP, access: V::ACCESS, remote: V::REMOTE, example: V::EXAMPLE }
    }
}
