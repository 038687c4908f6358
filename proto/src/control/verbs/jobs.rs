//! `jobs`: the jobs that the agent tracks. The answer is that of `status`.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobsRequest {}

impl Verb for JobsRequest {
    const NAME: &'static str = "jobs";
    const HELP: &'static str = "reports the tracked jobs, in the form of `status`";
    const ACCESS: Access = Access::Viewer;
    const REMOTE: Remote = Remote::Refused;
    const EXAMPLE: &'static str = r#"{"verb":"jobs"}"#;
}
