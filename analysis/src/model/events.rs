//! Events of a job in a report: marks, triggers that fired, changes of the plan, refused requests, losses.

use std::collections::BTreeMap;

use serde::Serialize;

/// Marked by a user.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Phase {
    pub name: String,
    pub node: String,
    /// Seconds after the start of the job; none if only the end was marked.
    pub begin_s: Option<f64>,
    pub begin_us: Option<i64>,
    /// Seconds after the start of the job; none if only the begin was marked.
    pub end_s: Option<f64>,
    pub end_us: Option<i64>,
    pub actor: Option<String>,
}

/// Marked by a user.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MarkedInstant {
    pub name: String,
    pub node: String,
    /// Seconds after the start of the job.
    pub at_s: f64,
    pub at_us: i64,
    pub actor: Option<String>,
}

/// Trigger that fired.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FiringReport {
    /// All of it in words.
    pub text: String,
    pub rule: String,
    /// Where it fired.
    pub node: String,
    /// User who added the rule; none for one of the site.
    pub actor: Option<String>,
    /// Seconds after the start of the job.
    pub at_s: f64,
    pub at_us: i64,
    pub why: String,
    /// What was done on the node, with its predicted cost, or why it could not be done.
    pub actions: String,
    /// Interval that all nodes were asked to keep; none if nothing was.
    pub begin_us: Option<i64>,
    pub end_us: Option<i64>,
    /// None until the collector has asked the other nodes.
    pub nodes_asked: Option<u64>,
    /// Nodes that could not keep it, with the reasons.
    pub nodes_missing: BTreeMap<String, String>,
}

impl FiringReport {
    /// Name on charts.
    pub fn mark(&self) -> String {
        format!("trigger {}: {}", self.rule, self.why)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PlanChange {
    /// Seconds after the start of the job.
    pub at_s: f64,
    pub at_us: i64,
    pub node: String,
    pub metric: String,
    /// `step` or `task` if the change concerns each step or task; none for the job as a whole.
    pub level: Option<String>,
    /// None if the metric was not sampled.
    pub old: Option<String>,
    /// None if the metric is no longer sampled.
    pub new: Option<String>,
    /// Layer of the plan, or event: `baseline`, `registration`, `lease`, `lease_end`, ...
    pub cause: String,
    pub actor: Option<String>,
    /// End of a lease, after the start of the job.
    pub until_s: Option<f64>,
    pub until_us: Option<i64>,
    /// Changes that it stands for: 1, or more where there are very many.
    pub changes: u64,
    /// Last of the changes, after the start of the job, if they were not all at once.
    pub last_s: Option<f64>,
    pub last_us: Option<i64>,
}

impl PlanChange {
    /// Tells whether it happens to each job: sampling begins with the baseline or the submission's request,
    /// and ends with the job.
    pub fn is_usual(&self) -> bool {
        let begins = self.old.is_none() && matches!(self.cause.as_str(), "baseline" | "registration");
        begins || self.cause == "job_end"
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RefusedRequest {
    pub at_s: f64,
    pub at_us: i64,
    pub node: String,
    /// Selector, or the whole request as it was written if it cannot be parsed.
    pub request: String,
    pub period: Option<String>,
    pub actor: Option<String>,
    pub reason: String,
}

/// Samples that never reached the store.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LossReport {
    pub node: String,
    pub source: Option<String>,
    /// 0 for the reason `unknown`: how many samples a lost agent took is not known.
    pub samples: u64,
    pub reason: String,
    /// Seconds since the start of the job.
    pub first_s: f64,
    pub last_s: f64,
    pub first_us: i64,
    pub last_us: i64,
}

impl LossReport {
    pub fn duration_s(&self) -> f64 {
        (self.last_s - self.first_s).max(0.0)
    }

    /// Reason of an interval about which nothing is known.
    pub const UNKNOWN: &str = "unknown";

    /// Cause in words.
    pub fn cause(&self) -> &str {
        if self.is_gap() { "no contact with the agent" } else { &self.reason }
    }

    /// Tells whether nothing is known about its interval.
    pub fn is_gap(&self) -> bool {
        self.reason == Self::UNKNOWN
    }
}
