//! `pmu_resume`: the end of the requester's `pmu_release`.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PmuResumeRequest {
    /// None for the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

impl Verb for PmuResumeRequest {
    const NAME: &'static str = "pmu_resume";
    const HELP: &'static str =
        "opens the hardware events again that the requester released; requested by an administrator, all";
    const ACCESS: Access = Access::Owner;
    const REMOTE: Remote = Remote::EndsLeases;
    const EXAMPLE: &'static str = r#"{"verb":"pmu_resume","job":"4242"}"#;
}
