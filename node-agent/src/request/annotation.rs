//! Marks and values that users put into the data.

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
    /// The value.
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

/// The reason why a mark or a value is not put into the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AnnotateError {
    /// Access is denied.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The job has as many user-supplied series as are allowed.
    #[error("the job has reached the limit of {0} user-supplied series")]
    TooManySeries(usize),
    /// Too many arrived recently.
    #[error("rate limit of {per_second} marks and values per second reached for this job; send fewer")]
    TooFast {
        /// The allowed rate in the long run, per second.
        per_second: u32,
    },
}
