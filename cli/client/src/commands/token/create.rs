//! `polymeter token create`: creates a token. Its secret does not leave this command: the collector receives
//! its digest.

use clap::ValueEnum;
use polymeter_proto::control::{CreateTokenRequest, Scope, TokenInfo, TokenRequest};
use polymeter_service::api_token::{ApiToken, Secret};
use serde::Serialize;

use super::options::{CollectorOptions, minute};
use crate::failure::Failure;
use crate::output::terminal;

/// The scope of a token, as an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ScopeOption {
    /// Read your jobs.
    Read,
    /// Read all that you may read: as a manager, support staff or an administrator.
    ReadAll,
    /// Also change the sampling of your jobs.
    Control,
    /// All your rights as an administrator.
    Admin,
}

#[derive(Debug, clap::Args)]
pub(super) struct CreateArguments {
    /// The rights of the token.
    #[arg(long, value_enum, default_value = "read")]
    scope: ScopeOption,

    /// The days after which it expires, at most 366. Default: 30.
    #[arg(long, value_name = "NUMBER")]
    days: Option<u32>,

    /// A name for lists, such as that of the program that uses it.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    #[command(flatten)]
    collector: CollectorOptions,
}

#[derive(Debug, Serialize)]
struct Created {
    token: String,
    #[serde(flatten)]
    info: TokenInfo,
}

pub(super) fn execute(arguments: &CreateArguments) -> Result<(), Failure> {
    let secret = Secret::new().map_err(|error| Failure::because("cannot make a secret", &error))?;
    let request = TokenRequest::CreateToken(CreateTokenRequest {
        digest: secret.digest(),
        scope: match arguments.scope {
            ScopeOption::Read => Scope::Read,
            ScopeOption::ReadAll => Scope::ReadAll,
            ScopeOption::Control => Scope::Control,
            ScopeOption::Admin => Scope::Admin,
        },
        name: arguments.name.clone(),
        days: arguments.days,
    });
    let info = arguments.collector.ask(&request)?.pop().ok_or_else(|| {
        let message = "cannot create a token: the collector's answer has none; check that collector and command have the same version";
        Failure::Failed(message.to_owned())
    })?;
    let token = ApiToken { id: info.id.clone(), secret }.to_text();
    if arguments.collector.json {
        return terminal::print_json(&Created { token, info });
    }
    terminal::print(&format!("{token}\n"))?;
    // Not on standard output, which may be redirected to the file with the token.
    terminal::print_error(&format!(
        "token {} with the scope `{}` is valid until {}; keep it secret, it is not shown again\n",
        info.id,
        info.scope.name(),
        minute(info.expires_us)
    ));
    Ok(())
}
