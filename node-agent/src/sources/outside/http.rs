//! Requests to devices by HTTP: bounded in time and bytes, and to the configured host only.

use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName,
    HeaderValue, USER_AGENT,
};
use hyper::{Method, Request, Response, StatusCode};
use polymeter_service::http_client::{self, NoAnswer};
use polymeter_service::tls_client::{self, Trust};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::rustls::ClientConfig;

use super::connection::DeviceError;
use super::credentials::Credentials;
use super::settings::{DeviceSettings, DeviceUrl, Scheme};
use super::stream::address;

/// Keys of the file of credentials of a device that is asked by HTTP.
pub(super) const KEYS: [&str; 5] = ["user", "password", "token", "ca_file", "certificate"];

/// Header with the token of a session of Redfish.
pub(super) const SESSION_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// A connection stays open from request to request, as long as the device permits it.
pub(super) struct HttpClient {
    url: DeviceUrl,
    timeout: Duration,
    /// Common to all requests, secrets among them.
    headers: HeaderMap,
    /// Credentials that [`HttpClient::use_session`] sets aside.
    authorization: Option<HeaderValue>,
    tls: Option<Arc<ClientConfig>>,
    /// Taken only when it is dropped.
    runtime: Option<Runtime>,
    open: Option<SendRequest<Full<Bytes>>>,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("url", &self.url).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) headers: HeaderMap,
    /// Decompressed page.
    pub(super) body: Bytes,
}

impl HttpClient {
    /// Reads the file of credentials, and connects later.
    pub(super) fn new(
        device: &DeviceSettings,
        credentials: Option<&Credentials>,
    ) -> Result<Self, DeviceError> {
        let url = device.url.clone();
        let invalid = |reason: String| DeviceError::Credentials(reason);
        let is_tls = matches!(url.scheme, Scheme::Https);
        let trust = trust(credentials).map_err(invalid)?;
        let tls = is_tls.then(|| tls_client::configuration(&trust)).transpose();
        let tls = tls.map_err(|error| DeviceError::Credentials(error.to_string()))?;
        let mut headers = HeaderMap::new();
        let host = HeaderValue::from_str(&authority(&url));
        headers.insert(HOST, host.map_err(|_invalid| DeviceError::Malformed("invalid host in `url`"))?);
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("polymeter-agent/", env!("CARGO_PKG_VERSION"))),
        );
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        let secret = |text: String| {
            secret(&text).ok_or_else(|| invalid("they have characters that HTTP forbids".to_owned()))
        };
        let authorization = credentials.and_then(authorization).map(secret).transpose()?;
        headers.extend(authorization.clone().map(|value| (AUTHORIZATION, value)));
        let timeout = Duration::from_micros(device.timeout.as_micros());
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        Ok(Self { url, timeout, headers, authorization, tls, runtime: Some(runtime), open: None })
    }

    /// Asks for a page of at most `limit_bytes`, compressed or not.
    ///
    /// # Errors
    ///
    /// Fails without a complete answer in time, for an answer that is too long, and for any but a success: a
    /// redirection is not followed, since it may lead to another host.
    pub(super) fn get(
        &mut self,
        path: &str,
        accept: &'static str,
        limit_bytes: usize,
    ) -> Result<Answer, DeviceError> {
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.method_mut() = Method::GET;
        *request.uri_mut() =
            path.parse().map_err(|_invalid| DeviceError::Malformed("a path is not valid"))?;
        request.headers_mut().clone_from(&self.headers);
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(accept));
        let response = self.exchange(&request, limit_bytes)?;
        let (head, body) = response.into_parts();
        check_status(head.status)?;
        let body = match head.headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
            None | Some(b"identity") => body,
            Some(b"gzip") => unpack(&body, limit_bytes)?,
            Some(_) => return Err(DeviceError::Malformed("it has a compression other than gzip")),
        };
        Ok(Answer { headers: head.headers, body })
    }

    /// Sends the token of a session with each request, instead of the credentials. Without a token sends
    /// nothing of either.
    pub(super) fn use_session(&mut self, token: Option<HeaderValue>) {
        self.headers.remove(AUTHORIZATION);
        self.headers.remove(SESSION_TOKEN);
        self.headers.extend(token.map(|token| (SESSION_TOKEN, token)));
    }

    /// Sends the credentials with each request.
    pub(super) fn use_credentials(&mut self) {
        self.use_session(None);
        self.headers.extend(self.authorization.clone().map(|value| (AUTHORIZATION, value)));
    }

    /// Sends a request other than for a page, with JSON if there is a body. Any status is an answer.
    ///
    /// # Errors
    ///
    /// Fails without a complete answer in time. The request is not repeated.
    pub(super) fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        limit_bytes: usize,
    ) -> Result<(StatusCode, HeaderMap), DeviceError> {
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() =
            path.parse().map_err(|_invalid| DeviceError::Malformed("a path is not valid"))?;
        request.headers_mut().clone_from(&self.headers);
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let (head, _) = self.attempt(None, &request, limit_bytes)?.into_parts();
        Ok((head.status, head.headers))
    }

    fn exchange(
        &mut self,
        request: &Request<Full<Bytes>>,
        limit_bytes: usize,
    ) -> Result<Response<Bytes>, DeviceError> {
        let kept = self.open.take().filter(|open| !open.is_closed());
        let was_kept = kept.is_some();
        match self.attempt(kept, request, limit_bytes) {
            // The device may have closed a connection that was idle. The request changes nothing on it.
            Err(DeviceError::Http(_)) if was_kept => self.attempt(None, request, limit_bytes),
            answer => answer,
        }
    }

    fn attempt(
        &mut self,
        open: Option<SendRequest<Full<Bytes>>>,
        request: &Request<Full<Bytes>>,
        limit_bytes: usize,
    ) -> Result<Response<Bytes>, DeviceError> {
        let usual_port = if self.tls.is_some() { 443 } else { 80 };
        let address = address(&self.url, Some(usual_port))?;
        let (host, tls) = (self.url.host.as_str(), self.tls.clone());
        let whole = async {
            let mut sender = match open {
                Some(sender) => sender,
                None => http_client::begin(TcpStream::connect(address).await?, host, tls).await?,
            };
            sender.ready().await?;
            let (head, body) = sender.send_request(request.clone()).await?.into_parts();
            let body = http_client::body(body, limit_bytes).await?;
            Ok::<_, NoAnswer>((sender, Response::from_parts(head, body)))
        };
        let Some(runtime) = &self.runtime else { return Err(DeviceError::Closed) };
        let answer = runtime.block_on(async { tokio::time::timeout(self.timeout, whole).await });
        let (sender, response) = answer.map_err(|_elapsed| DeviceError::Timeout)??;
        self.open = Some(sender);
        Ok(response)
    }
}

