//! The parts of the collector that the coordinator uses.

use super::outcome::OutcomeSender;
use crate::directory::Directory;
use crate::inbox::AnswerSender;

/// The parts of the collector that the coordinator uses.
#[derive(Debug)]
pub(crate) struct CoordinatorLinks {
    /// The agents and their jobs.
    pub(crate) directory: Directory,
    /// The queue of messages to agents.
    pub(crate) receiver: AnswerSender,
    /// The queue of final states of jobs.
    pub(crate) outcomes: OutcomeSender,
}
