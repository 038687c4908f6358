//! `register`: a job that discovery does not find.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::control::fields::PlanFields;
use crate::control::verb::{Access, Remote, Verb};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterRequest {
    pub job: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default)]
    pub cgroups: Vec<PathBuf>,
    /// First process of a job without cgroups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// Selectors and periods beyond the baseline.
    #[serde(default)]
    pub plan: PlanFields,
}

impl Verb for RegisterRequest {
    const NAME: &'static str = "register";
    const HELP: &'static str = "tracks a job that discovery does not find";
    const ACCESS: Access = Access::Administrator;
    const REMOTE: Remote = Remote::Refused;
    const EXAMPLE: &'static str = r#"{"verb":"register","job":"4242","cgroups":["/sys/fs/cgroup/job_4242"]}"#;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisteredAnswer {
    /// Metrics with the reasons why they are unavailable.
    pub unavailable: Vec<(String, String)>,
}
