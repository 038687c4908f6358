//! The verdict on a job in a sentence.

use serde::Serialize;

/// How a job ended, what it used of its resources, and how much there is to change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The final state in the scheduler's terms; `RUNNING`, or `ENDED` where it is not known.
    pub state: String,
    /// The used share of the cores and GPUs: `0.88 of 2 cores`; none if it is unknown.
    pub used: Option<String>,
    /// The number of findings.
    pub things: u64,
    /// The sentence: `COMPLETED - used 0.88 of 2 cores - 1 thing to change`.
    pub text: String,
}
