//! Pages: documents and the files that they load. They contain no data, and need no authentication.

use std::future::ready;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use polymeter_analysis::charts::MAIN_QUANTITIES;
use polymeter_page::site::{self, File};

use crate::answer::{accepts_gzip, compressed_file};

pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let mut router = Router::new();
    // Constants always have a JSON form.
    let quantities = serde_json::to_string(MAIN_QUANTITIES).unwrap_or_else(|_| "[]".to_owned());
    for file in site::files(&quantities) {
        let path = format!("/{}", file.path);
        let Some(served) = Served::new(file) else { continue };
        router = router.route(&path, get(move |headers: HeaderMap| ready(served.response(&headers))));
    }
    router
}

/// Leads from `/job/17` to the page of the job with this id of the scheduler, below any path of a proxy.
pub(super) async fn by_id(Path(id): Path<String>) -> Response {
    let query: String = form_urlencoded::byte_serialize(id.as_bytes()).collect();
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    if let Ok(location) = HeaderValue::try_from(format!("../job?id={query}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

#[derive(Debug, Clone)]
struct Served {
    body: Bytes,
    /// Contents as gzip, once a browser has asked for it.
    compressed: Arc<OnceLock<Bytes>>,
    media_type: HeaderValue,
    etag: HeaderValue,
    cache: HeaderValue,
}

impl Served {
    /// None if a header has characters that are not allowed there.
    fn new(file: File) -> Option<Self> {
        let cache = if file.is_immutable { "public, max-age=31536000, immutable" } else { "no-cache" };
        Some(Self {
            body: Bytes::from(file.body),
            compressed: Arc::default(),
            media_type: HeaderValue::from_static(file.media_type),
            etag: HeaderValue::try_from(file.etag).ok()?,
            cache: HeaderValue::from_static(cache),
        })
    }

    /// Answers with the file, or only that it has not changed.
    fn response(&self, request: &HeaderMap) -> Response {
        let known =
            request.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok()).unwrap_or_default();
        let is_known = known
            .split(',')
            .any(|tag| tag.trim().trim_start_matches("W/").as_bytes() == self.etag.as_bytes());
        let accepted = request.get(header::ACCEPT_ENCODING).and_then(|accepted| accepted.to_str().ok());
        let is_compressed = accepts_gzip(accepted.unwrap_or_default());
        let body = match (is_known, is_compressed) {
            (true, _) => Body::empty(),
            (false, true) => Body::from(self.compressed.get_or_init(|| compressed_file(&self.body)).clone()),
            (false, false) => Body::from(self.body.clone()),
        };
        let mut response = Response::new(body);
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = response.headers_mut();
        if is_compressed && !is_known {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
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

    /// Bytes of a visit, without data: the document, the style, and the scripts that it imports.
    #[test]
    fn a_page_has_less_than_a_hundred_kilobytes() {
        let files = site::files("[]");
        for page in ["overview", "job", "node", "compare", "trend", "status"] {
            let parts = [
                &format!("/site/{page}.js"),
                "/style.css",
                "/uplot/module.js",
                "/site/first_requests.js",
                "job",
            ];
            let bytes: usize = parts
                .into_iter()
                .map(|ending| {
                    let file = files.iter().find(|file| file.path.ends_with(ending)).unwrap();
                    compressed_file(file.body.as_bytes()).len()
                })
                .sum();
            assert!(bytes < 100_000, "{page}: {bytes}");
        }
    }

    #[test]
    fn files_are_compressed_for_those_who_accept_it() {
        for (accepted, is_compressed) in [
            ("gzip, deflate, br", true),
            ("br;q=1.0, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("br", false),
            ("x-gzip", false),
            ("", false),
        ] {
            let mut request = HeaderMap::new();
            request.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            let response = served(true).response(&request);
            assert_eq!(
                response.headers().get(header::CONTENT_ENCODING).is_some(),
                is_compressed,
                "{accepted}"
            );
            assert_eq!(response.headers()[header::VARY], "Accept-Encoding");
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
