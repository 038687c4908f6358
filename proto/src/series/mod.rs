//! Series: a metric of a node or a job, with labels; and the compact ids that represent it on the wire.

mod containment;
mod identifier;
mod labels;
mod role;
mod served_node;
mod value;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::MetricName;
use crate::period::Period;

pub use containment::{Device, SeriesOfSum, contained, role_of};
pub use identifier::{Identifier, InvalidIdentifier};
pub use labels::Labels;
pub use role::{InvalidRole, Role, RoleKind};
pub use served_node::{
    ALL_NODES, DEVICE_METRICS, JOB_CLUSTER_LABEL, JOB_LABEL, JobName, job_name, served_node,
};
pub use value::{Kind, Number, Unit};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SeriesId(pub u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MetricId(pub u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobHandle(pub u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShapeId(pub u32);

/// Id of a session, the lifetime of one agent process: 64 random bits.
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

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MetricDescriptor {
    pub name: MetricName,
    pub unit: Unit,
    pub kind: Kind,
    pub number: Number,
}

/// Dictionary entry of a series, which belongs to the node of the session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SeriesDescriptor {
    pub metric: MetricId,
    /// None for the node's own series.
    pub job: Option<JobHandle>,
    /// Labels that distinguish it from other series of the metric.
    pub labels: Labels,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobDescriptor {
    /// Id of the scheduler.
    pub job_id: Identifier,
    pub cluster: Option<Identifier>,
    /// Numeric id of the owner, if known.
    pub owner_uid: Option<u32>,
    pub owner: Option<Identifier>,
    /// Time at which this node began to track the job, in microseconds since the epoch.
    pub started_us: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionDescriptor {
    pub node: Identifier,
    pub agent_version: Identifier,
    /// Microseconds since the epoch.
    pub started_us: i64,
    pub processors: Processors,
}

/// Processors of a node, as far as they are known. A core has several CPUs if these are its hardware threads;
/// cores of one node may differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Processors {
    pub cpus: Option<u32>,
    /// Cores of the online CPUs.
    pub cores: Option<u32>,
    /// None if they were not measured.
    pub roofs: Option<Roofs>,
}

/// Roofs of a node: the limits that `polymeter calibrate` measured, per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Roofs {
    /// Bytes between the processors and the memory.
    pub memory_bytes_per_s: u64,
    /// Floating-point operations of double precision.
    pub double_flop_per_s: u64,
    /// Floating-point operations of single precision.
    pub single_flop_per_s: u64,
}

/// Series that are sampled together from one source at one period: the columns of a block.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ShapeDescriptor {
    /// Name that the source has in tallies.
    pub source: Identifier,
    /// Period of the samples if each row summarises a window of them.
    pub inner_period: Option<Period>,
    /// Series of the columns, in their order.
    pub series: Vec<SeriesId>,
}
