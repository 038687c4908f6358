//! Requests about tokens of the HTTP API, which the collector executes itself. A user creates, sees and
//! revokes the own tokens; root sees and revokes all.

use serde::{Deserialize, Serialize};

use super::fields::Fields;
use super::refusal::Refusal;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    Read,
    /// Reads all that its user may read, as a manager, support staff or an administrator.
    ReadAll,
    /// May also change the sampling of the jobs of its user.
    Control,
    /// Has all rights of its user, who may be an administrator.
    Admin,
}

impl Scope {
    pub const ALL: [Self; 4] = [Self::Read, Self::ReadAll, Self::Control, Self::Admin];

    /// Returns true if it permits changes.
    pub const fn may_change(self) -> bool {
        matches!(self, Self::Control | Self::Admin)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadAll => "read-all",
            Self::Control => "control",
            Self::Admin => "admin",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateTokenRequest {
    /// SHA-256 digest of the secret, in hexadecimal digits. The secret stays with the user.
    pub digest: String,
    pub scope: Scope,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListTokensRequest {
    #[serde(default)]
    pub all_users: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokeTokensRequest {
    /// One token; without it, all tokens of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Another user, for root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum TokenRequest {
    CreateToken(CreateTokenRequest),
    ListTokens(ListTokensRequest),
    RevokeTokens(RevokeTokensRequest),
}

impl TokenRequest {
    /// Returns none if the line has another verb.
    pub fn parse(line: &[u8]) -> Option<Result<Self, Refusal>> {
        let mut fields = Fields::parse(line).ok()?;
        Some(match fields.take_verb().ok()?.as_str() {
            "create_token" => {
                let example = r#"{"verb":"create_token","digest":"e3b0c442...","scope":"read","days":30}"#;
                fields.into_request(example).map(Self::CreateToken)
            }
            "list_tokens" => fields.into_request(r#"{"verb":"list_tokens"}"#).map(Self::ListTokens),
            "revoke_tokens" => {
                let example = r#"{"verb":"revoke_tokens","id":"0123456789abcdef"}"#;
                fields.into_request(example).map(Self::RevokeTokens)
            }
            _ => return None,
        })
    }

    pub fn to_line(&self) -> String {
        // Serialising plain data into memory cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenInfo {
    pub id: String,
    pub uid: u32,
    /// Name of the user, if the collector's machine knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub scope: Scope,
    /// Microseconds since the epoch.
    pub created_us: i64,
    /// Time from which the token is not accepted any more, in microseconds since the epoch.
    pub expires_us: i64,
    /// Last use, as much as some minutes early; none if it was not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_us: Option<i64>,
}

/// Answer to a request about tokens: the created token, those of the list, or the revoked ones, the oldest
/// first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenList {
    pub tokens: Vec<TokenInfo>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_parsed_as_they_are_written() {
        let digest = "0".repeat(64);
        let create =
            CreateTokenRequest { digest, scope: Scope::Read, name: Some("plots".to_owned()), days: Some(7) };
        for request in [
            TokenRequest::CreateToken(create),
            TokenRequest::ListTokens(ListTokensRequest { all_users: true }),
            TokenRequest::RevokeTokens(RevokeTokensRequest { id: Some("0".repeat(16)), uid: None }),
        ] {
            assert_eq!(TokenRequest::parse(request.to_line().as_bytes()), Some(Ok(request)));
        }
        assert_eq!(Scope::ALL.map(|scope| Scope::from_name(scope.name())), Scope::ALL.map(Some));
    }

    #[test]
    fn invalid_requests_are_refused_with_their_field() {
        assert_eq!(TokenRequest::parse(br#"{"verb":"set"}"#), None);
        for (line, field) in [
            (&br#"{"verb":"create_token","scope":"read"}"#[..], "digest"),
            (br#"{"verb":"create_token","digest":"0","scope":"root"}"#, "scope"),
            (br#"{"verb":"create_token","digest":"0","scope":"read","uid":0}"#, "uid"),
            (br#"{"verb":"list_tokens","all":true}"#, "all"),
            (br#"{"verb":"revoke_tokens","uid":-1}"#, "uid"),
        ] {
            let refusal = TokenRequest::parse(line).unwrap().unwrap_err();
            assert_eq!(refusal.field.as_deref(), Some(field), "{refusal:?}");
        }
    }
}
