//! The verdict on a message from an agent.

use polymeter_proto::wire::message::ToAgent;
use polymeter_store::accepted::Accepted;

use crate::refusal::MessageRefusal;

/// The part of a frame that can never be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejection {
    pub reason: &'static str,
    /// The number of events; the accepted part has the number of samples.
    pub events: usize,
}

/// The consequence of a message from an agent.
#[derive(Debug)]
pub enum Verdict {
    /// The frame is to be stored.
    Accepted(Accepted),
    /// The frame advances its session, but some of its samples or events can never be stored. The others are
    /// to be stored together with the loss.
    Rejected(Accepted, Rejection),
    /// The frame was accepted before. Committed frames are acknowledged again, if there are any.
    Repeated(Option<ToAgent>),
    /// The frame cannot be used yet, and something is requested from the agent.
    Ask(ToAgent),
    /// The message cannot be used, and a repetition would be refused again.
    Refused(MessageRefusal),
    /// There is no consequence: entries were added, or the request to the agent was sent recently.
    Nothing,
}
