//! Options and the request that the commands about tokens share.

use std::path::PathBuf;

use polymeter_proto::control::{TokenInfo, TokenRequest};
use polymeter_service::time_text::rfc3339;

use crate::connection::collector::Collector;
use crate::connection::configuration::CollectorEndpoint;
use crate::failure::Failure;

/// Options of a command that asks the collector about tokens.
#[derive(Debug, clap::Args)]
pub(super) struct CollectorOptions {
    /// The collector: tcp://HOST:PORT, or its socket. Default: that of POLYMETER_COLLECTOR or
    /// /etc/polymeter/client.toml.
    #[arg(long, value_name = "COLLECTOR")]
    collector: Option<CollectorEndpoint>,

    /// The socket of munged, if it is not munge's default.
    #[arg(long, value_name = "PATH")]
    munge_socket: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

impl CollectorOptions {
    pub(super) fn ask(&self, request: &TokenRequest) -> Result<Vec<TokenInfo>, Failure> {
        let collector = Collector::find(self.collector.as_ref(), self.munge_socket.as_deref())?;
        let collector = collector.ok_or_else(|| {
            Failure::NotRunning(
                "cannot ask about tokens: no collector is configured; name one with --collector".to_owned(),
            )
        })?;
        collector.tokens(request)
    }
}

/// A time to the minute, in UTC.
pub(super) fn minute(time_us: i64) -> String {
    rfc3339(time_us).chars().take(16).collect::<String>() + "Z"
}
