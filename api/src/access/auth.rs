//! Authentication of requests.
//!
//! ```text
//! Authorization: Bearer   -> the user of the token
//! a trusted proxy         -> the user that its header names, and never the proxy's own
//! another Unix peer       -> the user that the kernel names
//! another TCP peer        -> nobody
//! ```

use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use polymeter_proto::series::Identifier;
use polymeter_service::api_token::ApiToken;
use polymeter_service::users;
use tracing::warn;

use super::failures::Failures;
use super::identity::{KnownAdministrators, Peer, Principal, Trust};
use super::tokens::{TokenService, Unverified};
use crate::answer::Problem;
use crate::config::{ApiConfig, Proxy};
use crate::own_metrics::ApiMetrics;

#[derive(Debug)]
pub(crate) struct Authenticator {
    proxies: Vec<Proxy>,
    /// Numeric ids of the proxies that are users of this machine.
    proxy_uids: Vec<u32>,
    user_header: HeaderName,
    /// True if other machines can connect. If so, only proxies may do so.
    is_remote: bool,
    administrators: KnownAdministrators,
    tokens: TokenService,
    failures: Failures,
}

/// Identity that a request claims, before names are looked up.
#[derive(Debug, PartialEq, Eq)]
enum Claim {
    Uid(u32),
    User(Identifier),
    Token(ApiToken),
}

impl Authenticator {
    /// Unknown users in the configuration are logged, and trusted with nothing.
    pub(crate) fn new(
        config: &ApiConfig,
        administrators: KnownAdministrators,
        tokens: TokenService,
        metrics: &ApiMetrics,
    ) -> Self {
        let mut proxy_uids = Vec::new();
        for proxy in &config.trusted_proxies {
            let Proxy::User(user) = proxy else { continue };
            match users::uid_of(user) {
                Some(uid) => proxy_uids.push(uid),
                None => {
                    warn!(%user, "cannot find the user of `trusted_proxies`: this machine has no such user")
                }
            }
        }
        let user_header = config.user_header.parse();
        Self {
            proxies: config.trusted_proxies.clone(),
            proxy_uids,
            user_header: user_header.unwrap_or(HeaderName::from_static("x-remote-user")),
            is_remote: config.listen.is_remote(),
            administrators,
            tokens,
            failures: Failures::new(metrics.failed_authentications.clone()),
        }
    }

    pub(crate) fn is_proxy(&self, peer: Peer) -> bool {
        match peer {
            Peer::Unix(uid) => self.proxy_uids.contains(&uid),
            Peer::Tcp(address) => self.proxies.iter().any(|proxy| proxy.contains(address)),
        }
    }

    /// Trust in a peer before it has sent anything.
    pub(crate) fn trust(&self, peer: Peer) -> Trust {
        if self.is_proxy(peer) {
            return Trust::Proxy;
        }
        match peer {
            Peer::Unix(uid) if self.administrators.contains(uid) => Trust::Administrator,
            Peer::Unix(_) | Peer::Tcp(_) => Trust::User,
        }
    }

    /// Tells whether the peer may connect at all: where other machines can, only proxies and this machine
    /// may.
    pub(crate) fn may_connect(&self, peer: Peer) -> bool {
        match peer {
            Peer::Unix(_) => true,
            Peer::Tcp(address) => !self.is_remote || address.is_loopback() || self.is_proxy(peer),
        }
    }

    pub(crate) async fn authenticate(
        &self,
        peer: Peer,
        headers: &HeaderMap,
    ) -> Result<(Principal, Option<ApiToken>), Problem> {
        let claim = self.claim(peer, headers).map_err(|problem| self.failures.failed(peer, problem))?;
        let uid = match claim {
            Claim::Token(token) => return Ok((self.verify(peer, &token).await?, Some(token))),
            Claim::Uid(uid) => uid,
            Claim::User(user) => {
                // The name service may be slow.
                let found = tokio::task::spawn_blocking(move || users::uid_of(user.as_str())).await;
                match found.ok().flatten() {
                    // A proxy does not log root in: administrators have names of their own.
                    Some(uid) if uid != 0 => uid,
                    Some(_) | None => {
                        let detail = "the user that the proxy names cannot use this API";
                        let problem = Problem::new(StatusCode::FORBIDDEN, "unknown_user", detail);
                        return Err(self.failures.failed(peer, problem));
                    }
                }
            }
        };
        Ok((Principal::with_all_rights(uid), None))
    }

