//! The pages: documents and the files that they load. They contain no data, and need no authentication.

use std::future::ready;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use polymeter_analysis::charts::MAIN_QUANTITIES;
use polymeter_page::site::{self, File};

/// Returns a router with a route for each file.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let mut router = Router::new();
    // Constants always have a JSON form.
    let quantities = serde_json::to_string(MAIN_QUANTITIES).unwrap_or_else(|_| "[]".to_owned());
    for file in site::files(&quantities) {
        let path = format!("/{}", file.path);
        let Some(served) = Served::new(file) else { continue };
        let answer = move |headers: HeaderMap| ready(served.response(&headers));
        router = router.route(&path, get(answer));
    }
    router
}

/// A file, with its headers.
#[derive(Debug, Clone)]
struct Served {
    body: Bytes,
    media_type: HeaderValue,
    etag: HeaderValue,
    cache: HeaderValue,
}

impl Served {
    /// Returns none if a header has characters that are not allowed there.
    fn new(file: File) -> Option<Self> {
        let cache = if file.is_immutable { "public, max-age=31536000, immutable" } else { "no-cache" };
        Some(Self {
            body: Bytes::from(file.body),
            media_type: HeaderValue::from_static(file.media_type),
            etag: HeaderValue::try_from(file.etag).ok()?,
            cache: HeaderValue::from_static(cache),
        })
    }

    /// Returns the file, or only that it has not changed.
    fn response(&self, request: &HeaderMap) -> Response {
        let known =
            request.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok()).unwrap_or_default();
        let is_known = known
            .split(',')
            .any(|tag| tag.trim().trim_start_matches("W/").as_bytes() == self.etag.as_bytes());
        let body = if is_known { Body::empty() } else { Body::from(self.body.clone()) };
        let mut response = Response::new(body);
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, self.media_type.clone());
        headers.insert(header::ETAG, self.etag.clone());
        headers.insert(header::CACHE_CONTROL, self.cache.clone());
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(site::POLICY));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::super::with_headers;
    use super::*;

    fn served(is_immutable: bool) -> Served {
        let (path, body, etag) = ("x".to_owned(), "text".to_owned(), "\"12\"".to_owned());
        Served::new(File { path, media_type: "text/css", body, etag, is_immutable }).unwrap()
    }

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        for (known, status) in [
            ("\"12\"", 304),
            ("W/\"12\"", 304),
            ("\"1\", \"12\"", 304),
            ("\"1\"", 200),
            ("", 200),
            ("12", 200),
        ] {
            let mut request = HeaderMap::new();
            request.insert(header::IF_NONE_MATCH, HeaderValue::from_static(known));
            let response = served(true).response(&request);
            assert_eq!(response.status().as_u16(), status, "{known}");
            assert_eq!(response.headers()[header::ETAG], "\"12\"");
        }
    }

    #[test]
    fn the_first_request_for_values_is_that_of_the_first_quantity() {
        let first = MAIN_QUANTITIES.first().unwrap().id();
        let files = site::files("[]");
        let script = files.iter().find(|file| file.path.ends_with("/site/first_requests.js")).unwrap();
        assert!(script.body.contains(&format!("course?quantity={first}`")), "{first}");
    }

    #[test]
    fn documents_are_asked_for_again_and_all_files_have_the_policy() {
        let cache = |is_immutable| {
            served(is_immutable).response(&HeaderMap::new()).headers()[header::CACHE_CONTROL].clone()
        };
        assert_eq!(cache(false), "no-cache");
        assert!(cache(true).to_str().unwrap().contains("immutable"));
        let response = with_headers(served(false).response(&HeaderMap::new()));
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(response.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    }
}
