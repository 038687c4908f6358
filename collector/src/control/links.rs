//! Parts of the collector that the coordinator uses.

use super::node_outcome::OutcomeSender;
use crate::agents::AgentDirectory;
use crate::queues::OutgoingSender;

#[derive(Debug)]
pub(crate) struct CoordinatorLinks {
    pub(crate) directory: AgentDirectory,
    pub(crate) receiver: OutgoingSender,
    pub(crate) outcomes: OutcomeSender,
}
