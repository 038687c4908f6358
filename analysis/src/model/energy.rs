//! Energy of a job.

use std::ops::Range;

use serde::Serialize;

use crate::cumulative::Cumulative;

/// Sum over all nodes where it is known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Energy {
    pub joules: f64,
    /// Half the length of the error bar, the sum over the nodes; none if it is unknown on one of them.
    pub error_joules: Option<f64>,
    /// Mean over the time of the job.
    pub watts_mean: Option<f64>,
    /// Grams of carbon dioxide; none without intensities of all these nodes.
    pub carbon_grams: Option<f64>,
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

/// Energy of a node that the job had alone by one source. Those of one node stand beside each other; their
/// sum has no meaning.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EnergyBySource {
    pub node: String,
    /// Metric, behind that of the device if a device measured it.
    pub name: String,
    pub devices: Vec<String>,
    /// Sensor of the device; empty for others.
    pub sensor: String,
    /// `node` for the whole node, `processors`, `memory` or `gpus`, or `unknown` for a sensor of a device.
    pub part: &'static str,
    /// True for the source of the whole node with the smallest error of its own.
    pub is_best: bool,
    pub joules: f64,
    /// Its own error; of the best source at least the greatest difference to another one of the whole node.
    pub error_joules: f64,
    /// Median of the times between its values.
    pub period_s: f64,
    /// Delay behind the source with the shortest period; none if it is this one or cannot be told.
    pub delay_s: Option<f64>,
    pub delay_error_s: Option<f64>,
}

/// Energy of a part of a node of the job by the source that counts for the job.
#[derive(Debug, Clone, PartialEq)]
pub struct CountedEnergy {
    pub node: String,
    pub part: &'static str,
    /// As the names of [`EnergyBySource`].
    pub source: String,
    pub joules: f64,
    /// True if the node's energy was divided between jobs.
    pub is_estimate: bool,
}

/// Measured part of a node, with its counter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MeasuredPart {
    pub(crate) part: &'static str,
    pub(crate) source: String,
    pub(crate) energy: Cumulative,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeEnergy {
    pub(crate) parts: Vec<MeasuredPart>,
    /// True if the node's energy was divided between jobs.
    pub(crate) is_estimate: bool,
    /// Half the length of the error bar over the time of the job; none if it is unknown.
    pub(crate) error_joules: Option<f64>,
}

impl NodeEnergy {
    /// Energy over a time; none if it is unknown.
    pub fn joules(&self, span_ns: &Range<i64>) -> Option<f64> {
        let parts: Option<Vec<f64>> = self.parts.iter().map(|part| part.energy.increase(span_ns)).collect();
        parts.filter(|parts| !parts.is_empty()).map(|parts| parts.into_iter().sum())
    }
}
