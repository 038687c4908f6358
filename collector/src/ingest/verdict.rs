//! Verdict on a message from an agent.

use polymeter_proto::wire::message::ToAgent;
use polymeter_store::accepted::Accepted;

use crate::refusal::MessageRefusal;

/// Part of a frame that can never be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejection {
    pub reason: &'static str,
    /// The accepted part has the number of samples.
    pub events: usize,
}

#[derive(Debug)]
pub enum Verdict {
    Accepted(Accepted),
    /// The frame advances its session, but some of its samples or events can never be stored. The others are
    /// to be stored together with the loss.
    Rejected(Accepted, Rejection),
    /// Accepted before. Committed frames are acknowledged again, if there are any.
    Repeated(Option<ToAgent>),
    /// The frame cannot be used yet, and something is requested from the agent.
    Ask(ToAgent),
    /// A repetition would be refused again.
    Refused(MessageRefusal),
    /// Entries were added, or the request to the agent was sent recently.
    Nothing,
}
