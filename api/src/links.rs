//! Parts of the collector that the API uses.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use polymeter_proto::control::CollectorAnswer;
use polymeter_store::StoreUrl;
use tokio::sync::{mpsc, oneshot};

use crate::access::{AccessOf, KnownAdministrators, TokenService};
use crate::live::LiveValues;
use crate::own_metrics::ApiMetrics;

#[derive(Debug)]
pub struct ControlRequest {
    pub uid: u32,
    /// Request in the form of the control socket.
    pub line: Vec<u8>,
    pub reply: oneshot::Sender<CollectorAnswer>,
}

/// Offset of an agent's clock, measured by a request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// Positive if the node's clock is ahead of the collector's.
    pub offset_us: i64,
    /// Largest error of the offset: half of the time between the request and the answer.
    pub error_us: i64,
    /// Time by the collector's clock, since the epoch.
    pub measured_us: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentStatus {
    pub node: String,
    /// Start of its session, since the epoch.
    pub started_us: i64,
    /// Each with the numeric id of its owner, if known.
    pub jobs: Vec<(String, Option<u32>)>,
    /// None if it was not measured yet, or the agent does not answer.
    pub clock: Option<ClockOffset>,
}

type Agents = dyn Fn() -> Vec<AgentStatus> + Send + Sync;

pub(crate) type IsBehind = dyn Fn() -> bool + Send + Sync;

/// Parts of the collector that the API uses.
#[derive(Clone)]
pub struct Links {
    pub store: StoreUrl,
    pub access: Arc<AccessOf>,
    /// They have places that no other user takes.
    pub administrators: KnownAdministrators,
    pub agents: Arc<Agents>,
    pub live: LiveValues,
    /// True while the writers are behind, so that reads must give way.
    pub is_behind: Arc<IsBehind>,
    pub control: mpsc::Sender<ControlRequest>,
    pub metrics: ApiMetrics,
    pub tokens: TokenService,
    /// Directory of the site's rules for findings.
    pub advice: PathBuf,
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("store", &self.store).finish_non_exhaustive()
    }
}
