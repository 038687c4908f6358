//! Requests about the triggers of a job, and their results.

use polymeter_proto::ledger::Firing;
use polymeter_proto::series::Identifier;
use polymeter_proto::text::Text;
use polymeter_proto::trigger::Rule;

use super::access::AccessError;
use crate::delivery::ring::HeldSpan;
use crate::principal::Principal;
use crate::triggers::{AddError, Listed};

#[derive(Debug, Clone)]
pub struct TriggerSpec {
    pub principal: Principal,
    pub job_id: Identifier,
    pub rule: Rule,
}

/// Interval of the ring of a job that should be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeepSpec {
    pub principal: Principal,
    pub job_id: Identifier,
    /// Owner of the job; none if any is meant.
    pub owner_uid: Option<u32>,
    /// Microseconds since the epoch.
    pub begin_us: i64,
    /// Microseconds since the epoch.
    pub end_us: i64,
    pub trigger: u64,
    pub reason: Text,
}

/// What the ring has of an interval that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptPart {
    /// Microseconds since the epoch.
    pub begin_us: i64,
    /// Microseconds since the epoch.
    pub end_us: i64,
    /// Samples, those that are still to be taken included in the times. None if there are none yet.
    pub part: Option<HeldSpan>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TriggerError {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Add(#[from] AddError),
    #[error(
        "the job has no ring on this node, or an empty one; `polymeter set --ring 'cpu.*=10ms'` gives it one"
    )]
    NoRing,
    #[error("the ring of the job has no samples on this node yet; try again in a few seconds")]
    NotYet,
    #[error(
        "the ring of the job is empty on this node: its lease has ended; `polymeter set --ring 'cpu.*=10ms'` \
         gives it samples again"
    )]
    Empty,
    #[error(
        "the ring of the job has samples from {from} to {until} UTC on this node, and none of this interval; \
         ask for a longer time"
    )]
    Outside { from: String, until: String },
    #[error("too many intervals wait to be kept; try again in a moment")]
    Busy,
    #[error("an interval of a ring is at most {longest_s} s long; ask for a shorter one")]
    TooLong { longest_s: i64 },
    #[error("the interval ends more than a minute from now by this node's clock; compare the clocks")]
    Ahead,
    #[error("no trigger `{0}` was added to the job; `polymeter trigger list` shows them")]
    Unknown(Identifier),
}

#[derive(Debug, Clone)]
pub struct TriggersView {
    pub triggers: Vec<Listed>,
    pub fired: Vec<Firing>,
}
