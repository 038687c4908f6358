//! Connection to the receiver: HTTP/1.1, persistent, with or without TLS.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request};
use polymeter_service::http_client::{self, NoAnswer};
use polymeter_service::tls_client::{self, Trust};
use tokio::net::TcpStream;

use super::config::{Credentials, Header, OutboundConfig, ReceiverUrl};
use super::protocol::{Form, Response, Statement};

const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// A connection with a larger answer is closed.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) retry_after: Option<String>,
    pub(super) statement: Statement,
}

/// Opened when it is needed, and after an error.
#[derive(Debug)]
pub(super) struct Connection {
    config: Arc<OutboundConfig>,
    open: Option<Open>,
    /// The receiver may have ended since the last call of [`Self::take_loss`].
    is_lost: bool,
}

#[derive(Debug)]
struct Open {
    sender: SendRequest<Full<Bytes>>,
    headers: HeaderMap,
    /// Announced by the receiver.
    is_closing: bool,
}

impl Connection {
    pub(super) const fn new(config: Arc<OutboundConfig>) -> Self {
        Self { config, open: None, is_lost: false }
    }

    /// Sends a body.
    ///
    /// Fails if there is no complete answer in time. The receiver may have accepted the request nevertheless.
    pub(super) async fn post(&mut self, form: &Form, body: Bytes) -> Result<Answer, NoAnswer> {
        let timeout = self.config.timeout;
        let mut is_connected = false;
        // A connection without a complete answer is closed.
        let answer = tokio::time::timeout(timeout, self.exchange(form, body, &mut is_connected)).await;
        self.is_lost |= match &answer {
            // A proxy answers 502 if it cannot reach the receiver.
            Ok(Ok(answer)) => answer.status == 502,
            Ok(Err(_)) => true,
            // A receiver that hangs has not ended.
            Err(_elapsed) => !is_connected,
        };
        answer.unwrap_or_else(|_elapsed| Err(NoAnswer::because(format!("no answer within {timeout:?}"))))
    }

    /// The receiver could not be reached since the last call, or the connection was lost: it may have ended.
    pub(super) const fn take_loss(&mut self) -> bool {
        std::mem::replace(&mut self.is_lost, false)
    }

