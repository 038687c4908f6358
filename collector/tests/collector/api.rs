//! Tests of the HTTP API: users see their own jobs, hostile requests are refused, and no client affects the writers or other clients.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use crate::reading::{Fixture, USERS};
use crate::support::reading::connect_as;
use crate::support::{TestEnvironment, wait_until};

scenarios! {
    users_see_their_own_jobs_over_http,
    samples_are_those_of_the_store,
    hostile_requests_are_refused,
    clients_that_disconnect_release_their_readers,
}

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

fn send(stream: &mut UnixStream, method: &str, target: &str, body: Option<&str>) {
    let body = body.map(|body| {
        format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    });
    let rest = body.unwrap_or_else(|| "\r\n".to_owned());
    let request = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{rest}");
    stream.write_all(request.as_bytes()).unwrap();
}

/// Decodes a body in chunks. The last chunk must be there.
fn decoded(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|bytes| bytes == b"\r\n").expect("a chunk");
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return body;
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + length]);
        rest = &rest[end + 4 + length..];
    }
}

fn receive(stream: &mut UnixStream) -> Response {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_ascii_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = &bytes[end + 4..];
    let body = if head.contains("transfer-encoding: chunked") { decoded(body) } else { body.to_vec() };
    Response { status, head, body: String::from_utf8(body).unwrap() }
}

fn request(uid: u32, socket: &Path, method: &str, target: &str, body: Option<&str>) -> Response {
    let mut stream = connect_as(uid, socket);
    send(&mut stream, method, target, body);
    receive(&mut stream)
}

pub(crate) fn get(uid: u32, socket: &Path, target: &str) -> Response {
    request(uid, socket, "GET", target, None)
}

/// Returns the key of the job with an id, as root sees it.
pub(crate) fn key(fixture: &Fixture, id: &str) -> i64 {
    let jobs = get(0, &fixture.api, &format!("/api/v1/jobs?id={id}")).json();
    jobs["jobs"][0]["key"].as_i64().unwrap()
}

const PARTS: [&str; 12] = [
    "",
    "/nodes",
    "/report",
    "/summary",
    "/findings",
    "/series",
    "/samples",
    "/marks",
    "/plan-changes",
    "/losses",
    "/refused-requests",
    "/plan",
];

