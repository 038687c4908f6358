//! Users' requests about tokens, which arrive through the control endpoints of the collector.

use polymeter_proto::control::{
    CreateTokenRequest, ListTokensRequest, Refusal, RevokeTokensRequest, Scope, TokenInfo, TokenList,
    TokenRequest, invalid, optional_identifier,
};
use polymeter_service::{api_token, clock, users};
use polymeter_store::StoredToken;
use polymeter_store::reader::Access;
use tracing::info;

use super::TokenService;
use crate::limits;

const ROOT: u32 = 0;

const DAY_US: i64 = 86_400 * 1_000_000;

impl TokenService {
    /// Refuses a request if a field is invalid, the user has no right to it, or the store does not answer.
    pub async fn execute(&self, uid: u32, request: TokenRequest) -> Result<TokenList, Refusal> {
        let tokens = match request {
            TokenRequest::CreateToken(request) => vec![self.create(uid, request).await?],
            TokenRequest::ListTokens(request) => self.list(uid, request).await?,
            TokenRequest::RevokeTokens(request) => self.revoke(uid, request).await?,
        };
        let info = tokio::task::spawn_blocking(move || tokens.into_iter().filter_map(token_info).collect());
        Ok(TokenList { tokens: info.await.unwrap_or_default() })
    }

    async fn create(&self, uid: u32, request: CreateTokenRequest) -> Result<StoredToken, Refusal> {
        let token = new_token(uid, &request, clock::realtime_us())?;
        let (stored, access) = (token.clone(), self.access.clone());
        let created = self.run(move |table, _| {
            if request.scope == Scope::Admin && access(uid) != Access::All {
                return Ok(Err(Refusal::new(
                    "forbidden",
                    Some("scope"),
                    "only administrators can create tokens with the scope `admin`; use `read` or `control`",
                )));
            }
            let forget_us = stored.created_us.saturating_sub(limits::TOKEN_KEPT_US);
            Ok(if table.create(&stored, limits::TOKENS_PER_USER, forget_us)? { Ok(()) } else { Err(many()) })
        });
        created.await.ok_or_else(unavailable)??;
        info!(uid, id = %token.id, scope = %token.scope, "token created");
        Ok(token)
    }

    async fn list(&self, uid: u32, request: ListTokensRequest) -> Result<Vec<StoredToken>, Refusal> {
        if request.all_users && uid != ROOT {
            return Err(Refusal::new(
                "forbidden",
                Some("all_users"),
                "only root can list the tokens of all users",
            ));
        }
        let of = (!request.all_users).then_some(uid);
        self.run(move |table, _| table.list(of)).await.ok_or_else(unavailable)
    }

    async fn revoke(&self, uid: u32, request: RevokeTokensRequest) -> Result<Vec<StoredToken>, Refusal> {
        let RevokeTokensRequest { id, uid: other } = request;
        if uid != ROOT && other.is_some_and(|other| other != uid) {
            return Err(Refusal::new("forbidden", Some("uid"), "only root can revoke tokens of other users"));
        }
        if id.as_deref().is_some_and(|id| !api_token::is_id(id)) {
            return Err(invalid(
                "id",
                &"expected 16 hexadecimal digits, as `polymeter token list` prints them",
            ));
        }
        // Root may name any token; without an id, root means those of a user.
        let of = if uid == ROOT && id.is_some() { other } else { Some(other.unwrap_or(uid)) };
        let with_id = id.clone();
        let revoked = self.run(move |table, known| {
            let revoked = table.revoke(of, id.as_deref())?;
            known.forget(&revoked);
            Ok(revoked)
        });
        let revoked = revoked.await.ok_or_else(unavailable)?;
        if let Some(id) = with_id
            && revoked.is_empty()
        {
            return Err(Refusal::new(
                "unknown_token",
                Some("id"),
                &format!("unknown token {id}, or not yours"),
            ));
        }
        for token in &revoked {
            info!(uid, id = %token.id, of_uid = token.uid, "token revoked");
        }
        Ok(revoked)
    }
}

fn new_token(uid: u32, request: &CreateTokenRequest, now_us: i64) -> Result<StoredToken, Refusal> {
    if !api_token::is_digest(&request.digest) {
        return Err(invalid("digest", &"expected a SHA-256 digest in lower-case hexadecimal digits"));
    }
    let name = optional_identifier("name", request.name.as_deref())?;
    let days = request.days.unwrap_or(limits::TOKEN_DAYS);
    if !(1..=limits::TOKEN_DAYS_MAX).contains(&days) {
        return Err(invalid("days", &format!("expected 1 to {} days", limits::TOKEN_DAYS_MAX)));
    }
    let id = api_token::new_id().map_err(|_error| unavailable())?;
    Ok(StoredToken {
        id,
        digest: request.digest.clone(),
        uid,
        name: name.map(|name| name.to_string()),
        scope: request.scope.name().to_owned(),
        created_us: now_us,
        expires_us: now_us.saturating_add(i64::from(days) * DAY_US),
        used_us: None,
    })
}

fn many() -> Refusal {
    let message =
        format!("you already have {} valid tokens; revoke some of them first", limits::TOKENS_PER_USER);
    Refusal::new("too_many_tokens", None, &message)
}

fn unavailable() -> Refusal {
    Refusal::new("busy", None, "the store of tokens does not answer; try again in a moment")
}

fn token_info(token: StoredToken) -> Option<TokenInfo> {
    let StoredToken { id, uid, name, scope, created_us, expires_us, used_us, digest: _ } = token;
    let scope = Scope::from_name(&scope)?;
    Some(TokenInfo { id, uid, user: users::name_of(uid), name, scope, created_us, expires_us, used_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(days: Option<u32>) -> CreateTokenRequest {
        CreateTokenRequest { digest: "0".repeat(64), scope: Scope::Read, name: None, days }
    }

    #[test]
    fn a_token_expires() {
        let expires = |days| new_token(7, &request(days), 0).map(|token| token.expires_us);
        assert_eq!((expires(None), expires(Some(366))), (Ok(30 * DAY_US), Ok(366 * DAY_US)));
        for days in [0, 367, u32::MAX] {
            assert_eq!(expires(Some(days)).unwrap_err().field.as_deref(), Some("days"));
        }
    }

    #[test]
    fn a_token_needs_a_digest_and_a_printable_name() {
        let field = |request: &CreateTokenRequest| new_token(7, request, 0).unwrap_err().field;
        for digest in ["", "0", &"G".repeat(64), &"0".repeat(65)] {
            assert_eq!(
                field(&CreateTokenRequest { digest: digest.to_owned(), ..request(None) }).as_deref(),
                Some("digest")
            );
        }
        let named = CreateTokenRequest { name: Some("a\u{202e}b".to_owned()), ..request(None) };
        assert_eq!(field(&named).as_deref(), Some("name"));
    }
}
