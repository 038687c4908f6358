//! State of the node, of jobs, of their sources and metrics, as users see it.

use std::path::PathBuf;

use polymeter_proto::ledger::Tally;
use polymeter_proto::period::{Period, Sampling};
use polymeter_proto::series::{Identifier, Unit};
use polymeter_proto::step_level::StepLevel;

use super::job::RefusedRequest;
use crate::in_force::InForce;
use crate::plan::Release;

#[derive(Debug, Clone, Default)]
pub struct View {
    /// Node first, then the jobs.
    pub subjects: Vec<JobView>,
}

#[derive(Debug, Clone)]
pub struct JobView {
    /// None for the node.
    pub job_id: Option<Identifier>,
    pub owner_uid: Option<u32>,
    pub owner: Option<Identifier>,
    /// Time at which this node began to track it, in microseconds since the epoch.
    pub started_us: Option<i64>,
    pub cgroups: Vec<PathBuf>,
    pub sources: Vec<SourceView>,
    pub unavailable: Vec<(String, String)>,
    /// Each metric with its period and the cause.
    pub plan: Vec<(String, InForce)>,
    pub step_plans: Vec<(StepLevel, (String, InForce))>,
    /// Release that is in force for its hardware events.
    pub release: Option<Release>,
    pub refused: Vec<RefusedRequest>,
}

#[derive(Debug, Clone)]
pub struct SourceView {
    pub name: String,
    pub tally: Tally,
    pub reads: u64,
    pub read_total_ns: u64,
    pub read_max_ns: u64,
}

/// A metric of the catalogue, as a job or the node has it.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricView {
    pub name: String,
    /// None if it is that of the catalogue.
    pub unit: Option<Unit>,
    pub availability: Availability,
    /// Period at which it is sampled; none where it is not.
    pub period: Option<Sampling>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Availability {
    /// Readers compute it from these metrics or quantities, all of which are available.
    Computed { from: Vec<String> },
    From {
        source: String,
        /// Mean duration.
        read_ns: f64,
        /// Shortest time between two updates of the metric by the hardware, if that limits the period.
        refresh_interval: Option<Period>,
    },
    /// Its source has no such line at the moment.
    NotNow,
    /// It is not available on this node, for this reason.
    No(String),
}
