//! `reset`: the end of the requester's leases on a job.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};
use crate::step_level::StepLevel;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResetRequest {
    /// None for the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Ends the leases of steps or tasks only; without it, all leases of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<StepLevel>,
}

impl Verb for ResetRequest {
    const NAME: &'static str = "reset";
    const HELP: &'static str = "ends the requester's leases; requested by an administrator, all leases";
    const ACCESS: Access = Access::Owner;
    const REMOTE: Remote = Remote::EndsLeases;
    const EXAMPLE: &'static str = r#"{"verb":"reset","job":"4242"}"#;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetAnswer {
    pub ended: usize,
}
