//! `trigger_remove`: the end of a trigger of a job.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriggerRemoveRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    pub name: String,
}

impl Verb for TriggerRemoveRequest {
    const NAME: &'static str = "trigger_remove";
    const HELP: &'static str = "removes a trigger that was added to a job";
    const ACCESS: Access = Access::Owner;
    const REMOTE: Remote = Remote::RemovesTrigger;
    const EXAMPLE: &'static str = r#"{"verb":"trigger_remove","job":"4242","name":"oom"}"#;
}
