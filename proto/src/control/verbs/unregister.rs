//! `unregister`: the end of a registered job.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};

/// The fields of `unregister`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnregisterRequest {
    /// The job's id.
    pub job: String,
}

impl Verb for UnregisterRequest {
    const NAME: &'static str = "unregister";
    const HELP: &'static str = "takes the last sample of a *registered* job and stops tracking it";
    const ACCESS: Access = Access::Administrator;
    const REMOTE: Remote = Remote::Refused;
    const EXAMPLE: &'static str = r#"{"verb":"unregister","job":"4242"}"#;
}
