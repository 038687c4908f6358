//! Roofline of a job.

use serde::Serialize;

/// Floating-point operations of a job and bytes between its processors and the memory, against the roofs of
/// its nodes. Rates are means of a node. Without nodes there are no roofs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Roofline {
    pub memory_bytes_per_s: Option<f64>,
    pub double_flop_per_s: Option<f64>,
    pub single_flop_per_s: Option<f64>,
    /// Whole job, and then its phases, those with the most time first.
    pub parts: Vec<RooflinePart>,
    /// Grouped by reason.
    pub left_out: Vec<LeftOutNodes>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RooflinePart {
    /// None for the whole job.
    pub phase: Option<String>,
    pub nodes: u64,
    /// Time for which the figures are known, summed over the nodes.
    pub time_s: f64,
    pub flop_per_s: f64,
    pub bytes_per_s: f64,
    /// None if no byte was counted.
    pub flop_per_byte: Option<f64>,
    pub bound: Roof,
    pub roof_percent: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Roof {
    Memory,
    /// Peak of double precision.
    Arithmetic,
}

impl Roof {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Arithmetic => "arithmetic",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOutNodes {
    pub reason: String,
    pub nodes: u64,
    /// First of them.
    pub node: String,
}
