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
}

impl Verb for KeepRequest {
    const NAME: &'static str = "keep";
    const HELP: &'static str = "sends what the ring of a job holds of an interval";
    const ACCESS: Access = Access::Owner;
    const REMOTE: Remote = Remote::ImmediateOrEnded;
    const EXAMPLE: &'static str = r#"{"verb":"keep","job":"4242","begin_us":1790000000000000,"end_us":1790000035000000,"trigger":17,"reason":"the solver diverged"}"#;
}
