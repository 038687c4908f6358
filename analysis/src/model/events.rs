//! The events of a job in a report: marks, changes of the plan, refused requests, losses.

use serde::Serialize;

/// A phase that a user marked.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Phase {
    pub name: String,
    pub node: String,
    /// Seconds after the start of the job; none if only the end was marked.
    pub begin_s: Option<f64>,
    /// The time of the begin, in microseconds since the epoch.
    pub begin_us: Option<i64>,
    /// Seconds after the start of the job; none if only the begin was marked.
    pub end_s: Option<f64>,
    /// The time of the end, in microseconds since the epoch.
    pub end_us: Option<i64>,
    /// The user that requested it, if known.
    pub actor: Option<String>,
}

/// An instant that a user marked.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MarkedInstant {
    pub name: String,
    pub node: String,
    /// Seconds after the start of the job.
    pub at_s: f64,
    /// The time, in microseconds since the epoch.
    pub at_us: i64,
    /// The user that requested it, if known.
    pub actor: Option<String>,
}

/// A change of a metric's period.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PlanChange {
    /// Seconds after the start of the job.
    pub at_s: f64,
    /// The time, in microseconds since the epoch.
    pub at_us: i64,
    pub node: String,
    pub metric: String,
    /// `step` or `task` if the change concerns each step or task; none for the job as a whole.
    pub level: Option<String>,
    /// The previous period; none if the metric was not sampled.
    pub old: Option<String>,
    /// The new period; none if the metric is no longer sampled.
    pub new: Option<String>,
    /// The layer of the plan, or the event: `baseline`, `registration`, `lease`, `lease_end`, ...
    pub cause: String,
    /// The user that requested it, if known.
    pub actor: Option<String>,
    /// The end of a lease, in seconds after the start of the job.
    pub until_s: Option<f64>,
    /// The end of a lease, in microseconds since the epoch.
    pub until_us: Option<i64>,
    /// The number of changes that it stands for: 1, or more where there are very many.
    pub changes: u64,
    /// The last of them, in seconds after the start of the job, if they were not all at once.
    pub last_s: Option<f64>,
    /// The last of them, in microseconds since the epoch.
    pub last_us: Option<i64>,
}

impl PlanChange {
    /// Returns true for what happens to each job: sampling begins with the baseline or the submission's
    /// request, and ends with the job.
    pub fn is_usual(&self) -> bool {
        let begins = self.old.is_none() && matches!(self.cause.as_str(), "baseline" | "registration");
        begins || self.cause == "job_end"
    }
}

/// A request of the submission that was refused.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RefusedRequest {
    /// Seconds after the start of the job.
    pub at_s: f64,
    /// The time, in microseconds since the epoch.
    pub at_us: i64,
    pub node: String,
    /// The selector, or the whole request as it was written if it cannot be parsed.
    pub request: String,
    pub period: Option<String>,
    /// The user that requested it, if known.
    pub actor: Option<String>,
    pub reason: String,
}

/// Samples that never reached the store.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LossReport {
    pub node: String,
    /// The source, if known.
    pub source: Option<String>,
    /// The number of samples; 0 for the reason `unknown`: the number of samples that a lost agent took is not
    /// known.
    pub samples: u64,
    pub reason: String,
    /// The time of the oldest of them, in seconds since the start of the job.
    pub first_s: f64,
    /// The time of the newest of them, in seconds since the start of the job.
    pub last_s: f64,
    /// The time of the oldest of them, in microseconds since the epoch.
    pub first_us: i64,
    /// The time of the newest of them, in microseconds since the epoch.
    pub last_us: i64,
}

impl LossReport {
    /// Returns the length of the interval, in seconds.
    pub fn duration_s(&self) -> f64 {
        (self.last_s - self.first_s).max(0.0)
    }

    /// The reason of an interval without any information.
    pub const UNKNOWN: &str = "unknown";

    /// Returns the reason in words.
    pub fn cause(&self) -> &str {
        if self.is_gap() { "no contact with the agent" } else { &self.reason }
    }

    /// Returns true if it is an interval without any information.
    pub fn is_gap(&self) -> bool {
        self.reason == Self::UNKNOWN
    }
}
