//! `flush`: sends the samples taken so far.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlushRequest {}

impl Verb for FlushRequest {
    const NAME: &'static str = "flush";
    const HELP: &'static str = "sends the samples taken so far; the answer does not wait for the collector";
    const ACCESS: Access = Access::Administrator;
    const REMOTE: Remote = Remote::Refused;
    const EXAMPLE: &'static str = r#"{"verb":"flush"}"#;
}
