//! `mark`: a named instant, or the begin or end of a phase, in the data of a job.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MarkRequest {
    /// None for the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    pub name: String,
    /// `instant`, `begin` or `end`; `instant` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

impl Verb for MarkRequest {
    const NAME: &'static str = "mark";
    const HELP: &'static str = "records a named instant, or the begin or end of a phase";
    const ACCESS: Access = Access::Owner;
    const REMOTE: Remote = Remote::Immediate;
    const EXAMPLE: &'static str = r#"{"verb":"mark","job":"4242","name":"solver","kind":"begin"}"#;
}
