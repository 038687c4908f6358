//! `regions`: the sums of the regions of an instrumented process.

use serde::{Deserialize, Serialize};

use crate::control::verb::{Access, Remote, Verb};

/// Sent by the library `libpolymeter_regions`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionsRequest {
    pub job: String,
    /// Process id, as the process sees itself.
    pub process: u32,
    /// Rank, if a launcher numbers the processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    #[serde(default)]
    pub is_last: bool,
    pub regions: Vec<RegionSums>,
}

/// Sums of a region since the process began, over its threads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionSums {
    pub name: String,
    pub entries: u64,
    pub time_ns: u64,
    /// Time in the region, but in none inside it.
    pub self_ns: u64,
    /// Time in the region of the thread with the most.
    pub thread_ns: u64,
    pub threads: u64,
}

impl Verb for RegionsRequest {
    const NAME: &'static str = "regions";
    const HELP: &'static str = "records the sums of the regions of an instrumented process";
    const ACCESS: Access = Access::Owner;
    const REMOTE: Remote = Remote::Refused;
    const EXAMPLE: &'static str = r#"{"verb":"regions","job":"4242","process":731,"rank":3,"regions":[{"name":"solver","entries":2,"time_ns":9000,"self_ns":7000,"thread_ns":5000,"threads":2}]}"#;
}
