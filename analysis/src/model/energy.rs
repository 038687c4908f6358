//! Energy of a job.

use std::ops::Range;

use serde::Serialize;

use crate::cumulative::Cumulative;

/// Sum over all nodes where it is known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Energy {
    pub joules: f64,
    /// Mean over the time of the job.
    pub watts_mean: Option<f64>,
    /// True if other jobs ran on one of the nodes, whose energy was divided by CPU time; false if it was
    /// measured.
    pub is_estimate: bool,
    /// Nodes where it is known.
    pub nodes: u64,
    pub parts: Vec<EnergyPart>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EnergyPart {
    /// `node` for whole nodes, or `processors`, `memory` or `gpus`.
    pub part: &'static str,
    pub joules: f64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeEnergy {
    /// Measured parts of the node, each with its counter.
    pub(crate) parts: Vec<(&'static str, Cumulative)>,
    /// True if the node's energy was divided between jobs.
    pub(crate) is_estimate: bool,
}

impl NodeEnergy {
    /// Energy over a time; none if it is unknown.
    pub fn joules(&self, span_ns: &Range<i64>) -> Option<f64> {
        let parts: Option<Vec<f64>> = self.parts.iter().map(|(_, part)| part.increase(span_ns)).collect();
        parts.filter(|parts| !parts.is_empty()).map(|parts| parts.into_iter().sum())
    }
}
