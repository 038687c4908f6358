//! Errors for clients, in the form of RFC 9457 (`application/problem+json`).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use polymeter_proto::control::Refusal;
use serde_json::{Map, Value, json};

/// Error for a client. Its text contains nothing that the client must not know.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Problem {
    status: StatusCode,
    /// Text for programs. The detail is one sentence about this occurrence.
    code: String,
    detail: String,
    /// Further members: the parameter at fault, or what would be granted.
    members: Map<String, Value>,
    headers: Vec<(header::HeaderName, HeaderValue)>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        let (code, detail) = (code.to_owned(), detail.into());
        Self { status, code, detail, members: Map::new(), headers: Vec::new() }
    }

    /// A parameter, or a member of a body, is invalid.
    pub(crate) fn invalid(parameter: &str, detail: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", format!("`{parameter}`: {detail}"))
            .with("parameter", parameter)
    }

    /// The job does not exist, or the user must not see it: nothing tells one from the other.
    pub(crate) fn unknown_job() -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown_job", "unknown job, or not yours")
    }

    /// This program cannot produce the answer.
    pub(crate) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "cannot produce the answer")
    }

    /// This program cannot serve the request now; it must be repeated later.
    pub(crate) fn busy(detail: impl Into<String>, retry_after_s: u64) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail).retry_after(retry_after_s)
    }

    /// The client sends too many requests; this one must be repeated later.
    pub(crate) fn too_many(detail: impl Into<String>, retry_after_s: u64) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", detail).retry_after(retry_after_s)
    }

    fn retry_after(self, seconds: u64) -> Self {
        self.header(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)))
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    #[cfg(test)]
    pub(crate) const fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn text(&self) -> String {
        let mut members = self.members.clone();
        members.insert("type".to_owned(), json!("about:blank"));
        members.insert("title".to_owned(), json!(self.status.canonical_reason().unwrap_or("Error")));
        members.insert("status".to_owned(), json!(self.status.as_u16()));
        members.insert("code".to_owned(), json!(self.code));
        members.insert("detail".to_owned(), json!(self.detail));
        Value::Object(members).to_string()
    }

    /// Bytes of the last answer on a connection, where no library writes it.
    pub(crate) fn last_answer(&self) -> String {
        let body = self.text();
        let mut head = format!("HTTP/1.1 {}\r\n", self.status);
        for (name, value) in &self.headers {
            head += &format!("{name}: {}\r\n", value.to_str().unwrap_or_default());
        }
        format!(
            "{head}Content-Type: application/problem+json\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(self.text().into());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
        // For a client that wants a page.
        response.extensions_mut().insert(self);
        response
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Answers a problem with a page if the client is a browser that shows the answer: its header `Accept` names
/// HTML. `path` is that of the request.
pub(crate) fn as_page(mut response: Response, accept: &str, path: &str) -> Response {
    let wants_page = accept.split([',', ';']).any(|kind| kind.trim().eq_ignore_ascii_case("text/html"));
    let Some(problem) = response.extensions_mut().remove::<Problem>().filter(|_| wants_page) else {
        return response;
    };
    let title = escaped(problem.status.canonical_reason().unwrap_or("Error"));
    // Relative, since a proxy may serve the pages below any path.
    let overview = format!("./{}", "../".repeat(path.matches('/').count().saturating_sub(1)));
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title} \u{b7} Polymeter</title>\n</head>\n\
         <body>\n<main>\n<h1>{title}</h1>\n<p>{}</p>\n<p><a href=\"{overview}\">Jobs</a></p>\n</main>\n</body>\n\
         </html>\n",
        escaped(&problem.detail)
    );
    *response.body_mut() = page.into();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

/// Refusal by the coordinator or an agent.
impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.code.as_str() {
            "unknown_job" => return Self::unknown_job(),
            "forbidden" => StatusCode::FORBIDDEN,
            "busy" => return Self::busy(refusal.message.to_string(), 1),
            "malformed" | "invalid" => StatusCode::BAD_REQUEST,
            _ => StatusCode::CONFLICT,
        };
        let mut problem = Self::new(status, &refusal.code, refusal.message.to_string());
        if let Ok(Value::Object(members)) = serde_json::to_value(&refusal) {
            let further = members.into_iter().filter(|(name, _)| name != "code" && name != "message");
            problem.members.extend(further);
        }
        problem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_the_status_of_their_code() {
        for (code, status) in [
            ("unknown_job", 404),
            ("forbidden", 403),
            ("busy", 503),
            ("invalid", 400),
            ("malformed", 400),
            ("shortest_period", 409),
        ] {
            let problem = Problem::from(Refusal::new(code, Some("plan"), "no"));
            assert_eq!(problem.status().as_u16(), status, "{code}");
            let response = problem.into_response();
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), code == "busy");
        }
    }

    #[test]
    fn a_job_of_another_user_is_unknown() {
        let refusal = Refusal::new("unknown_job", Some("job"), "unknown job 7: no agent tracks it");
        assert_eq!(Problem::from(refusal), Problem::unknown_job());
    }

    fn answer(accept: &str, path: &str) -> Response {
        let problem = Problem::new(StatusCode::NOT_FOUND, "x", "no <b>\"such\"</b> & more");
        as_page(problem.into_response(), accept, path)
    }

    #[test]
    fn browsers_get_a_page_and_programs_get_json() {
        for accept in ["", "*/*", "application/json", "text/htmlx", "application/problem+json, */*;q=0.5"] {
            let response = answer(accept, "/nosuch");
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json", "{accept}");
        }
        for (path, overview) in [("/nosuch", "./"), ("/a/b/c", "./../../"), ("/a/", "./../")] {
            let response = answer("text/html,application/xhtml+xml,*/*;q=0.8", path);
            assert_eq!((response.status().as_u16(), response.headers().len()), (404, 1));
            let body = body_of(response);
            assert!(body.contains("<p>no &lt;b&gt;&quot;such&quot;&lt;/b&gt; &amp; more</p>"), "{body}");
            assert!(body.contains(&format!("<a href=\"{overview}\">")), "{body}");
        }
        let fine = as_page(Response::new("text".into()), "text/html", "/");
        assert_eq!(body_of(fine), "text");
    }

    fn body_of(response: Response) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let bytes = runtime.block_on(axum::body::to_bytes(response.into_body(), 1 << 20)).unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }
}
