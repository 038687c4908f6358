//! Properties of a verb, declared in its file.

use serde::Serialize;
use serde::de::DeserializeOwned;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Every principal, for a verb that names no job.
    Everybody,
    /// Every principal. The answer is restricted to the jobs that the principal may see.
    Viewer,
    /// The owner of the job, and administrators; for the node administrators alone.
    Owner,
    Administrator,
    /// The collector, in the name of a job's owner.
    Collector,
}

impl Access {
    /// Returns the access rule in the words of the reference.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Everybody => "everybody",
            Self::Viewer => "everybody, for the jobs that the user may see",
            Self::Owner => "the job's owner; for the node, administrators",
            Self::Administrator => "administrators",
            Self::Collector => "the collector",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remote {
    /// Refused: the verb is available on the control socket of the node only.
    Refused,
    /// Only the collector itself sends it: users use the control socket of the node.
    CollectorOnly,
    /// All nodes of the job execute it at once. It has no lasting effect.
    Immediate,
    /// As [`Self::Immediate`], also on nodes where the job has ended a while ago.
    ImmediateOrEnded,
    /// The first node of the job by name that can be reached executes it at once.
    OneNode,
    /// All nodes of the job grant leases at one common time. Disconnected nodes receive it when they
    /// reconnect.
    GrantsLeases,
    /// All nodes of the job end leases at one common time. Disconnected nodes receive it when they reconnect.
    EndsLeases,
    /// All nodes of the job add a trigger. Disconnected nodes, and agents that start again, receive it when
    /// they connect.
    AddsTrigger,
    /// All nodes of the job remove a trigger. Disconnected nodes receive it when they reconnect.
    RemovesTrigger,
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
            Self::ImmediateOrEnded => "all nodes of the job, also after its end",
            Self::OneNode => "the first node of the job",
            Self::GrantsLeases | Self::EndsLeases | Self::AddsTrigger | Self::RemovesTrigger => {
                "all nodes of the job, at one common time"
            }
        }
    }
}

/// Request of the control language: a struct whose fields are those of the JSON object, without `verb`.
pub trait Verb: Serialize + DeserializeOwned {
    const NAME: &'static str;
    const HELP: &'static str;
    const ACCESS: Access;
    const REMOTE: Remote;
    /// A valid request, which names the job `4242` where the verb has a field `job`.
    const EXAMPLE: &'static str;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerbInfo {
    pub name: &'static str,
    pub help: &'static str,
    pub access: Access,
    pub remote: Remote,
    pub example: &'static str,
}

impl VerbInfo {
    pub const fn of<V: Verb>() -> Self {
        Self { name: V::NAME, help: V::HELP, access: V::ACCESS, remote: V::REMOTE, example: V::EXAMPLE }
    }
}
