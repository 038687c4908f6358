//! `plan`: the sampled metrics with their periods.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};
use crate::step_level::StepLevel;

/// The fields of `plan`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// The job's id; without it, the node.
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

/// The answer to `plan`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanAnswer {
    /// The sampled metrics.
    pub plan: Vec<PlanLine>,
    /// Metrics that are requested and unavailable, with the reasons.
    pub unavailable: Vec<(String, String)>,
    /// The refused requests of the job's submission.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedLine>,
}

/// One metric of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanLine {
    pub metric: String,
    /// `step` or `task` for the period of each step or task; without it, of the job or node as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<StepLevel>,
    /// The period in force.
    pub period: String,
    /// The cause of the period: `baseline`, `registration`, `lease`.
    pub cause: String,
    /// The holder of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The end of the lease, in microseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_us: Option<i64>,
    /// The requested period, if a longer one is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<String>,
    /// The reason why a longer period than the requested one is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The derived metrics for which it is sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_of: Vec<String>,
}

/// A request at submission that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedLine {
    /// The selector, or the original text of a request that cannot be parsed.
    pub request: String,
    /// The requested period, if it can be parsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
    /// The reason of the refusal.
    pub reason: String,
}
