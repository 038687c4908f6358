//! The way of a request to its endpoint and back.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::HttpBody as _;
use axum::extract::RawPathParams;
use axum::extract::rejection::RawPathParamsRejection;
use axum::http::{HeaderMap, HeaderName, Request, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;

use crate::arguments::{Arguments, check_encoding};
use crate::auth::Authenticator;
use crate::call::{Call, Services};
use crate::connection::Client;
use crate::endpoint::{Endpoint, Method};
use crate::endpoints::ALL;
use crate::format::negotiate;
use crate::headers::with_headers;
use crate::hosts::Hosts;
use crate::principal::Scope;
use crate::problem::Problem;
use crate::quota::Quota;
use crate::{health, limits, openapi, site};

/// The state that all requests share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) hosts: Hosts,
    pub(crate) authenticator: Authenticator,
    pub(crate) quota: Arc<Quota>,
    pub(crate) services: Arc<Services>,
}

/// Returns the router of all endpoints.
pub(crate) fn router(shared: &Arc<Shared>) -> Router {
    let mut router = site::add_routes(Router::new());
    for endpoint in ALL {
        let shared = Arc::clone(shared);
        let serve = move |path: Result<RawPathParams, RawPathParamsRejection>,
                          request: Request<axum::body::Body>| {
            let shared = Arc::clone(&shared);
            async move {
                let answer = serve(&shared, endpoint, path, request).await;
                let response = with_headers(answer.unwrap_or_else(Problem::into_response));
                shared.services.links.metrics.count(endpoint.id, response.status());
                response
            }
        };
        let filter = match endpoint.method {
            Method::Get => MethodFilter::GET,
            Method::Post => MethodFilter::POST,
        };
        router = router.route(endpoint.path, on(filter, serve));
    }
    let services = Arc::clone(&shared.services);
    let ready = move || {
        let services = Arc::clone(&services);
        async move { with_headers(health::ready(&services).await) }
    };
    let guard = Arc::clone(shared);
    let check = from_fn(move |request: Request<axum::body::Body>, next: Next| {
        let checked = check_host(&guard, &request);
        async move {
            match checked {
                Ok(()) => next.run(request).await,
                Err(problem) => with_headers(problem.into_response()),
            }
        }
    });
    router
        .route("/api/openapi.json", on(MethodFilter::GET, async || with_headers(openapi::response(ALL))))
        .fallback(async || {
            let detail = "no such resource; /api/openapi.json lists those of this API";
            with_headers(Problem::new(StatusCode::NOT_FOUND, "unknown_resource", detail).into_response())
        })
        .method_not_allowed_fallback(method_not_allowed)
        .layer(check)
        // Load balancers ask for these by any name; they contain nothing.
        .route("/health", on(MethodFilter::GET, async || with_headers(health::alive())))
        .route("/ready", on(MethodFilter::GET, ready))
        .method_not_allowed_fallback(method_not_allowed)
}

async fn method_not_allowed() -> Response {
    let detail = "this resource does not have that method";
    with_headers(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail).into_response())
}

/// Refuses a request that is addressed to the name of another site.
fn check_host(shared: &Shared, request: &Request<axum::body::Body>) -> Result<(), Problem> {
    let client = request.extensions().get::<Client>();
    let is_proxy = client.is_some_and(|client| shared.authenticator.is_proxy(client.peer));
    shared.hosts.check(request.uri(), request.headers(), is_proxy)
}

async fn serve(
    shared: &Shared,
    endpoint: &'static Endpoint,
    path: Result<RawPathParams, RawPathParamsRejection>,
    request: Request<axum::body::Body>,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let Some(client) = head.extensions.get::<Client>() else {
        return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "unknown client"));
    };
    let (principal, token) = shared.authenticator.authenticate(client.peer, &head.headers).await?;
    let permit = shared.quota.acquire(principal.uid)?;
    let path = path.map_err(|_invalid| {
        Problem::new(StatusCode::BAD_REQUEST, "invalid", "the path is not valid UTF-8")
    })?;
    check_encoding(head.uri.query().unwrap_or_default())?;
    let (format, query) = without_format(head.uri.query());
    let arguments = Arguments::parse(endpoint.parameters, path.iter(), query.as_deref())?;
    let format = negotiate(endpoint.formats, format.as_deref(), &head.headers)?;
    let body = match endpoint.method {
        Method::Get => Bytes::new(),
        Method::Post => {
            if principal.scope == Scope::Read {
                let detail = "the token has the scope `read`; create one with `polymeter token create --scope control`";
                return Err(Problem::new(StatusCode::FORBIDDEN, "scope", detail));
            }
            check_origin(&head.headers)?;
            read_body(&head.headers, body).await?
        }
    };
    let (services, close) = (Arc::clone(&shared.services), Arc::clone(&client.close));
    (endpoint.handler)(Call { services, principal, token, arguments, format, body, permit, close }).await
}

