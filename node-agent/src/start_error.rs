//! Errors of an agent that does not start.

use std::io;
use std::path::PathBuf;

use polymeter_service::key_files::KeysError;
use polymeter_service::spool::SpoolError;

use crate::admission::MIN_DESCRIPTORS;
use crate::openmetrics::EntranceError;

#[derive(Debug, thiserror::Error)]
pub enum AgentStartError {
    #[error("{0}")]
    System(&'static str, #[source] io::Error),
    #[error("cannot use the host name `{0}` as the node's name; set `node` in the configuration")]
    Node(String),
    #[error("cannot connect to {0}; check `collector` in the configuration")]
    Collector(String, #[source] zmq::Error),
    #[error("cannot use the keys")]
    Keys(#[source] KeysError),
    #[error("cannot use the spool set by `spool` in the configuration")]
    Spool(#[source] SpoolError),
    #[error("cannot open the control socket {}; set `control_socket` in the configuration", .0.display())]
    Control(PathBuf, #[source] io::Error),
    #[error("cannot serve the page of metrics; correct [openmetrics] in the configuration")]
    OpenMetrics(#[source] EntranceError),
    #[error(
        "cannot start with {0} file descriptors: the agent needs {MIN_DESCRIPTORS}, and about 32 more for each job; raise LimitNOFILE of \
         the service, or `ulimit -n`"
    )]
    Descriptors(usize),
}
