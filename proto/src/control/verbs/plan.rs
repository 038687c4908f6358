//! `plan`: the sampled metrics with their periods.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};
use crate::step_level::StepLevel;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// None for the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

impl Verb for PlanRequest {
    const NAME: &'static str = "plan";
    const HELP: &'static str = "shows the sampled metrics, their periods and the cause of each period";
    const ACCESS: Access = Access::Viewer;
    const REMOTE: Remote = Remote::Immediate;
    const EXAMPLE: &'static str = r#"{"verb":"plan","job":"4242"}"#;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanAnswer {
    pub plan: Vec<PlanLine>,
    /// Requested metrics with the reasons why they are unavailable.
    pub unavailable: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedLine>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanLine {
    pub metric: String,
    /// Set for the period of each step or task; none for the job or node as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<StepLevel>,
    pub period: String,
    /// `baseline`, `registration`, `lease` and others.
    pub cause: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// End of the lease, in microseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_us: Option<i64>,
    /// Requested period, if a longer one is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Derived metrics for which it is sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_of: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedLine {
    /// Selector, or the original text of a request that cannot be parsed.
    pub request: String,
    /// Requested period; none if it cannot be parsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
    pub reason: String,
}