fn users_see_their_own_jobs_over_http(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    let ids = |uid| {
        let jobs = get(uid, &fixture.api, "/api/v1/jobs").json();
        let jobs = jobs["jobs"].as_array().unwrap().iter();
        let mut ids: Vec<String> = jobs.map(|job| job["id"].as_str().unwrap().to_owned()).collect();
        ids.sort();
        ids
    };
    assert_eq!(
        (ids(0), ids(USERS[0]), ids(USERS[1])),
        (vec!["1".into(), "2".into(), "3".into()], vec!["1".into()], vec!["2".into()])
    );
    let key = key(&fixture, "1");
    for part in PARTS {
        // The usual end of the samples of a running job is the present time.
        let query = if part == "/samples" { "?until_us=4000000000000000" } else { "" };
        let path = |key| format!("/api/v1/jobs/{key}{part}{query}");
        let (other, unknown) =
            (get(USERS[1], &fixture.api, &path(key)), get(USERS[1], &fixture.api, &path(i64::MAX)));
        assert_eq!(other.status, 404, "{part}");
        assert_eq!(other.body, unknown.body, "{part}: it does not reveal which jobs exist");
        if part != "/plan" {
            let own = get(USERS[0], &fixture.api, &path(key));
            assert_eq!(own.status, 200, "{part}: {own:?}");
            assert!(own.head.contains("content-security-policy: default-src 'none'"), "{own:?}");
            assert_eq!(own.body, get(0, &fixture.api, &path(key)).body, "{part}");
        }
    }
    for verb in ["periods", "reset"] {
        let path = format!("/api/v1/jobs/{key}/{verb}");
        let body = if verb == "reset" { "{}" } else { r#"{"plan":{"cpu.usage":"1s"}}"# };
        assert_eq!(request(USERS[1], &fixture.api, "POST", &path, Some(body)).status, 404);
    }
    let me = get(USERS[0], &fixture.api, "/api/v1/whoami").json();
    assert_eq!((me["uid"].as_u64(), me["is_administrator"].as_bool()), (Some(USERS[0].into()), Some(false)));
}

fn samples_are_those_of_the_store(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    let key = key(&fixture, "1");
    let path = |rest: &str| format!("/api/v1/jobs/{key}/{rest}");
    let series = get(USERS[0], &fixture.api, &path("series")).json();
    let count = series["series"].as_array().unwrap().len();
    assert!(count > 0);
    let until_us = i64::MAX / 1000 / 1000 * 1000;
    let raw = get(
        USERS[0],
        &fixture.api,
        &path(&format!("samples?until_us={}", until_us.min(4_000_000_000_000_000))),
    )
    .json();
    let of = |answer: &Value, column: &str| -> Vec<usize> {
        answer["series"]
            .as_array()
            .unwrap()
            .iter()
            .map(|series| series[column].as_array().unwrap().len())
            .collect()
    };
    assert_eq!(of(&raw, "value"), vec![20; count], "{raw}");
    let first = &raw["series"][0];
    let csv = get(USERS[0], &fixture.api, &path("samples?until_us=4000000000000000&format=csv"));
    assert!(
        csv.head.contains("content-type: text/csv") && csv.body.lines().count() == 1 + 20 * count,
        "{csv:?}"
    );
    // Twenty seconds in parts of a second.
    let from_us = first["time_us"][0].as_i64().unwrap();
    let range = format!("from_us={from_us}&until_us={}&points=20", from_us + 20_000_000);
    let parts = get(USERS[0], &fixture.api, &path(&format!("samples?{range}"))).json();
    assert_eq!(parts["rollup_s"], Value::Null);
    for series in parts["series"].as_array().unwrap() {
        let expected = if series["kind"] == "counter" { 19 } else { 20 };
        assert_eq!(series["mean"].as_array().unwrap().len(), expected, "{series}");
    }
    let whole =
        format!("samples?from_us={}&until_us={}&points=1", from_us - 60_000_000, from_us + 3_600_000_000);
    let whole = get(USERS[0], &fixture.api, &path(&whole)).json();
    assert_eq!(whole["rollup_s"], 3600.0);
    assert!(fixture.collector.stop().is_ok(), "no thread has panicked");
}

fn hostile_requests_are_refused(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    let key = key(&fixture, "1");
    let uid = USERS[0];
    let job = format!("/api/v1/jobs/{key}");
    for (target, status) in [
        ("/".to_owned(), 404),
        ("/api/v1/jobs/..%2f..%2fetc%2fpasswd".to_owned(), 400),
        ("/api/v1/jobs/%ff".to_owned(), 400),
        ("/api/v1/jobs/-1".to_owned(), 400),
        ("/api/v1/jobs?limit=0".to_owned(), 400),
        ("/api/v1/jobs?user=%00".to_owned(), 400),
        ("/api/v1/jobs?user=x'%20OR%201=1--".to_owned(), 200),
        ("/api/v1/jobs?user=%3Cscript%3E&node=%F0%9F%98%80".to_owned(), 200),
        ("/api/v1/jobs?cursor=x".to_owned(), 400),
        ("/api/v1/jobs?format=xml".to_owned(), 400),
        ("/api/v1/jobs?format=csv&format=csv".to_owned(), 400),
        (format!("{job}/samples?points=0"), 400),
        (format!("{job}/samples?points=99999999999"), 400),
        (format!("{job}/samples?from_us=5&until_us=5"), 400),
        (format!("{job}/samples?series=x"), 400),
        (format!("{job}/samples?metric=%2A%20%3B"), 400),
        (format!("{job}/samples?from_us=0&until_us=253402300799999999&points=10000"), 200),
    ] {
        let response = get(uid, &fixture.api, &target);
        assert_eq!(response.status, status, "{target}: {response:?}");
        if status != 200 {
            assert!(response.head.contains("content-type: application/problem+json"), "{response:?}");
            assert_eq!(response.json()["status"], status);
        }
    }
    for (method, target, body, status) in [
        ("DELETE", "/api/v1/jobs", None, 405),
        ("POST", "/api/v1/jobs", Some("{}"), 405),
        ("POST", "{job}/periods", None, 415),
        ("POST", "{job}/periods", Some("[]"), 400),
        ("POST", "{job}/periods", Some("{\"verb\":\"end\"}"), 400),
        ("POST", "{job}/periods", Some("{\"job\":\"2\",\"plan\":{}}"), 400),
        ("POST", "{job}/reset", Some("{\"all\":true}"), 400),
    ] {
        let response = request(uid, &fixture.api, method, &target.replace("{job}", &job), body);
        assert_eq!(response.status, status, "{method} {target} {body:?}: {response:?}");
    }
    let document = get(uid, &fixture.api, "/api/openapi.json").json();
    assert!(document["paths"]["/api/v1/jobs/{key}/samples"]["get"].is_object());
    assert_eq!(get(uid, &fixture.api, "/health").status, 200);
    assert_eq!(get(uid, &fixture.api, "/ready").status, 200);
}

fn clients_that_disconnect_release_their_readers(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    let key = key(&fixture, "1");
    // Fewer than the connections that one user may have.
    for _ in 0..20 {
        let mut stream = connect_as(USERS[0], &fixture.api);
        send(&mut stream, "GET", &format!("/api/v1/jobs/{key}/report"), None);
    }
    wait_until("an answer after the disconnections", || {
        get(USERS[0], &fixture.api, &format!("/api/v1/jobs/{key}/report")).status == 200
    });
    // Concurrent requests of one user are answered, or refused as too many; others are not affected.
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                let status = get(USERS[0], &fixture.api, "/api/v1/jobs").status;
                assert!([200, 429].contains(&status), "{status}");
            });
        }
        assert_eq!(get(USERS[1], &fixture.api, "/api/v1/jobs").status, 200);
    });
    let api = fixture.api.clone();
    drop(fixture.collector);
    wait_until("the socket is closed", || UnixStream::connect(&api).is_err());
}
