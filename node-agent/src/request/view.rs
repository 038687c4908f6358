//! The state of the node, of jobs, of their sources and metrics, as users see it.

use std::path::PathBuf;

use polymeter_proto::ledger::Tally;
use polymeter_proto::period::Period;
use polymeter_proto::series::Identifier;
use polymeter_proto::step_level::StepLevel;

use super::job::RefusedRequest;
use crate::in_force::InForce;
use crate::plan::Release;

/// The state of the node and of all tracked jobs.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The node first, then the jobs.
    pub subjects: Vec<JobView>,
}

/// The state of one job, or of the node.
#[derive(Debug, Clone)]
pub struct JobView {
    /// The job's id; none for the node.
    pub job_id: Option<Identifier>,
    /// Its owner's numeric id.
    pub owner_uid: Option<u32>,
    /// Its owner's name.
    pub owner: Option<Identifier>,
    /// The time at which this node began to track it, in microseconds since the epoch.
    pub started_us: Option<i64>,
    /// Its cgroup directories.
    pub cgroups: Vec<PathBuf>,
    pub sources: Vec<SourceView>,
    /// Metrics that are unavailable, with the reasons.
    pub unavailable: Vec<(String, String)>,
    /// The plan in force: each metric with its period and the cause.
    pub plan: Vec<(String, InForce)>,
    /// The plan in force of its steps and of their tasks.
    pub step_plans: Vec<(StepLevel, (String, InForce))>,
    /// The release of its hardware events that is in force.
    pub release: Option<Release>,
    /// Sampling requests at submission that are not granted.
    pub refused: Vec<RefusedRequest>,
}

/// The state of one source.
#[derive(Debug, Clone)]
pub struct SourceView {
    pub name: String,
    /// The counts of its samples.
    pub tally: Tally,
    /// The number of reads.
    pub reads: u64,
    /// The sum of the durations of all reads, in nanoseconds.
    pub read_total_ns: u64,
    /// The longest duration of a read, in nanoseconds.
    pub read_max_ns: u64,
}

/// One metric of the catalogue, as a job or the node has it.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricView {
    pub name: String,
    pub availability: Availability,
    /// The period at which it is sampled; none where it is not.
    pub period: Option<Period>,
}

/// The availability of a metric.
#[derive(Debug, Clone, PartialEq)]
pub enum Availability {
    /// Readers compute it from other metrics or quantities, all of which are available.
    Computed {
        /// These.
        from: Vec<String>,
    },
    /// It is read from a source.
    From {
        source: String,
        /// The mean duration of a read, in nanoseconds.
        read_ns: f64,
        /// The shortest time between two updates of the metric by the hardware, if that limits the period.
        refresh_interval: Option<Period>,
    },
    /// Its source has no such line at the moment.
    NotNow,
    /// It is not available on this node, with the reason.
    No(String),
}
