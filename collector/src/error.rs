//! Errors of starting and stopping a collector.

use std::net::SocketAddr;

use polymeter_service::key_files::KeysError;
use polymeter_store::StoreError;

use crate::auth::AuthError;
use crate::control::ListenError;
use crate::limits::DESCRIPTORS_MIN;

#[derive(Debug, thiserror::Error)]
pub enum CollectorStartError {
    #[error("cannot listen at {endpoint}")]
    Bind { endpoint: String, source: zmq::Error },
    #[error("cannot open the store {store}")]
    Store {
        /// URL without its password.
        store: String,
        source: StoreError,
    },
    #[error(transparent)]
    Control(ListenError),
    #[error(transparent)]
    Api(polymeter_api::ListenError),
    #[error("cannot use the keys")]
    Keys(#[source] KeysError),
    #[error("cannot create the socket of {purpose}")]
    Socket { purpose: &'static str, source: zmq::Error },
    #[error("cannot serve metrics at {address} (set by `metrics_listen`)")]
    Metrics { address: SocketAddr, source: std::io::Error },
    #[error("cannot serve /federate at {address} (set by `listen` in [federation])")]
    Federation { address: String, source: std::io::Error },
    /// The machine has no more threads or descriptors.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    #[error(
        "cannot start with {0} file descriptors: the collector needs {DESCRIPTORS_MIN}, and one for each agent and client; raise LimitNOFILE of the service, or `ulimit -n`"
    )]
    Descriptors(u64),
}

impl From<AuthError> for CollectorStartError {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::Socket(source) => Self::Socket { purpose: "authentication", source },
            AuthError::Keys(error) => Self::Keys(error),
            AuthError::Thread(error) => Self::Thread(error),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a thread of the collector panicked")]
pub struct ThreadPanicked;
