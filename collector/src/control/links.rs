//! The parts of the collector that the coordinator uses.

use super::node_outcome::OutcomeSender;
use crate::agents::AgentDirectory;
use crate::queues::OutgoingSender;

/// The parts of the collector that the coordinator uses.
#[derive(Debug)]
pub(crate) struct CoordinatorLinks {
    /// The agents and their jobs.
    pub(crate) directory: AgentDirectory,
    /// The queue of messages to agents.
    pub(crate) receiver: OutgoingSender,
    /// The queue of final states of jobs.
    pub(crate) outcomes: OutcomeSender,
}
