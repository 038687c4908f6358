//! `register`: a job that discovery does not find.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::control::fields::PlanFields;
use crate::control::verb::{Access, Remote, Verb};

/// The fields of `register`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterRequest {
    /// The job's id.
    pub job: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The owner's numeric id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The owner's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its cgroup directories.
    #[serde(default)]
    pub cgroups: Vec<PathBuf>,
    /// Its first process, if it has no cgroups.
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

/// The answer to `register`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisteredAnswer {
    /// Metrics that are unavailable, with the reasons.
    pub unavailable: Vec<(String, String)>,
}
