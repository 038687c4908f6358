//! `polymeter token`: creates, lists and revokes tokens of the HTTP API. The collector knows the user by the
//! kernel or by MUNGE.

mod create;
mod list;
mod options;
mod revoke;

use clap::Subcommand;

use self::create::CreateArguments;
use self::list::ListArguments;
use self::revoke::RevokeArguments;
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub struct TokenArguments {
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

pub(crate) fn execute(arguments: &TokenArguments) -> Result<(), Failure> {
    match &arguments.command {
        TokenCommand::Create(arguments) => create::execute(arguments),
        TokenCommand::List(arguments) => list::execute(arguments),
        TokenCommand::Revoke(arguments) => revoke::execute(arguments),
    }
}
