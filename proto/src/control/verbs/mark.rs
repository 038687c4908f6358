//! `mark`: a named instant, or the begin or end of a phase, in the data of a job.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};

/// The fields of `mark`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MarkRequest {
    /// The job's id; without it, the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The name of the instant or phase.
    pub name: String,
    /// `instant`, `begin` or `end`; without it, an instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

impl Verb for MarkRequest {
    const NAME: &'static str = "mark";
    const HELP: &'static str = "puts a named instant, or the begin or end of a phase, into the data";
    const ACCESS: Access = Access::Owner;
    const REMOTE: Remote = Remote::Immediate;
    const EXAMPLE: &'static str = r#"{"verb":"mark","job":"4242","name":"solver","kind":"begin"}"#;
}
