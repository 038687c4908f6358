//! Series: a metric of a node or a job, with labels; and the compact ids that represent it on the wire.

mod containment;
mod identifier;
mod labels;
mod role;
mod value;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::MetricName;

pub use containment::{Device, SeriesOfSum, contained, role_of};
pub use identifier::{Identifier, InvalidIdentifier};
pub use labels::Labels;
pub use role::{InvalidRole, Role, RoleKind};
pub use value::{Kind, Number, Unit};

/// The compact id of a series within one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SeriesId(pub u32);

/// The compact id of a metric within one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MetricId(pub u32);

/// The compact id of a job within one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobHandle(pub u32);

/// The compact id of a shape within one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShapeId(pub u32);

/// The id of a session, the lifetime of one agent process: 64 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}

/// The dictionary entry of a metric.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MetricDescriptor {
    /// Its canonical name.
    pub name: MetricName,
    /// The unit of its values.
    pub unit: Unit,
    /// Counter or gauge.
    pub kind: Kind,
    /// The type of its values.
    pub number: Number,
}

/// The dictionary entry of a series. Its node is that of the session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SeriesDescriptor {
    pub metric: MetricId,
    /// The job whose series it is; none for the node's own.
    pub job: Option<JobHandle>,
    /// The labels that distinguish it from other series of the metric.
    pub labels: Labels,
}

/// The dictionary entry of a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobDescriptor {
    /// The scheduler's id of the job.
    pub job_id: Identifier,
    /// The cluster of the scheduler, if known.
    pub cluster: Option<Identifier>,
    /// The owner's numeric id, if known.
    pub owner_uid: Option<u32>,
    /// The owner's name, if known.
    pub owner: Option<Identifier>,
    /// The time at which this node began to track it, in microseconds since the epoch.
    pub started_us: i64,
}

/// The dictionary entry of the session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionDescriptor {
    /// The node's name.
    pub node: Identifier,
    pub agent_version: Identifier,
    /// The time at which the session began, in microseconds since the epoch.
    pub started_us: i64,
    /// The processors of the node.
    pub processors: Processors,
}

/// The processors of a node, as far as they are known. A core has several CPUs if these are its hardware
/// threads; cores of one node may differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Processors {
    /// The number of CPUs that are online.
    pub cpus: Option<u32>,
    /// The number of their cores.
    pub cores: Option<u32>,
    /// The roofs of the node, if they were measured.
    pub roofs: Option<Roofs>,
}

/// The roofs of a node: the limits that `polymeter calibrate` measured, per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Roofs {
    /// Bytes between the processors and the memory.
    pub memory_bytes_per_s: u64,
    /// Floating-point operations of double precision.
    pub double_flop_per_s: u64,
    /// Floating-point operations of single precision.
    pub single_flop_per_s: u64,
}

/// The series that are sampled together from one source at one period: the columns of a block.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ShapeDescriptor {
    /// The source, under the name that it has in tallies.
    pub source: Identifier,
    /// The series of the columns, in their order.
    pub series: Vec<SeriesId>,
}
