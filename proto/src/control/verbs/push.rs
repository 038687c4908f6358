//! `push`: a value of a user-supplied metric.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PushRequest {
    /// None for the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Name to which the agent prepends `user.`.
    pub metric: String,
    pub value: f64,
    /// A unit such as `images/s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Labels that distinguish the series from others of the metric.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl Verb for PushRequest {
    const NAME: &'static str = "push";
    const HELP: &'static str = "records a value of a user-supplied metric";
    const ACCESS: Access = Access::Owner;
    const REMOTE: Remote = Remote::OneNode;
    const EXAMPLE: &'static str =
        r#"{"verb":"push","job":"4242","metric":"loss","value":0.25,"labels":{"rank":"3"}}"#;
}
