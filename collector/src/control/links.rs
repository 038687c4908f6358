//! Parts of the collector that the coordinator uses.

use super::firings::FiringReceiver;
use super::node_outcome::OutcomeSender;
use crate::agents::AgentDirectory;
use crate::other_collectors::OtherCollectors;
use crate::queues::OutgoingSender;

#[derive(Debug)]
pub(crate) struct CoordinatorLinks {
    pub(crate) directory: AgentDirectory,
    pub(crate) receiver: OutgoingSender,
    pub(crate) outcomes: OutcomeSender,
    pub(crate) fired: FiringReceiver,
    pub(crate) others: OtherCollectors,
}

impl CoordinatorLinks {
    pub(crate) const fn new(
        directory: AgentDirectory,
        receiver: OutgoingSender,
        outcomes: OutcomeSender,
        fired: FiringReceiver,
        others: OtherCollectors,
    ) -> Self {
        Self { directory, receiver, outcomes, fired, others }
    }
}
