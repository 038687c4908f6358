//! `keep_last`: the newest samples of a job's ring.

use serde::{Deserialize, Serialize};

use super::keep::KeepRequest;
use crate::control::fields::{identifier, invalid};
use crate::control::refusal::Refusal;
use crate::control::verb::{Access, Remote, Verb};
use crate::period::Period;
use crate::text::Text;

/// The first receiver fixes the interval by its clock, so that all nodes keep the same one. The user's clock
/// does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeepLastRequest {
    pub job: String,
    /// The time before now.
    pub last: String,
    /// For people.
    pub reason: Text,
}

impl Verb for KeepLastRequest {
    const NAME: &'static str = "keep_last";
    const HELP: &'static str = "sends what the ring of a job holds of the last time, as `keep`";
    const ACCESS: Access = Access::Owner;
    const REMOTE: Remote = Remote::ImmediateOrEnded;
    const EXAMPLE: &'static str =
        r#"{"verb":"keep_last","job":"4242","last":"30s","reason":"the solver diverged"}"#;
}

impl KeepLastRequest {
    /// Fixes the interval. `now_us` is in microseconds since the epoch, and `trigger` the number of the
    /// interval.
    ///
    /// # Errors
    ///
    /// Names the invalid field.
    pub fn fixed(self, now_us: i64, trigger: u64) -> Result<KeepRequest, Refusal> {
        let Self { job, last, reason } = self;
        identifier("job", &job)?;
        let last = last.parse::<Period>().map_err(|error| invalid("last", &error))?;
        let begin_us = now_us.saturating_sub_unsigned(last.as_micros());
        Ok(KeepRequest { job, begin_us, end_us: now_us, trigger, reason, owner_uid: None })
    }
}