/// Takes the parameter `format`, which every endpoint has, out of a query.
fn without_format(query: Option<&str>) -> (Option<String>, Option<String>) {
    let Some(query) = query else { return (None, None) };
    let is_format = |part: &&str| part.starts_with("format=");
    let formats: Vec<&str> = query.split('&').filter(is_format).collect();
    // More than one is refused as a repeated parameter.
    let [format] = formats.as_slice() else { return (None, Some(query.to_owned())) };
    let format = form_urlencoded::parse(format.as_bytes()).next().map(|(_, value)| value.into_owned());
    let others: Vec<&str> = query.split('&').filter(|part| !is_format(part) && !part.is_empty()).collect();
    (format, Some(others.join("&")))
}

/// Refuses a request that a page of another origin made a browser send.
fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let is_cross_site = text(HeaderName::from_static("sec-fetch-site"))
        .is_some_and(|site| site != "same-origin" && site != "none");
    let host = text(header::HOST).unwrap_or_default();
    let of_host = |origin: &str| origin.split_once("://").is_some_and(|(_, authority)| authority == host);
    let is_other = text(header::ORIGIN).is_some_and(|origin| !of_host(origin));
    if is_cross_site || is_other {
        let detail = "a page of another origin cannot change anything";
        return Err(Problem::new(StatusCode::FORBIDDEN, "cross_origin", detail));
    }
    Ok(())
}

/// Reads the body of a request, which must be JSON: a form of another page cannot send that.
async fn read_body(headers: &HeaderMap, body: axum::body::Body) -> Result<Bytes, Problem> {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        let detail = "expected a body with `Content-Type: application/json`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", detail));
    }
    let too_large = || {
        let detail = format!("the body is longer than {} bytes", limits::BODY_BYTES);
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
    };
    if body.size_hint().lower() > limits::BODY_BYTES as u64 {
        return Err(too_large());
    }
    let collected = timeout(limits::BODY_TIMEOUT, Limited::new(body, limits::BODY_BYTES).collect()).await;
    let late = |after: Duration| {
        let detail = format!("the body did not arrive within {} s", after.as_secs());
        Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", detail)
    };
    match collected.map_err(|_elapsed| late(limits::BODY_TIMEOUT))? {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(_) => Err(Problem::new(StatusCode::BAD_REQUEST, "malformed", "the body is incomplete")),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_format_is_a_parameter_of_every_endpoint() {
        let split = |query: &str| without_format(Some(query));
        let both = |format: Option<&str>, query: &str| (format.map(str::to_owned), Some(query.to_owned()));
        assert_eq!(without_format(None), (None, None));
        assert_eq!(split("user=a&format=csv&limit=1"), both(Some("csv"), "user=a&limit=1"));
        assert_eq!(split("user=format=csv"), both(None, "user=format=csv"));
        assert_eq!(split("format=csv&format=json"), both(None, "format=csv&format=json"));
    }

    #[test]
    fn pages_of_other_origins_change_nothing() {
        let check = |headers: &[(&'static str, &'static str)]| {
            let mut map = HeaderMap::new();
            map.insert(header::HOST, HeaderValue::from_static("meter.example:8443"));
            headers.iter().for_each(|(name, value)| drop(map.insert(*name, HeaderValue::from_static(value))));
            check_origin(&map).map_err(|problem| problem.status().as_u16())
        };
        assert_eq!(check(&[]), Ok(()), "a program");
        assert_eq!(
            check(&[("origin", "https://meter.example:8443"), ("sec-fetch-site", "same-origin")]),
            Ok(())
        );
        for headers in [
            [("origin", "https://evil.example")],
            [("origin", "null")],
            [("origin", "https://meter.example")],
            [("sec-fetch-site", "cross-site")],
            [("sec-fetch-site", "same-site")],
        ] {
            assert_eq!(check(&headers), Err(403), "{headers:?}");
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
