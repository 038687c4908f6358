//! `start`: the announcement of a job by the scheduler's prolog.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::control::fields::PlanFields;
use crate::control::refusal::Refusal;
use crate::control::verb::{Access, Remote, Verb};
use crate::ledger::JobDetails;
use crate::text::Text;

/// The fields of `start`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// The job's id.
    pub job: String,
    /// Another id in the names of its cgroups: Slurm's SLUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The owner's numeric id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The owner's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The owner's sampling request: selectors and periods.
    #[serde(default)]
    pub plan: PlanFields,
    /// The owner's sampling request for each step of the job.
    #[serde(default, skip_serializing_if = "PlanFields::is_empty")]
    pub steps: Box<PlanFields>,
    /// The owner's sampling request for each task of every step.
    #[serde(default, skip_serializing_if = "PlanFields::is_empty")]
    pub tasks: Box<PlanFields>,
    /// True if the owner asks to close the hardware events of the job: for its duration, else for as long as
    /// the job runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pmu_release: bool,
    /// Its duration; without it, the maximum allowed.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// The original text of a request that cannot be parsed as a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The reason for which it cannot be parsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_error: Option<Box<str>>,
    /// The account or project that the job is charged to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The queue or partition that it was submitted to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Its nodes, in the scheduler's notation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// The number of its cores on all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// The job's name and requested resources.
    #[serde(default, skip_serializing_if = "JobDetails::is_empty")]
    pub details: Box<JobDetails>,
    /// Its GPUs on this node: their numbers or UUIDs, separated by commas.
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

/// The answer to `start`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartedAnswer {
    /// The effective periods of the owner's sampling request: those of the job as a whole, if it concerns the
    /// job. None if the job's cgroups do not exist yet, or nothing was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<BTreeMap<String, String>>,
    /// The refusal of the sampling request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Box<Refusal>>,
}
