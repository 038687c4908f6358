//! `end`: the end of a job, from the scheduler's epilog.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};
use crate::text::Text;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndRequest {
    pub job: String,
    /// State in the scheduler's terms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_signal: Option<u32>,
    /// What the scheduler said and could not be read, with the names of the fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<Text>,
}

impl Verb for EndRequest {
    const NAME: &'static str = "end";
    const HELP: &'static str =
        "records the end of a job; if its cgroups still exist, a final sample is taken";
    const ACCESS: Access = Access::Administrator;
    const REMOTE: Remote = Remote::Refused;
    const EXAMPLE: &'static str = r#"{"verb":"end","job":"4242","state":"COMPLETED","exit_code":0}"#;
}
