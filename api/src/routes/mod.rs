//! Way of a request to its endpoint and back.
//!
//! A request is refused by the first of these that it does not satisfy: the name by which it addresses the
//! API, its path, the authentication, the quota of its user, its parameters, its format, its body.

mod compression;
mod health;
mod openapi;
mod site;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;

use crate::access::{Authenticator, Client, Hosts, Quota};
use crate::answer::{KeptCores, Problem, RecentAnswers, as_page, negotiate};
use crate::config::ApiConfig;
use crate::endpoints::ALL;
use crate::limits;
use crate::links::Links;
use crate::readers::Readers;
use crate::request::{Arguments, Call, Endpoint, FORMAT, Services, check_encoding};

#[derive(Debug)]
pub(crate) struct Shared {
    hosts: Hosts,
    pub(crate) authenticator: Authenticator,
    pub(crate) quota: Arc<Quota>,
    pub(crate) services: Arc<Services>,
    readiness: health::Readiness,
}

impl Shared {
    pub(crate) fn new(config: &ApiConfig, links: Links, readers: Readers) -> Self {
        let (limits, recent, cores) = (config.limits, RecentAnswers::default(), KeptCores::default());
        Self {
            hosts: Hosts::new(&config.server_names),
            authenticator: Authenticator::new(
                config,
                links.administrators.clone(),
                links.tokens.clone(),
                &links.metrics,
            ),
            quota: Arc::new(Quota::new(limits, links.administrators.clone(), links.metrics.clone())),
            services: Arc::new(Services { links, readers, recent, cores, limits }),
            readiness: health::Readiness::default(),
        }
    }
}

/// Each request has a [`Client`] as extension.
pub(crate) fn router(shared: &Arc<Shared>) -> Router {
    let mut router = site::routes();
    for endpoint in ALL {
        let serve = move |State(shared): State<Arc<Shared>>, client, path, request| async move {
            let response = serve(&shared, endpoint, client, path, request).await.into_response();
            shared.services.links.metrics.count(endpoint.id, response.status());
            response
        };
        let route = if endpoint.body.is_some() { post(serve) } else { get(serve) };
        router = router.route(endpoint.path, route);
    }
    let ready = async |State(shared): State<Arc<Shared>>| {
        health::ready(&shared.services.readers, &shared.readiness).await
    };
    router
        .route("/job/{id}", get(site::by_id))
        .route("/api/openapi.json", get(async || openapi::response(ALL)))
        .fallback(async || {
            let detail = "no such resource; /api/openapi.json lists those of this API";
            Problem::new(StatusCode::NOT_FOUND, "unknown_resource", detail)
        })
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(shared), check_host))
        // Load balancers ask for these by any name; they contain nothing.
        .route("/health", get(health::alive))
        .route("/ready", get(ready))
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn(finish))
        .with_state(Arc::clone(shared))
}

async fn method_not_allowed() -> Problem {
    let detail = "this resource does not have that method";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}

/// Headers of every response, unless it is a file of the pages with its own: no answer may be interpreted as
/// a page, framed, cached, or read by another origin.
const HEADERS: [(HeaderName, &str); 8] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::VARY, "Accept, Accept-Encoding, Authorization"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Answers problems of a browser with pages, and adds the headers of every response.
async fn finish(request: Request, next: Next) -> Response {
    let text = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let (accept, path) = (text.unwrap_or_default().to_owned(), request.uri().path().to_owned());
    with_headers(as_page(next.run(request).await, &accept, &path))
}

/// Adds the headers of every response, except for those that the response already has.
fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Refuses a request that is addressed to the name of another site.
async fn check_host(
    State(shared): State<Arc<Shared>>,
    Extension(client): Extension<Client>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let is_proxy = shared.authenticator.is_proxy(client.peer);
    shared.hosts.check(request.uri(), request.headers(), is_proxy)?;
    Ok(next.run(request).await)
}

