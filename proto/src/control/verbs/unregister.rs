//! `unregister`: the end of a registered job.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnregisterRequest {
    pub job: String,
}

impl Verb for UnregisterRequest {
    const NAME: &'static str = "unregister";
    const HELP: &'static str = "takes a final sample of a *registered* job and stops tracking it";
    const ACCESS: Access = Access::Administrator;
    const REMOTE: Remote = Remote::Refused;
    const EXAMPLE: &'static str = r#"{"verb":"unregister","job":"4242"}"#;
}
