//! The errors of starting and stopping a collector.

use std::net::SocketAddr;

use polymeter_service::key_files::KeysError;
use polymeter_store::StoreError;

use crate::auth::AuthError;
use crate::control::ListenError;
use crate::limits::DESCRIPTORS_MIN;

/// The reason for which a collector cannot start.
#[derive(Debug, thiserror::Error)]
pub enum CollectorStartError {
    /// The endpoint for agents cannot be bound.
    #[error("cannot listen at {endpoint}")]
    Bind {
        endpoint: String,
        /// The reason.
        source: zmq::Error,
    },
    /// The store cannot be opened.
    #[error("cannot open the store {store}")]
    Store {
        /// The store's URL, without its password.
        store: String,
        /// The reason.
        source: StoreError,
    },
    /// The endpoint for users cannot be opened.
    #[error(transparent)]
    Control(ListenError),
    /// The HTTP API cannot be opened.
    #[error(transparent)]
    Api(polymeter_api::ListenError),
    /// The keys cannot be used.
    #[error("cannot use the keys")]
    Keys(#[source] KeysError),
    /// ZeroMQ cannot create a socket.
    #[error("cannot create the socket of {purpose}")]
    Socket {
        purpose: &'static str,
        /// The reason.
        source: zmq::Error,
    },
    /// The collector's own metrics cannot be served.
    #[error("cannot serve metrics at {address} (set by `metrics_listen`)")]
    Metrics {
        address: SocketAddr,
        /// The reason.
        source: std::io::Error,
    },
    /// The machine has no more threads or descriptors.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// The process may open too few file descriptors.
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

/// A thread of the collector panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a thread of the collector panicked")]
pub struct ThreadPanicked;
