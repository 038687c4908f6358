//! The roofline of a job.

use serde::Serialize;

/// The floating-point operations of a job and the bytes between its processors and the memory, against the
/// roofs of its nodes. Rates are means of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Roofline {
    /// The roof of the memory, in bytes per second; none without nodes.
    pub memory_bytes_per_s: Option<f64>,
    /// The roof of operations of double precision, per second.
    pub double_flop_per_s: Option<f64>,
    /// The roof of operations of single precision, per second.
    pub single_flop_per_s: Option<f64>,
    /// The whole job, and then its phases, those with the most time first.
    pub parts: Vec<RooflinePart>,
    /// The nodes that are not in it, by reason.
    pub left_out: Vec<LeftOutNodes>,
}

/// A phase of a job in its roofline, or the whole job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RooflinePart {
    /// The name of the phase; none for the whole job.
    pub phase: Option<String>,
    /// The number of nodes.
    pub nodes: u64,
    /// The time for which the figures are known, in seconds, summed over the nodes.
    pub time_s: f64,
    /// Floating-point operations per second.
    pub flop_per_s: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Operations per byte; none if no byte was counted.
    pub flop_per_byte: Option<f64>,
    pub bound: Roof,
    /// The share of this roof that it reached, in percent.
    pub roof_percent: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Roof {
    /// The bandwidth of the memory.
    Memory,
    /// The peak of floating-point operations of double precision.
    Arithmetic,
}

impl Roof {
    /// Returns its name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Arithmetic => "arithmetic",
        }
    }
}

/// Nodes that are not in a roofline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOutNodes {
    pub reason: String,
    /// Their number.
    pub nodes: u64,
    /// The first of them.
    pub node: String,
}