    async fn verify(&self, peer: Peer, token: &ApiToken) -> Result<Principal, Problem> {
        let is_suspect = !self.failures.are_few(peer);
        self.tokens.verify(token, is_suspect).await.map_err(|unverified| match unverified {
            Unverified::Invalid => {
                let detail =
                    "the token is unknown, revoked or expired; create one with `polymeter token create`";
                self.failures.failed(peer, unauthenticated(detail))
            }
            Unverified::Unavailable => {
                let detail = "tokens cannot be checked now; try again in a moment";
                Problem::busy(detail, 1)
            }
        })
    }

    fn claim(&self, peer: Peer, headers: &HeaderMap) -> Result<Claim, Problem> {
        if let Some(token) = self.token(peer, headers)? {
            return Ok(Claim::Token(token));
        }
        let mut named = headers.get_all(&self.user_header).iter();
        let (first, second) = (named.next(), named.next());
        if self.is_proxy(peer) {
            // Two headers: the proxy passed on one of its client.
            let (Some(first), None) = (first, second) else {
                return Err(unauthenticated(format!(
                    "the proxy must name the user in exactly one header {}",
                    self.user_header
                )));
            };
            let name = first.to_str().ok().and_then(|name| Identifier::try_from(name).ok());
            return name.map(Claim::User).ok_or_else(|| unauthenticated("the proxy names no valid user"));
        }
        if first.is_some() {
            let detail = format!(
                "the header {} is accepted only from `trusted_proxies`, to which this client does not belong",
                self.user_header
            );
            return Err(Problem::new(StatusCode::FORBIDDEN, "untrusted_proxy", detail));
        }
        match peer {
            // The collector's own user has the rights of root.
            Peer::Unix(uid) if uid == rustix::process::geteuid().as_raw() => Ok(Claim::Uid(0)),
            Peer::Unix(uid) => Ok(Claim::Uid(uid)),
            Peer::Tcp(_) => Err(unauthenticated(
                "connect to the Unix socket of the API, or through a trusted proxy that names you",
            )),
        }
    }

    /// None if the request has none.
    fn token(&self, peer: Peer, headers: &HeaderMap) -> Result<Option<ApiToken>, Problem> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (value, None) = (values.next(), values.next()) else {
            return Err(unauthenticated("more than one header Authorization"));
        };
        let Some(value) = value else { return Ok(None) };
        let is_named = headers.contains_key(&self.user_header);
        let words = value.to_str().unwrap_or_default().split_once(' ');
        let Some((scheme, token)) = words.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) else {
            // A proxy may pass on what its client sent to it, such as a password.
            if is_named && self.is_proxy(peer) {
                return Ok(None);
            }
            return Err(unauthenticated(
                "expected `Authorization: Bearer TOKEN`; `polymeter token create` prints a token",
            ));
        };
        if is_named {
            return Err(unauthenticated(format!(
                "the request has both a token and the header {}, which name two users",
                self.user_header
            )));
        }
        let token = ApiToken::parse(token.trim());
        token
            .map(Some)
            .ok_or_else(|| unauthenticated(format!("the {scheme} token has not the form of a token")))
    }
}

