//! Verdict on a job in a sentence.

use serde::Serialize;

/// How a job ended, what it used of its resources, and how much there is to change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Final state in the scheduler's terms; `RUNNING`, or `ENDED` where it is not known.
    pub state: String,
    /// Used share of the cores and GPUs: `0.88 of 2 cores`; none if it is unknown.
    pub used: Option<String>,
    pub things: u64,
    /// `COMPLETED - used 0.88 of 2 cores - 1 thing to change`.
    pub text: String,
}
