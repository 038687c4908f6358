//! `polymeter token`: creates, lists and revokes tokens of the HTTP API. The collector knows the user by the kernel
//! or by MUNGE.

mod create;
mod list;
mod revoke;

use std::path::PathBuf;

use clap::Subcommand;
use polymeter_proto::control::{TokenInfo, TokenRequest};
use polymeter_service::clock::rfc3339;

use self::create::CreateArguments;
use self::list::ListArguments;
use self::revoke::RevokeArguments;
use crate::client::collector::Collector;
use crate::client::configuration::CollectorEndpoint;
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct TokenArguments {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Create a token of yours and print it. It cannot be shown again.
    Create(CreateArguments),
    /// List your tokens: their scope, expiry and last use.
    List(ListArguments),
    /// Revoke tokens of yours. Collectors accept them for at most 5 s more.
    Revoke(RevokeArguments),
}

/// Options of a command that asks the collector about tokens.
#[derive(Debug, clap::Args)]
struct CollectorOptions {
    /// The collector: tcp://HOST:PORT, or its socket. Default: that of POLYMETER_COLLECTOR or
    /// /etc/polymeter/client.toml.
    #[arg(long, value_name = "COLLECTOR")]
    collector: Option<CollectorEndpoint>,

    /// The socket of munged, if it is not munge's default.
    #[arg(long, value_name = "PATH")]
    munge_socket: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl CollectorOptions {
    /// Sends a request, and returns the tokens of the answer.
    fn ask(&self, request: &TokenRequest) -> Result<Vec<TokenInfo>, Failure> {
        let collector = Collector::find(self.collector.as_ref(), self.munge_socket.as_deref())?;
        let collector = collector.ok_or_else(|| {
            Failure::NotRunning(
                "cannot ask about tokens: no collector is configured; name one with --collector".to_owned(),
            )
        })?;
        collector.tokens(request)
    }
}

impl TokenArguments {
    pub(crate) const fn is_json(&self) -> bool {
        match &self.command {
            TokenCommand::Create(arguments) => arguments.is_json(),
            TokenCommand::List(arguments) => arguments.is_json(),
            TokenCommand::Revoke(arguments) => arguments.is_json(),
        }
    }
}

pub(crate) fn execute(arguments: &TokenArguments) -> Result<(), Failure> {
    match &arguments.command {
        TokenCommand::Create(arguments) => create::execute(arguments),
        TokenCommand::List(arguments) => list::execute(arguments),
        TokenCommand::Revoke(arguments) => revoke::execute(arguments),
    }
}

/// Returns a time to the minute, in UTC.
fn minute(time_us: i64) -> String {
    rfc3339(time_us).chars().take(16).collect::<String>() + "Z"
}