fn unauthenticated(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail)
        .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"polymeter\""))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use polymeter_service::api_token::{Secret, new_id};
    use polymeter_store::reader::Access;

    use super::*;

    fn authenticator(listen: &str, proxies: &[&str]) -> Authenticator {
        let mut config = ApiConfig::new(listen.parse().unwrap());
        config.trusted_proxies = proxies.iter().map(|proxy| proxy.parse().unwrap()).collect();
        let store = "sqlite:/nowhere/polymeter.db".parse().unwrap();
        let tokens = TokenService::start(store, Arc::new(Access::owner)).unwrap();
        let administrators = KnownAdministrators::new([54_322].into_iter());
        Authenticator::new(&config, administrators, tokens, &ApiMetrics::default())
    }

    fn claim(of: &Authenticator, peer: Peer, headers: &[(&'static str, &str)]) -> Result<Claim, u16> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        of.claim(peer, &map).map_err(|problem| problem.status().as_u16())
    }

    const USER: Peer = Peer::Unix(54_321);

    #[test]
    fn the_kernel_names_users_of_this_machine() {
        let of = authenticator("/run/api.sock", &[]);
        assert_eq!(claim(&of, USER, &[]), Ok(Claim::Uid(54_321)));
        let own = Peer::Unix(rustix::process::geteuid().as_raw());
        assert_eq!(claim(&of, own, &[]), Ok(Claim::Uid(0)));
        assert_eq!(claim(&of, USER, &[("x-remote-user", "root")]), Err(403), "it is no proxy");
        assert_eq!(
            claim(&of, USER, &[("authorization", "Bearer x")]),
            Err(401),
            "a bad token is not ignored"
        );
        assert_eq!(claim(&of, USER, &[("authorization", "Basic eDp5")]), Err(401));
    }

    #[test]
    fn a_proxy_names_the_user_and_never_stands_for_itself() {
        let of = authenticator("127.0.0.1:0", &["192.0.2.0/24", "user:daemon"]);
        let daemon = Peer::Unix(users::uid_of("daemon").unwrap());
        for proxy in [Peer::Tcp("192.0.2.9".parse().unwrap()), daemon] {
            assert_eq!(
                claim(&of, proxy, &[("x-remote-user", "ada")]),
                Ok(Claim::User("ada".try_into().unwrap()))
            );
            assert_eq!(claim(&of, proxy, &[]), Err(401));
            assert_eq!(claim(&of, proxy, &[("x-remote-user", "ada"), ("x-remote-user", "bob")]), Err(401));
            for wrong in ["", "\u{e9}", "a\tb"] {
                assert_eq!(claim(&of, proxy, &[("x-remote-user", wrong)]), Err(401), "{wrong}");
            }
        }
        let other = Peer::Tcp("192.0.3.1".parse().unwrap());
        assert_eq!(claim(&of, other, &[("x-remote-user", "ada")]), Err(403));
        assert_eq!(claim(&of, other, &[]), Err(401));
        assert_eq!(
            claim(&of, Peer::Tcp("127.0.0.1".parse().unwrap()), &[]),
            Err(401),
            "loopback names nobody"
        );
    }

    #[test]
    fn only_proxies_connect_from_other_machines() {
        let of = authenticator("0.0.0.0:0", &["192.0.2.1"]);
        let may = |address: &str| of.may_connect(Peer::Tcp(address.parse().unwrap()));
        assert!(may("192.0.2.1") && may("127.0.0.1") && !may("192.0.2.2"));
    }

    #[test]
    fn a_token_names_its_user_on_every_connection() {
        let of = authenticator("127.0.0.1:0", &["192.0.2.1"]);
        let token = ApiToken { id: new_id().unwrap(), secret: Secret::new().unwrap() };
        let (text, proxy) = (token.to_text(), Peer::Tcp("192.0.2.1".parse().unwrap()));
        for peer in [USER, proxy, Peer::Tcp("127.0.0.1".parse().unwrap())] {
            for scheme in ["Bearer", "bearer"] {
                let value = format!("{scheme} {text}");
                assert_eq!(claim(&of, peer, &[("authorization", &value)]), Ok(Claim::Token(token.clone())));
            }
            let value = format!("Bearer {text}");
            let both = [("authorization", value.as_str()), ("x-remote-user", "ada")];
            assert_eq!(claim(&of, peer, &both), Err(401), "it names two users");
            assert_eq!(claim(&of, peer, &[("authorization", &value), ("authorization", &value)]), Err(401));
        }
        let password = [("authorization", "Basic eDp5"), ("x-remote-user", "ada")];
        assert_eq!(claim(&of, proxy, &password), Ok(Claim::User("ada".try_into().unwrap())));
        assert_eq!(claim(&of, USER, &password), Err(401));
        assert_eq!(claim(&of, proxy, &[("authorization", "Basic eDp5")]), Err(401));
    }

    #[tokio::test]
    async fn a_token_is_not_accepted_without_the_store() {
        let of = authenticator("127.0.0.1:0", &[]);
        let token = ApiToken { id: new_id().unwrap(), secret: Secret::new().unwrap() };
        let mut headers = HeaderMap::new();
        let value = format!("Bearer {}", token.to_text());
        headers.insert(header::AUTHORIZATION, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        let problem = of.authenticate(USER, &headers).await.unwrap_err();
        assert_eq!(problem.status().as_u16(), 503);
    }
}