    async fn exchange(
        &mut self,
        form: &Form,
        body: Bytes,
        is_connected: &mut bool,
    ) -> Result<Answer, NoAnswer> {
        let mut open = match self.open.take() {
            Some(open) if !open.sender.is_closed() => open,
            closed => {
                self.is_lost |= closed.is_some_and(|closed| !closed.is_closing);
                connect(&self.config).await?
            }
        };
        *is_connected = true;
        open.sender.ready().await?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self
            .config
            .url
            .target()
            .parse()
            .map_err(|_invalid| NoAnswer::because("invalid path in `url`"))?;
        let headers = request.headers_mut();
        headers.clone_from(&open.headers);
        for (name, value) in form.headers {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        let (parts, body) = open.sender.send_request(request).await?.into_parts();
        let (status, headers) = (parts.status.as_u16(), parts.headers);
        open.is_closing =
            header(&headers, "connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        let body = match http_client::body(body, ANSWER_BYTES_MAX).await {
            Ok(body) => {
                self.open = Some(open);
                body
            }
            // The status is known: an incomplete text of a refusal changes nothing. That of a success may be
            // cut by a proxy.
            Err(_) if !(200..300).contains(&status) => Bytes::new(),
            Err(error) => return Err(error),
        };
        let retry_after = header(&headers, "retry-after").map(str::to_owned);
        let statement = (form.read)(Response { status, headers: &headers, body: &body });
        Ok(Answer { status, retry_after, statement })
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

async fn connect(config: &OutboundConfig) -> Result<Open, NoAnswer> {
    let headers = headers(config)?;
    let sender = connect_to(&config.url, config.ca_file.as_deref()).await?;
    Ok(Open { sender, headers, is_closing: false })
}

/// TLS is used where the URL says so.
pub(crate) async fn connect_to(
    url: &ReceiverUrl,
    ca_file: Option<&Path>,
) -> Result<SendRequest<Full<Bytes>>, NoAnswer> {
    let stream = TcpStream::connect((url.host(), url.port())).await?;
    let trust = ca_file.map_or(Trust::System, |path| Trust::Authorities(path.to_owned()));
    let tls = url.is_tls().then(|| tls_client::configuration(&trust)).transpose();
    let tls = tls.map_err(|error| NoAnswer::because(error.to_string()))?;
    http_client::begin(stream, url.host(), tls).await
}

fn add_header(headers: &mut HeaderMap, name: &str, value: &str, is_secret: bool) -> Result<(), NoAnswer> {
    let name =
        HeaderName::from_bytes(name.as_bytes()).map_err(|_invalid| NoAnswer::because("invalid header"))?;
    let mut value = HeaderValue::from_str(value).map_err(|_invalid| {
        // Without the value, which may be a secret.
        NoAnswer::because(format!("the value of the header `{name}` has invalid characters"))
    })?;
    value.set_sensitive(is_secret);
    headers.insert(name, value);
    Ok(())
}

/// Common to all requests of a connection. Reads the files with secrets.
fn headers(config: &OutboundConfig) -> Result<HeaderMap, NoAnswer> {
    let mut headers = HeaderMap::new();
    add_header(&mut headers, "host", config.url.authority(), false)?;
    add_header(
        &mut headers,
        "user-agent",
        concat!("polymeter-collector/", env!("CARGO_PKG_VERSION")),
        false,
    )?;
    for Header(name, value) in &config.headers {
        add_header(&mut headers, name, value, false)?;
    }
    if let Some(path) = &config.headers_file {
        for line in
            secret(path)?.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let Header(name, value) = line
                .parse()
                .map_err(|reason| NoAnswer::because(format!("cannot use {}: {reason}", path.display())))?;
            add_header(&mut headers, &name, &value, true)?;
        }
    }
    match &config.credentials {
        Some(Credentials::Basic { username, password_file }) => {
            let password = secret(password_file)?;
            let pair = STANDARD.encode(format!("{username}:{}", password.trim_end_matches(['\r', '\n'])));
            add_header(&mut headers, "authorization", &format!("Basic {pair}"), true)?;
        }
        Some(Credentials::Token { scheme, token_file }) => {
            add_header(
                &mut headers,
                "authorization",
                &format!("{scheme} {}", secret(token_file)?.trim()),
                true,
            )?;
        }
        None => {}
    }
    Ok(headers)
}

fn secret(path: &Path) -> Result<String, NoAnswer> {
    let failed = |cause: String| NoAnswer::because(format!("cannot read {}: {cause}", path.display()));
    let metadata = fs::metadata(path).map_err(|error| failed(error.to_string()))?;
    if metadata.permissions().mode() & 0o004 != 0 {
        return Err(failed(format!("every user can read it; run chmod o= {}", path.display())));
    }
    if metadata.len() > SECRET_BYTES_MAX {
        return Err(failed("it is too large".to_owned()));
    }
    fs::read_to_string(path).map_err(|error| failed(error.to_string()))
}

/// Delay of a `Retry-After`: seconds, or a date; none if it is neither.
pub(super) fn retry_delay(value: &str, now: Duration) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(value).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(at.saturating_sub(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sinks::remote_write::V1;

    #[test]
    fn delays_are_seconds_or_a_date() {
        let now = Duration::from_secs(784_111_770);
        assert_eq!(retry_delay(" 120 ", now), Some(Duration::from_secs(120)));
        assert_eq!(retry_delay("Sun, 06 Nov 1994 08:49:37 GMT", now), Some(Duration::from_secs(7)));
        assert_eq!(retry_delay("Sun, 06 Nov 1994 08:49:20 GMT", now), Some(Duration::ZERO));
        assert_eq!(retry_delay("soon", now), None);
    }

    #[test]
    fn secrets_come_from_private_files_and_are_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let (file, more) = (directory.path().join("token"), directory.path().join("headers"));
        fs::write(&file, "s3cret\n").unwrap();
        fs::write(&more, "# the tenant\n\nX-Scope-OrgID: t3nant\n").unwrap();
        let private =
            |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        private(&file, 0o644);
        private(&more, 0o600);
        let config = OutboundConfig {
            credentials: Some(Credentials::Token { scheme: "Bearer", token_file: file.clone() }),
            headers: vec!["X-A: b".parse().unwrap()],
            headers_file: Some(more.clone()),
            ..OutboundConfig::new(&V1, "http://h:1/".parse().unwrap())
        };
        let error = headers(&config).unwrap_err().to_string();
        assert!(error.contains("chmod o=") && !error.contains("s3cret"), "{error}");
        private(&file, 0o640);
        let found = headers(&config).unwrap();
        assert_eq!(found["authorization"], "Bearer s3cret");
        assert_eq!(
            (&found["x-scope-orgid"], &found["x-a"], &found["host"]),
            (&"t3nant".parse().unwrap(), &"b".parse().unwrap(), &"h:1".parse().unwrap())
        );
        let shown = format!("{found:?}{config:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("t3nant"), "{shown}");
        let credentials = Some(Credentials::Basic { username: "u".to_owned(), password_file: file });
        let found = headers(&OutboundConfig { credentials, ..config.clone() }).unwrap();
        assert_eq!(found["authorization"], "Basic dTpzM2NyZXQ=");
        fs::write(&more, "X-Secret t3nant").unwrap();
        let error = headers(&config).unwrap_err().to_string();
        assert!(error.contains("NAME: VALUE") && !error.contains("t3nant"), "{error}");
    }
}
