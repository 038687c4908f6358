//! `triggers`: the triggers of a job, and what has fired.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriggersRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

impl Verb for TriggersRequest {
    const NAME: &'static str = "triggers";
    const HELP: &'static str = "the triggers of a job, and what has fired";
    const ACCESS: Access = Access::Owner;
    const REMOTE: Remote = Remote::Immediate;
    const EXAMPLE: &'static str = r#"{"verb":"triggers","job":"4242"}"#;
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggersAnswer {
    pub triggers: Vec<TriggerLine>,
    /// Latest firings on the node, the oldest first.
    pub fired: Vec<FiringLine>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerLine {
    pub name: String,
    pub when: String,
    /// User who added it; none for a trigger of the site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What is done, in words.
    pub actions: String,
    /// Firings that the hold-off or a budget has prevented.
    pub held_back: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FiringLine {
    /// Number of the intervals that were kept because of it.
    pub trigger: u64,
    pub name: String,
    /// Microseconds since the epoch.
    pub at_us: i64,
    pub why: String,
    /// What was done, with its predicted cost, or why it could not be done.
    pub actions: String,
}
