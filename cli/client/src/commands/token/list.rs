//! `polymeter token list`: lists tokens, without their secrets.

use polymeter_proto::control::{ListTokensRequest, TokenInfo, TokenRequest};

use super::options::{CollectorOptions, minute};
use crate::failure::Failure;
use crate::output::table::{head, table};
use crate::output::terminal;

#[derive(Debug, clap::Args)]
pub(super) struct ListArguments {
    /// List the tokens of all users. Only root may do so.
    #[arg(long)]
    all_users: bool,

    #[command(flatten)]
    collector: CollectorOptions,
}

pub(super) fn execute(arguments: &ListArguments) -> Result<(), Failure> {
    let all_users = arguments.all_users;
    let tokens = arguments.collector.ask(&TokenRequest::ListTokens(ListTokensRequest { all_users }))?;
    if arguments.collector.json {
        return terminal::print_json(&tokens);
    }
    if tokens.is_empty() {
        return terminal::print("no tokens\n");
    }
    terminal::print(&table(&rows(&tokens, all_users)))
}

pub(super) fn rows(tokens: &[TokenInfo], has_users: bool) -> Vec<Vec<String>> {
    let mut heading = head(["ID", "SCOPE", "CREATED", "EXPIRES", "LAST USE", "NAME"]);
    if has_users {
        heading.insert(1, "USER".to_owned());
    }
    let mut rows = vec![heading];
    for token in tokens {
        let mut row = vec![
            token.id.clone(),
            token.scope.name().to_owned(),
            minute(token.created_us),
            minute(token.expires_us),
            token.used_us.map_or_else(|| "never".to_owned(), minute),
            token.name.clone().unwrap_or_default(),
        ];
        if has_users {
            row.insert(1, token.user.clone().unwrap_or_else(|| token.uid.to_string()));
        }
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use polymeter_proto::control::Scope;

    use super::*;
    use crate::output::table::table_within;
    use crate::snapshot;

    fn token(id: &str, scope: Scope, user: Option<&str>, used_us: Option<i64>) -> TokenInfo {
        TokenInfo {
            id: id.repeat(16),
            uid: 64_001,
            user: user.map(str::to_owned),
            name: used_us.map(|_| "plots\u{1b}[31m".to_owned()),
            scope,
            created_us: 1_796_000_000_000_000,
            expires_us: 1_798_592_000_000_000,
            used_us,
        }
    }

    #[test]
    fn tokens_are_listed_with_their_last_use() {
        let tokens = [
            token("0", Scope::Read, Some("ada"), None),
            token("1", Scope::Admin, None, Some(1_796_000_700_000_000)),
        ];
        let texts = [false, true].map(|has_users| table_within(&rows(&tokens, has_users), None));
        snapshot::check("tokens", &texts.join("\n"));
    }
}
