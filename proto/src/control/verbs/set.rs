//! `set`: a lease, under which metrics are sampled at other periods for a limited time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::control::fields::PlanFields;
use crate::control::refusal::PredictedCost;
use crate::control::verb::{Access, Remote, Verb};
use crate::step_level::StepLevel;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetRequest {
    /// None for the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Sets the periods of each step or task; without it, the job's as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<StepLevel>,
    /// True if the samples go to the ring of the job, and not to the collector.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ring: bool,
    #[serde(default)]
    pub plan: PlanFields,
    /// A duration such as `10min`; the allowed maximum if none.
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeaseAnswer {
    /// Effective period of each selected metric.
    pub metrics: BTreeMap<String, String>,
    /// Why metrics are sampled less often than requested, by metric.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<String, String>,
    /// Selected metrics with the reasons why they are unavailable.
    pub unavailable: Vec<(String, String)>,
    /// Predicted cost of all sampling of the job from now on.
    pub cost: PredictedCost,
    /// End of the lease, in microseconds since the epoch.
    pub until_us: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<StepLevel>,
    /// Steps or tasks that are sampled now. Those that begin during the lease follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<usize>,
}
