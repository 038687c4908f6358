//! Parts of the collector that the coordinator uses.

use super::firings::FiringReceiver;
use super::node_outcome::OutcomeSender;
use crate::agents::AgentDirectory;
use crate::queues::OutgoingSender;

#[derive(Debug)]
pub(crate) struct CoordinatorLinks {
    pub(crate) directory: AgentDirectory,
    pub(crate) receiver: OutgoingSender,
    pub(crate) outcomes: OutcomeSender,
    pub(crate) fired: FiringReceiver,
}

impl CoordinatorLinks {
    pub(crate) const fn new(
        directory: AgentDirectory,
        receiver: OutgoingSender,
        outcomes: OutcomeSender,
        fired: FiringReceiver,
    ) -> Self {
        Self { directory, receiver, outcomes, fired }
    }
}
