//! Parts of the agent, beside the supervisor, that answers need.

use std::sync::Arc;

use polymeter_proto::control::DeviceReport;
use polymeter_proto::series::SessionId;
use tokio::sync::watch;

use crate::counters::Counters;
use crate::rights::Rights;

#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) session: SessionId,
    pub(crate) counters: Arc<Counters>,
    /// A reload of the configuration may change them.
    pub(crate) rights: watch::Receiver<Rights>,
    pub(crate) devices: watch::Receiver<DeviceReport>,
}
