//! Intervals that rings kept, in a report.

use serde::Serialize;

/// Interval of a job of which rings kept all samples, on its nodes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct KeptReport {
    /// Description in words, without the reason.
    pub text: String,
    /// Why it was kept.
    pub reason: String,
    /// Seconds after the start of the job.
    pub begin_s: f64,
    pub end_s: f64,
    pub begin_us: i64,
    pub end_us: i64,
    /// Nodes that kept it.
    pub nodes: u64,
    pub samples: u64,
    /// Shortest usual time between two samples of a series; none if it is not known.
    pub period_us: Option<u64>,
    /// None unless memory grew in the last interval of the job.
    pub growth: Option<KeptGrowth>,
}

/// Growth of memory within an interval: of the node where it grew most, or of what grew most on it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct KeptGrowth {
    pub node: String,
    /// Process or task on the node; none if only its whole memory was kept.
    pub part: Option<String>,
    pub metric: String,
    /// First value of the interval, and its highest one.
    pub first_bytes: f64,
    pub highest_bytes: f64,
    /// Time between them.
    pub time_s: f64,
    /// Median of the growth on the other nodes; none for one node.
    pub others_bytes: Option<f64>,
}

impl KeptGrowth {
    pub fn bytes(&self) -> f64 {
        self.highest_bytes - self.first_bytes
    }

    /// What grew: `solver (4711) on n2`, or the node.
    pub fn of(&self) -> String {
        match &self.part {
            Some(part) => format!("{part} on {}", self.node),
            None => self.node.clone(),
        }
    }
}
