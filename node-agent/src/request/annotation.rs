//! Marks and values that users put into the data.

use polymeter_proto::catalogue::REGIONS;
use polymeter_proto::ledger::MarkKind;
use polymeter_proto::series::{Identifier, Labels, MetricDescriptor, Unit};

use super::access::AccessError;
use crate::principal::Principal;

/// An instant, or the begin or end of a phase, to be put into the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkSpec {
    /// The requester.
    pub principal: Principal,
    /// The job; none for the node.
    pub job_id: Option<Identifier>,
    /// The name of the instant or phase.
    pub name: Identifier,
    /// An instant, or the begin or end of a phase.
    pub kind: MarkKind,
}

/// A value that no source reads, to be put into the data: of a user's own metric, or of the program in which
/// the agent runs.
#[derive(Debug, Clone, PartialEq)]
pub struct PushSpec {
    /// The requester.
    pub principal: Principal,
    /// The job; none for the node.
    pub job_id: Option<Identifier>,
    /// The metric. The unit of a user's metric, whose name begins with `user.`, is [`Unit::Labelled`]; the
    /// limits apply to these.
    pub metric: MetricDescriptor,
    pub value: f64,
    /// The labels of the series, its unit among them.
    pub labels: Labels,
}

impl PushSpec {
    /// Returns true for a value of a user's own metric.
    pub(crate) fn is_users_own(&self) -> bool {
        self.metric.unit == Unit::Labelled
    }
}

/// The sums of the regions of a process, to be put into the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionsSpec {
    /// The requester.
    pub principal: Principal,
    pub job_id: Identifier,
    /// True if the process ends.
    pub is_last: bool,
    pub regions: Vec<RegionSpec>,
}

/// The sums of a region of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionSpec {
    /// The labels of its series.
    pub labels: Labels,
    /// The values of [`polymeter_proto::catalogue::REGIONS`], in their order.
    pub values: [u64; REGIONS.len()],
}

/// The reason why a mark or a value is not put into the data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnnotateError {
    /// Access is denied.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The job has as many user-supplied series as are allowed.
    #[error("the job has reached the limit of {0} user-supplied series")]
    TooManySeries(usize),
    /// The job has as many regions of processes as are allowed. Those that were known before are recorded.
    #[error(
        "the job has reached the limit of {0} regions of processes on this node; those before it are recorded"
    )]
    TooManyRegions(usize),
    /// The user has named as many metrics in all jobs as are allowed.
    #[error(
        "you have reached the limit of {0} names of metrics in all jobs on this node; use labels in place of names, or \
         names that you used before"
    )]
    TooManyNames(usize),
    /// A phase ends that has not begun on this node.
    #[error("no phase `{name}` has begun in this job on this node; {}", of_phase(name, similar.as_deref()))]
    NotBegun {
        /// The name of the phase.
        name: Identifier,
        /// The most similar name of a phase that has begun, if there is one.
        similar: Option<String>,
    },
    /// Too many arrived recently.
    #[error(
        "too many for this job: at most {per_second} a second in the long run; send fewer, or try again in a second"
    )]
    TooFast {
        /// The allowed rate in the long run, per second.
        per_second: u32,
    },
}

/// Returns the remedy for a phase that has not begun.
fn of_phase(name: &Identifier, similar: Option<&str>) -> String {
    match similar {
        Some(similar) => format!("did you mean `{similar}`?"),
        None => format!("begin it with `polymeter mark {name} --begin`"),
    }
}