async fn serve(
    shared: &Shared,
    endpoint: &'static Endpoint,
    Extension(Client { peer, close, activity }): Extension<Client>,
    path: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let (principal, token) = shared.authenticator.authenticate(peer, &head.headers).await?;
    let permit = shared.quota.acquire(principal.uid, &activity).await?;
    let path = path.map_err(|_invalid| {
        Problem::new(StatusCode::BAD_REQUEST, "invalid", "the path is not valid UTF-8")
    })?;
    check_encoding(head.uri.query().unwrap_or_default())?;
    let arguments = Arguments::parse(endpoint.parameters, path.iter(), head.uri.query())?;
    let format = negotiate(endpoint.formats, arguments.text(FORMAT.name), &head.headers)?;
    let body = match endpoint.body {
        None => Bytes::new(),
        Some(_) => {
            if !principal.scope.may_change() {
                let detail = format!(
                    "the token has the scope `{}`; create one with `polymeter token create --scope control`",
                    principal.scope.name()
                );
                return Err(Problem::new(StatusCode::FORBIDDEN, "scope", detail));
            }
            check_origin(&head.headers)?;
            read_body(&head.headers, body).await?
        }
    };
    let services = Arc::clone(&shared.services);
    let is_compressed = compression::compresses(endpoint, &head.headers);
    (endpoint.handler)(Call {
        services,
        principal,
        token,
        arguments,
        format,
        is_compressed,
        body,
        permit,
        close,
    })
    .await
}

/// Refuses a request that a page of another origin made a browser send.
fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let is_cross_site = text(HeaderName::from_static("sec-fetch-site"))
        .is_some_and(|site| site != "same-origin" && site != "none");
    let host = text(header::HOST).unwrap_or_default();
    let is_other = text(header::ORIGIN)
        .is_some_and(|origin| origin.split_once("://").is_none_or(|(_, authority)| authority != host));
    if is_cross_site || is_other {
        let detail = "a page of another origin cannot change anything";
        return Err(Problem::new(StatusCode::FORBIDDEN, "cross_origin", detail));
    }
    Ok(())
}

fn too_large() -> Problem {
    let detail = format!("the body is longer than {} bytes", limits::BODY_BYTES);
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
}

fn late(after: Duration) -> Problem {
    let detail = format!("the body did not arrive within {} s", after.as_secs());
    Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", detail)
}

/// Reads the body of a request, which must be JSON: a form of another page cannot send that.
async fn read_body(headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        let detail = "expected a body with `Content-Type: application/json`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", detail));
    }
    if body.size_hint().lower() > limits::BODY_BYTES as u64 {
        return Err(too_large());
    }
    let collected = timeout(limits::BODY_TIMEOUT, Limited::new(body, limits::BODY_BYTES).collect()).await;
    match collected.map_err(|_elapsed| late(limits::BODY_TIMEOUT))? {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(_) => Err(Problem::new(StatusCode::BAD_REQUEST, "malformed", "the body is incomplete")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(headers: &[(&'static str, &'static str)]) -> Result<(), u16> {
        let mut map = HeaderMap::new();
        map.insert(header::HOST, HeaderValue::from_static("meter.example:8443"));
        headers.iter().for_each(|(name, value)| drop(map.insert(*name, HeaderValue::from_static(value))));
        check_origin(&map).map_err(|problem| problem.status().as_u16())
    }

    #[test]
    fn pages_of_other_origins_change_nothing() {
        assert_eq!(checked(&[]), Ok(()), "a program");
        assert_eq!(
            checked(&[("origin", "https://meter.example:8443"), ("sec-fetch-site", "same-origin")]),
            Ok(())
        );
        for headers in [
            [("origin", "https://evil.example")],
            [("origin", "null")],
            [("origin", "https://meter.example")],
            [("sec-fetch-site", "cross-site")],
            [("sec-fetch-site", "same-site")],
        ] {
            assert_eq!(checked(&headers), Err(403), "{headers:?}");
        }
    }

    #[tokio::test]
    async fn bodies_are_small_and_json() {
        let read = async |content_type: &'static str, length: usize| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            let body = read_body(&headers, vec![b'x'; length].into()).await;
            body.map(|body| body.len()).map_err(|problem| problem.status().as_u16())
        };
        assert_eq!(read("application/json; charset=utf-8", limits::BODY_BYTES).await, Ok(limits::BODY_BYTES));
        assert_eq!(read("application/json", limits::BODY_BYTES + 1).await, Err(413));
        for other in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""] {
            assert_eq!(read(other, 1).await, Err(415), "{other}");
        }
    }
}
