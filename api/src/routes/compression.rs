//! Answers that are compressed.
//!
//! Whoever sees the length of an answer may guess a secret in it if text of his own stands beside it. Only
//! answers about one job are therefore compressed, whose text is of one user, and none that a page of another
//! site asked for.

use axum::http::{HeaderMap, header};

use crate::answer::accepts_gzip;
use crate::request::Endpoint;

/// Tells whether the answer to a request is compressed.
pub(super) fn compresses(endpoint: &Endpoint, headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let is_of_one_job = endpoint.body.is_none() && endpoint.path.starts_with("/api/v1/jobs/{key}");
    is_of_one_job
        && matches!(text("sec-fetch-site"), None | Some("same-origin" | "none"))
        && accepts_gzip(text(header::ACCEPT_ENCODING.as_str()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;
    use crate::endpoints::ALL;

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let of = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        all.iter().map(of).collect()
    }

    #[test]
    fn answers_about_one_job_are_compressed_for_the_page_that_asks() {
        let ids = |headers: &HeaderMap| {
            ALL.iter().filter(|one| compresses(one, headers)).map(|one| one.id).collect::<Vec<_>>()
        };
        let of_page = headers(&[("accept-encoding", "gzip, br"), ("sec-fetch-site", "same-origin")]);
        for id in ["course", "summary", "samples", "job"] {
            assert!(ids(&of_page).contains(&id), "{id}");
        }
        for id in ["jobs", "whoami", "usage", "notices", "overview", "set_periods", "compare", "trend"] {
            assert!(!ids(&of_page).contains(&id), "{id}");
        }
        assert_eq!(ids(&headers(&[("accept-encoding", "gzip")])), ids(&of_page), "a program");
        assert!(ids(&headers(&[("sec-fetch-site", "same-origin")])).is_empty());
        for other in ["cross-site", "same-site"] {
            assert!(ids(&headers(&[("accept-encoding", "gzip"), ("sec-fetch-site", other)])).is_empty());
        }
    }
}
