//! Requests of the page.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use polymeter_proto::exposition::Format;
use polymeter_service::bearer_token::BearerToken;

use super::newest::NewestValues;
use super::{page, selector};
use crate::page_server::Pages;

/// Limit of an answer, which is about 30 MB for this many.
const SERIES_MAX: usize = 200_000;

/// What the thread serves.
#[derive(Debug)]
pub(crate) struct FederatePage {
    values: NewestValues,
    token: Option<BearerToken>,
}

impl FederatePage {
    pub(crate) fn new(token_file: Option<&Path>, values: NewestValues) -> io::Result<Self> {
        let token = token_file.map(BearerToken::read).transpose().map_err(io::Error::other)?;
        Ok(Self { values, token })
    }
}

impl Pages for FederatePage {
    const NAME: &'static str = "federation";
    /// Longest request, that of a scraper with many selectors.
    const REQUEST_BYTES: usize = 32 * 1024;
    /// The text takes some seconds for many series.
    const TIMEOUT: Duration = Duration::from_secs(60);
    /// The writers come before those who look at the values.
    const NICENESS: i32 = 10;

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let authorization = header(request.headers(), AUTHORIZATION.as_str());
        if self.token.as_ref().is_some_and(|token| !token.is_in(authorization)) {
            let mut answer = refusal(StatusCode::UNAUTHORIZED, "the token is missing or wrong");
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return answer;
        }
        if request.uri().path() != "/federate" {
            return refusal(StatusCode::NOT_FOUND, "the page is GET /federate");
        }
        if request.method() != Method::GET {
            let mut answer = refusal(StatusCode::METHOD_NOT_ALLOWED, "the page is GET /federate");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
            return answer;
        }
        let selectors = match selector::of_query(request.uri().query().unwrap_or_default().as_bytes()) {
            Ok(selectors) => selectors,
            Err(error) => return refusal(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        let format = Format::negotiate(header(request.headers(), ACCEPT.as_str()));
        match page::text(&self.values, &selectors, format, SERIES_MAX) {
            Ok(text) => {
                let mut answer = Response::new(Full::from(text));
                answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
                answer
            }
            Err(error) => refusal(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string()),
        }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn refusal(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(format!("{text}\n")));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}
