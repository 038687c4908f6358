//! Marks and values that users put into the data.

use polymeter_proto::catalogue::REGIONS;
use polymeter_proto::ledger::MarkKind;
use polymeter_proto::series::{Identifier, Labels, MetricDescriptor, Unit};

use super::access::AccessError;
use crate::principal::Principal;

/// An instant, or the begin or end of a phase, to be put into the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkSpec {
    pub principal: Principal,
    /// None for the node.
    pub job_id: Option<Identifier>,
    pub name: Identifier,
    pub kind: MarkKind,
}

/// A value that no source reads, to be put into the data: of a user's own metric, or of the program in which
/// the agent runs.
#[derive(Debug, Clone, PartialEq)]
pub struct PushSpec {
    pub principal: Principal,
    pub job_id: Option<Identifier>,
    /// A user's metric, whose name begins with `user.`, has [`Unit::Labelled`]; the limits apply to these.
    pub metric: MetricDescriptor,
    pub value: f64,
    /// Labels of the series, its unit among them.
    pub labels: Labels,
}

impl PushSpec {
    pub(crate) fn is_users_own(&self) -> bool {
        self.metric.unit == Unit::Labelled
    }
}

/// Sums of the regions of a process, to be put into the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionsSpec {
    pub principal: Principal,
    pub job_id: Identifier,
    pub is_last: bool,
    pub regions: Vec<RegionSpec>,
}

/// Sums of a region of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionSpec {
    pub labels: Labels,
    /// Values of [`polymeter_proto::catalogue::REGIONS`], in their order.
    pub values: [u64; REGIONS.len()],
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnnotateError {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("the job has reached the limit of {0} user-supplied series")]
    TooManySeries(usize),
    #[error(
        "the job has reached the limit of {0} regions of processes on this node; those before it are recorded"
    )]
    TooManyRegions(usize),
    #[error(
        "you have reached the limit of {0} names of metrics in all jobs on this node; use labels in place of names, or \
         names that you used before"
    )]
    TooManyNames(usize),
    #[error("no phase `{name}` has begun in this job on this node; {}", of_phase(name, similar.as_deref()))]
    NotBegun {
        name: Identifier,
        /// Most similar name of a phase that has begun, if there is one.
        similar: Option<String>,
    },
    #[error(
        "too many for this job: at most {per_second} a second in the long run; send fewer, or try again in a second"
    )]
    TooFast { per_second: u32 },
}

fn of_phase(name: &Identifier, similar: Option<&str>) -> String {
    match similar {
        Some(similar) => format!("did you mean `{similar}`?"),
        None => format!("begin it with `polymeter mark {name} --begin`"),
    }
}
