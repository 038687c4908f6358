//! `trigger_add`: a trigger of a job.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};
use crate::trigger::RuleFields;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriggerAddRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    pub rule: RuleFields,
}

impl Verb for TriggerAddRequest {
    const NAME: &'static str = "trigger_add";
    const HELP: &'static str = "adds a trigger to a job, or replaces the one of that name";
    const ACCESS: Access = Access::Owner;
    const REMOTE: Remote = Remote::AddsTrigger;
    const EXAMPLE: &'static str =
        r#"{"verb":"trigger_add","job":"4242","rule":{"name":"oom","when":"oom","keep":"30s"}}"#;
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerAddedAnswer {
    /// What prevents the trigger from working, with the remedy; empty if nothing does.
    pub notes: Vec<String>,
}
