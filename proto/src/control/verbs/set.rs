//! `set`: a lease, under which metrics are sampled at other periods for a limited time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::control::fields::PlanFields;
use crate::control::refusal::PredictedCost;
use crate::control::verb::{Access, Remote, Verb};
use crate::step_level::StepLevel;

/// The fields of `set`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetRequest {
    /// The job's id; without it, the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// `step` or `task` for the periods of each step or task of the job; without it, those of the job as a
    /// whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<StepLevel>,
    /// Selectors and periods.
    #[serde(default)]
    pub plan: PlanFields,
    /// The duration, such as `10min`; without it, the maximum allowed.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
}

impl Verb for SetRequest {
    const NAME: &'static str = "set";
    const HELP: &'static str = "grants a lease: metrics are sampled at other periods for a while";
    const ACCESS: Access = Access::Owner;
    const REMOTE: Remote = Remote::GrantsLeases;
    const EXAMPLE: &'static str = r#"{"verb":"set","job":"4242","plan":{"cpu.usage":"10ms"},"for":"10min"}"#;
}

/// The answer to `set`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeaseAnswer {
    /// The effective period of each selected metric.
    pub metrics: BTreeMap<String, String>,
    /// The reasons why metrics are sampled less often than requested, by metric.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<String, String>,
    /// Selected metrics that are unavailable, with the reasons.
    pub unavailable: Vec<(String, String)>,
    /// The predicted cost of all sampling of the job from now on.
    pub cost: PredictedCost,
    /// The end of the lease, in microseconds since the epoch.
    pub until_us: i64,
    /// The level that was requested: `step` or `task`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<StepLevel>,
    /// The number of steps or tasks that are sampled now. Those that begin during the lease follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<usize>,
}