impl Drop for HttpClient {
    /// The supervisor, which may be the last to drop a device, is asynchronous: it cannot wait for the runtime.
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Value of a header that nothing prints.
pub(super) fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn check_status(status: StatusCode) -> Result<(), DeviceError> {
    match status {
        StatusCode::OK => Ok(()),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Err(DeviceError::Refused(format!("HTTP status {}", status.as_u16())))
        }
        _ if status.is_redirection() => Err(DeviceError::Redirected),
        _ => Err(DeviceError::Status(status.as_u16())),
    }
}

fn unpack(body: &Bytes, limit_bytes: usize) -> Result<Bytes, DeviceError> {
    let mut plain = Vec::new();
    let limit = u64::try_from(limit_bytes).unwrap_or(u64::MAX);
    MultiGzDecoder::new(&**body)
        .take(limit.saturating_add(1))
        .read_to_end(&mut plain)
        .map_err(|_invalid| DeviceError::Malformed("its compressed data is damaged or cut off"))?;
    if plain.len() > limit_bytes {
        return Err(DeviceError::Malformed("it is too long"));
    }
    Ok(plain.into())
}

/// Host and port as the URL states them.
fn authority(url: &DeviceUrl) -> String {
    let host = if url.host.contains(':') { format!("[{}]", url.host) } else { url.host.clone() };
    url.port.map_or(host.clone(), |port| format!("{host}:{port}"))
}

fn trust(credentials: Option<&Credentials>) -> Result<Trust, String> {
    let get = |key| credentials.and_then(|credentials| credentials.get(key));
    match (get("certificate"), get("ca_file")) {
        (Some(_), Some(_)) => Err("`certificate` and `ca_file` exclude each other".to_owned()),
        (Some(fingerprint), None) => fingerprint
            .parse()
            .map(Trust::Certificate)
            .map_err(|error: tls_client::InvalidFingerprint| format!("`certificate`: {error}")),
        (None, Some(path)) => Ok(Trust::Authorities(path.into())),
        (None, None) => Ok(Trust::System),
    }
}

fn authorization(credentials: &Credentials) -> Option<String> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    if let Some(token) = credentials.get("token") {
        return Some(format!("Bearer {token}"));
    }
    let user = credentials.get("user")?;
    let password = credentials.get("password").unwrap_or_default();
    Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
}

/// Type of an answer without its parameters, in lower case.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
