//! Session with a controller of Redfish: one login, and a token for the requests behind it.
//!
//! A controller checks a password slowly, and some keep a session for each request that has one.

use std::fmt;

use hyper::header::LOCATION;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::connection::DeviceError;
use super::credentials::Credentials;
use super::http::{HttpClient, SESSION_TOKEN, secret};

/// Bytes of an answer to a login.
const ANSWER_BYTES: usize = 64 * 1024;

/// Bytes of one resource. A collection with all its sensors has some hundred thousand.
const RESOURCE_BYTES: usize = 1024 * 1024;

pub(super) struct Session {
    /// User and password; none if there is no password.
    login: Option<(String, String)>,
    state: State,
}

enum State {
    /// The next request begins one.
    None,
    /// The credentials go with each request.
    Unsupported,
    /// Path at which it is deleted.
    Open(Option<String>),
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn new(credentials: Option<&Credentials>) -> Self {
        let get = |key| credentials.and_then(|credentials| credentials.get(key)).map(str::to_owned);
        let login = get("user").zip(get("password")).filter(|_| get("token").is_none());
        Self { login, state: State::None }
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    pub(super) fn forget(&mut self) {
        self.state = State::None;
    }

    /// Logs in, unless it is done or the controller has no sessions.
    pub(super) fn begin(&mut self, client: &mut HttpClient, root: &str) -> Result<(), DeviceError> {
        if !matches!(self.state, State::None) {
            return Ok(());
        }
        let Some((user, password)) = &self.login else {
            self.state = State::Unsupported;
            return Ok(());
        };
        // The root of the service is for everyone.
        client.use_session(None);
        let sessions = match resource(client, &format!("{root}/")) {
            Ok(service) => service.pointer("/Links/Sessions").and_then(path_of),
            Err(DeviceError::Refused(_)) => None,
            Err(error) => return Err(error),
        };
        let Some(path) = sessions else {
            self.refuse(client);
            return Ok(());
        };
        let login: Value = json!({"UserName": user, "Password": password});
        let (status, headers) = client.send(Method::POST, &path, login.to_string().into(), ANSWER_BYTES)?;
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(DeviceError::Refused(format!("HTTP status {}", status.as_u16())));
        }
        let token = headers.get(SESSION_TOKEN).and_then(|token| secret(token.to_str().ok()?));
        let Some(token) = token.filter(|_| status.is_success()) else {
            self.refuse(client);
            return Ok(());
        };
        client.use_session(Some(token));
        let location = headers.get(LOCATION).and_then(|location| location.to_str().ok());
        self.state = State::Open(location.and_then(|location| of_service(location, &path)));
        Ok(())
    }

    fn refuse(&mut self, client: &mut HttpClient) {
        client.use_credentials();
        self.state = State::Unsupported;
    }

    /// Deletes the session. The controller would keep it for half an hour, and has few.
    pub(super) fn end(&mut self, client: &mut HttpClient) {
        if let State::Open(Some(path)) = std::mem::replace(&mut self.state, State::None) {
            client.send(Method::DELETE, &path, Vec::new(), ANSWER_BYTES).ok();
        }
        client.use_session(None);
    }
}

/// Path of a session, which may be stated with a host. What is no session of this service is left out.
fn of_service(location: &str, sessions: &str) -> Option<String> {
    let path = location
        .split_once("://")
        .map_or(location, |(_, rest)| rest.split_at(rest.find('/').unwrap_or(rest.len())).1);
    let path = path_of(&json!({"@odata.id": path}))?;
    path.starts_with(&format!("{}/", sessions.trim_end_matches('/'))).then_some(path)
}

pub(super) fn resource(client: &mut HttpClient, path: &str) -> Result<Value, DeviceError> {
    let answer = client.get(path, "application/json", RESOURCE_BYTES)?;
    serde_json::from_slice(&answer.body).map_err(|_invalid| DeviceError::Malformed("a resource is no JSON"))
}

/// Path of a linked resource of the same service.
pub(super) fn path_of(reference: &Value) -> Option<String> {
    const PATH_BYTES: usize = 512;

    let path = reference.get("@odata.id")?.as_str()?;
    let is_plain = path.starts_with("/redfish/") && path.bytes().all(|byte| byte.is_ascii_graphic());
    (is_plain && path.len() <= PATH_BYTES).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_below_the_sessions_of_the_service() {
        let sessions = "/redfish/v1/SessionService/Sessions";
        let own = format!("{sessions}/7");
        for location in [own.clone(), format!("https://bmc17{own}"), format!("http://[fe80::1]:8000{own}")] {
            assert_eq!(of_service(&location, sessions), Some(own.clone()));
        }
        for other in
            ["", "https://bmc17", "/redfish/v1/Systems/1", sessions, "/redfish/v1/SessionService/Sessions2/1"]
        {
            assert_eq!(of_service(other, sessions), None, "{other}");
        }
    }
}
