//! The parts of the collector that the API uses.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use polymeter_proto::control::CollectorAnswer;
use polymeter_store::StoreUrl;
use tokio::sync::{mpsc, oneshot};

use crate::access::{AccessOf, KnownAdministrators, TokenService};
use crate::live::LiveValues;
use crate::own_metrics::ApiMetrics;

/// A request of a user for the coordinator.
#[derive(Debug)]
pub struct ControlRequest {
    /// The numeric id of the user.
    pub uid: u32,
    /// The request, in the form of the control socket.
    pub line: Vec<u8>,
    /// The channel for the answer.
    pub reply: oneshot::Sender<CollectorAnswer>,
}

/// The offset of an agent's clock, measured by a request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// The node's clock less the collector's, in microseconds: positive if the node's clock is ahead.
    pub offset_us: i64,
    /// The most by which the offset may be wrong: half of the time between the request and the answer.
    pub error_us: i64,
    /// The time of the measurement by the collector's clock, in microseconds since the epoch.
    pub measured_us: i64,
}

/// A connected agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentStatus {
    pub node: String,
    /// The start of its session, in microseconds since the epoch.
    pub started_us: i64,
    /// The jobs that it tracks, each with the numeric id of its owner, if known.
    pub jobs: Vec<(String, Option<u32>)>,
    /// The offset of its clock; none if it was not measured yet, or the agent does not answer.
    pub clock: Option<ClockOffset>,
}

/// Returns the connected agents.
type Agents = dyn Fn() -> Vec<AgentStatus> + Send + Sync;

/// Returns true while ingest is behind.
pub(crate) type IsBehind = dyn Fn() -> bool + Send + Sync;

/// The parts of the collector that the API uses.
#[derive(Clone)]
pub struct Links {
    pub store: StoreUrl,
    /// The access of each user to stored jobs.
    pub access: Arc<AccessOf>,
    /// The administrators, who have places that no other user takes.
    pub administrators: KnownAdministrators,
    /// The connected agents.
    pub agents: Arc<Agents>,
    /// The values of running jobs.
    pub live: LiveValues,
    /// Returns true while the writers are behind, so that reads must give way.
    pub is_behind: Arc<IsBehind>,
    /// The queue of the coordinator.
    pub control: mpsc::Sender<ControlRequest>,
    /// The API's own metrics.
    pub metrics: ApiMetrics,
    pub tokens: TokenService,
    /// The directory of the site's rules for findings.
    pub advice: PathBuf,
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("store", &self.store).finish_non_exhaustive()
    }
}
