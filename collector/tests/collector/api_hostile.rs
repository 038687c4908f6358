//! Tests of the HTTP API against hostile requests: they are refused, and no client affects others.

use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::api::{get, key, request};
use crate::reading::{Fixture, USERS};
use crate::support::http::{Request, receive, send};
use crate::support::reading::connect_as;
use crate::support::{TestEnvironment, wait_until};

scenarios! {
    hostile_requests_are_refused,
    requests_that_are_not_valid_get_a_problem,
    pages_of_other_sites_reach_nothing,
    clients_that_disconnect_release_their_readers,
    connections_beyond_the_limit_are_answered,
    silent_connections_of_many_users_keep_nobody_out,
}

fn hostile_requests_are_refused(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    let key = key(&fixture, "1");
    let uid = USERS[0];
    let job = format!("/api/v1/jobs/{key}");
    for (target, status) in [
        ("/pages".to_owned(), 404),
        ("/assets/../api/openapi.json".to_owned(), 404),
        ("/api/v1/jobs/..%2f..%2fetc%2fpasswd".to_owned(), 400),
        ("/api/v1/jobs/%ff".to_owned(), 400),
        ("/api/v1/jobs/-1".to_owned(), 400),
        ("/api/v1/jobs?limit=0".to_owned(), 400),
        ("/api/v1/jobs?user=%00".to_owned(), 400),
        ("/api/v1/jobs?user=%ff".to_owned(), 400),
        ("/api/v1/jobs?user=100%".to_owned(), 400),
        ("/api/v1/jobs?format=%zz".to_owned(), 400),
        ("/api/v1/jobs?user=100%25".to_owned(), 200),
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

/// Errors that occur before a request has an address, or its resource, are problems, too.
fn requests_that_are_not_valid_get_a_problem(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    let many = "X: y\r\n".repeat(100);
    let (long_header, long_path) = ("x".repeat(200_000), "x".repeat(66_000));
    for (request, status) in [
        ("nonsense\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nBad Header: x\r\n\r\n".to_owned(), 400),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {long_header}\r\n\r\n"), 431),
        (format!("GET /{long_path} HTTP/1.1\r\nHost: localhost\r\n\r\n"), 414),
        ("POST /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(), 405),
        // The length alone is refused: the body never comes.
        ("POST /api/v1/jobs/1/periods HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\nConnection: close\r\n\r\n".to_owned(), 413),
        ("GET /%zz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(), 404),
        ("GET /api/v1/jobs/%zz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(), 400),
        (
            "GET /api/v1/jobs?user=%zz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(),
            400,
        ),
        ("OPTIONS /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(), 405),
        ("OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(), 404),
    ] {
        let mut stream = connect_as(USERS[0], &fixture.api);
        send(&mut stream, &request);
        let response = receive(&mut stream);
        let begin: String = request.chars().take(60).collect();
        assert_eq!(response.status, status, "{begin}: {response:?}");
        assert!(response.head.contains("content-type: application/problem+json"), "{begin}: {response:?}");
        assert_eq!(response.json()["status"], status, "{begin}");
        assert_eq!(response.head.contains("\r\nallow: get"), status == 405, "{begin}: {response:?}");
    }
    let head =
        |target: &str| Request { method: "HEAD", ..Request::get(target) }.response(USERS[0], &fixture.api);
    for (target, status) in [("/api/v1/jobs", 200), ("/api/v1/jobs/999", 404), ("/", 200)] {
        let response = head(target);
        assert_eq!((response.status, response.bytes.len()), (status, 0), "{target}");
    }
}

/// Sends a request with a name of the server, and returns the status.
fn status_at(host: &str, uid: u32, socket: &Path, request: &str, headers: &str) -> u16 {
    let mut stream = connect_as(uid, socket);
    let body = if request.starts_with("POST") { "{}" } else { "" };
    let length = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    let head = format!("{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{length}{headers}");
    send(&mut stream, &format!("{head}\r\n{body}"));
    let response = receive(&mut stream);
    if response.status >= 400 {
        assert!(response.head.contains("content-type: application/problem+json"), "{response:?}");
    }
    response.status
}

/// A page of another site may have a name that leads to a forwarded port (DNS rebinding), or send requests to
/// it.
fn pages_of_other_sites_reach_nothing(environment: &TestEnvironment) {
    let fixture = Fixture::with(environment, |config| {
        let api = config.api.as_mut().unwrap();
        api.server_names = vec!["meter.example".to_owned()];
    });
    let key = key(&fixture, "1");
    let reset = format!("POST /api/v1/jobs/{key}/reset");
    let status =
        |host: &str, request: &str, headers: &str| status_at(host, USERS[0], &fixture.api, request, headers);
    for request in ["GET /", "GET /api/v1/jobs", "GET /api/openapi.json", "GET /nothing", reset.as_str()] {
        for host in ["evil.example:7719", "127.0.0.1.evil.example", ""] {
            assert_eq!(status(host, request, ""), 421, "{host} {request}");
        }
    }
    for host in ["127.0.0.1:7719", "[::1]:7719", "localhost:7719", "meter.example"] {
        assert_eq!(status(host, "GET /api/v1/jobs", ""), 200, "{host}");
    }
    assert_eq!(status("evil.example", "GET /health", ""), 200, "it contains nothing");
    for headers in [
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
    ] {
        assert_eq!(status("localhost:7719", &reset, headers), 403, "{headers}");
    }
    let own = "Origin: http://localhost:7719\r\nSec-Fetch-Site: same-origin\r\n";
    // The job's agent is not there to answer, but the request reaches the coordinator.
    assert_ne!(status("localhost:7719", &reset, own), 403);
}

fn clients_that_disconnect_release_their_readers(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    let key = key(&fixture, "1");
    // Fewer than the connections that one user may have.
    for _ in 0..20 {
        let mut stream = connect_as(USERS[0], &fixture.api);
        Request::get(&format!("/api/v1/jobs/{key}/report")).send(&mut stream);
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

fn connections_beyond_the_limit_are_answered(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    let held: Vec<UnixStream> = (0..32).map(|_| connect_as(USERS[0], &fixture.api)).collect();
    // Connections are accepted in their order.
    let refused = get(USERS[0], &fixture.api, "/api/v1/jobs");
    assert_eq!((refused.status, refused.json()["code"].as_str()), (503, Some("busy")));
    assert!(refused.head.contains("content-type: application/problem+json"), "{refused:?}");
    assert!(refused.head.contains("retry-after: 1"), "{refused:?}");
    assert_eq!(get(USERS[1], &fixture.api, "/api/v1/jobs").status, 200, "another user");
    drop(held);
    wait_until("the connections are closed", || get(USERS[0], &fixture.api, "/api/v1/jobs").status == 200);
}

/// As many connections as there are places, of as few users as that takes. Further ones follow all the time.
fn silent_connections_of_many_users_keep_nobody_out(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    let mut held: Vec<UnixStream> = Vec::new();
    for uid in 30_000..30_020 {
        held.extend((0..32).map(|_| connect_as(uid, &fixture.api)));
    }
    for round in 0..3 {
        for uid in [USERS[0], USERS[1], 0] {
            assert_eq!(get(uid, &fixture.api, "/api/v1/jobs").status, 200, "{round}: {uid}");
        }
        held.extend((0..32).map(|_| connect_as(30_100 + round, &fixture.api)));
    }
    // A request that is not complete is no use of a place.
    for stream in held.iter_mut().rev().take(40) {
        send(stream, "GET /api/v1/jobs HTTP/1.1\r\nHost: loc");
    }
    assert_eq!(get(USERS[0], &fixture.api, "/api/v1/jobs").status, 200);
}
