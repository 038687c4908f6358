//! `polymeter token revoke`: revokes tokens.

use polymeter_proto::control::{RevokeTokensRequest, TokenRequest};
use polymeter_service::users::uid_of;

use super::options::CollectorOptions;
use crate::failure::Failure;
use crate::output::terminal;

#[derive(Debug, clap::Args)]
pub(super) struct RevokeArguments {
    /// The id, as `polymeter token list` prints it.
    #[arg(value_name = "ID", required_unless_present = "all")]
    id: Option<String>,

    /// Revoke all your tokens.
    #[arg(long, conflicts_with = "id")]
    all: bool,

    /// With --all: those of this user, a name or a number. Only root may do so.
    #[arg(long, value_name = "USER", requires = "all")]
    user: Option<String>,

    #[command(flatten)]
    collector: CollectorOptions,
}

pub(super) fn execute(arguments: &RevokeArguments) -> Result<(), Failure> {
    let uid = arguments.user.as_deref().map(|user| {
        // The account may be closed already.
        user.parse().ok().or_else(|| uid_of(user)).ok_or_else(|| {
            Failure::Usage(format!(
                "unknown user `{user}`: this machine has no such user; give the numeric id"
            ))
        })
    });
    let request = RevokeTokensRequest { id: arguments.id.clone(), uid: uid.transpose()? };
    let revoked = arguments.collector.ask(&TokenRequest::RevokeTokens(request))?;
    if arguments.collector.json {
        return terminal::print_json(&revoked);
    }
    let lines = revoked.iter().map(|token| format!("token {} is revoked\n", token.id));
    let text: String = lines.collect();
    terminal::print(if text.is_empty() { "no tokens\n" } else { &text })
}
