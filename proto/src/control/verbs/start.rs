//! `start`: the announcement of a job by the scheduler's prolog.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::control::fields::PlanFields;
use crate::control::refusal::Refusal;
use crate::control::verb::{Access, Remote, Verb};
use crate::ledger::JobDetails;
use crate::text::Text;
use crate::trigger::RuleFields;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    pub job: String,
    /// Another id in the names of the job's cgroups: Slurm's SLUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Sampling request of the owner: selectors and periods.
    #[serde(default)]
    pub plan: PlanFields,
    #[serde(default, skip_serializing_if = "PlanFields::is_empty")]
    pub steps: Box<PlanFields>,
    #[serde(default, skip_serializing_if = "PlanFields::is_empty")]
    pub tasks: Box<PlanFields>,
    #[serde(default, skip_serializing_if = "PlanFields::is_empty")]
    pub ring: Box<PlanFields>,
    /// Triggers that the owner requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<RuleFields>,
    /// True to close the hardware events of the job: for `duration`, else for as long as the job runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pmu_release: bool,
    /// Time for which hardware events are closed; without it, the allowed maximum.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// Original text of a request that cannot be parsed as a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_error: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Nodes in the scheduler's notation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// Cores on all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    #[serde(default, skip_serializing_if = "JobDetails::is_empty")]
    pub details: Box<JobDetails>,
    /// GPUs on this node: their numbers or UUIDs, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_devices: Option<String>,
    /// What the scheduler said and could not be read, with the names of the fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<Box<Text>>,
}

impl Verb for StartRequest {
    const NAME: &'static str = "start";
    const HELP: &'static str = "announces a job of the scheduler; it is tracked as soon as its cgroups exist";
    const ACCESS: Access = Access::Administrator;
    const REMOTE: Remote = Remote::Refused;
    const EXAMPLE: &'static str =
        r#"{"verb":"start","job":"4242","uid":1000,"plan":{"cpu.usage":"10ms"},"for":"1h"}"#;
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartedAnswer {
    /// Effective periods of the owner's sampling request for the job as a whole. None if the job's cgroups do
    /// not exist yet, or nothing was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Box<Refusal>>,
}
