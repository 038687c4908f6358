//! `keep`: an interval of a job's ring.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};
use crate::text::Text;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeepRequest {
    pub job: String,
    /// Microseconds since the epoch.
    pub begin_us: i64,
    /// Microseconds since the epoch.
    pub end_us: i64,
    /// Number of the interval, the same on all nodes.
    pub trigger: u64,
    /// For people.
    pub reason: Text,
    /// Owner of the job; none if it is that of the requester, or unknown. On some node another user may have
    /// a job of the same id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_uid: Option<u32>,
}

/// What the ring of a node has of an interval. Times are in microseconds since the epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepsAnswer {
    pub begin_us: i64,
    pub end_us: i64,
    /// Part of the interval with samples, those included that are still to be taken. None if there are none
    /// yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_us: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_us: Option<i64>,
    /// Estimate of the samples that are there now, those included that were sent before.
    pub samples: u64,
}

impl Verb for KeepRequest {
    const NAME: &'static str = "keep";
    const HELP: &'static str = "sends what the ring of a job holds of an interval";
    const ACCESS: Access = Access::Owner;
    const REMOTE: Remote = Remote::ImmediateOrEnded;
    const EXAMPLE: &'static str = r#"{"verb":"keep","job":"4242","begin_us":1790000000000000,"end_us":1790000035000000,"trigger":17,"reason":"the solver diverged"}"#;
}
