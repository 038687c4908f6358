//! A real web server in front of the API, with the configurations of docs/how-to/api.md and sign-in.md: who
//! its users are, and that values arrive as they are committed.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polymeter_e2e::apache::Apache;
use polymeter_e2e::nginx::{Nginx, password};
use polymeter_e2e::{Need, program, require, tests, wait_until};
use serde_json::{Value, json};

use crate::site_fixture::{ADMINISTRATOR, OTHER, OWNER, Site};

tests![
    users_of_a_web_server_are_those_that_it_names,
    users_of_apache_are_those_that_it_names,
    users_of_a_portal_are_those_that_it_names,
];

const PASSWORDS: &str = "polymeter.example";
const TOKENS: &str = "api.polymeter.example";
const SINGLE_SIGN_ON: &str = "sso.polymeter.example";

/// Sends a request whose headers end with CR and LF. Returns the connection.
fn ask(server: &str, site: &str, request: &str, headers: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    let head =
        format!("{request} HTTP/1.1\r\nHost: {site}\r\nConnection: close\r\n{length}{headers}\r\n{body}");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// Status and body of the answer to a request.
fn answer(server: &str, site: &str, request: &str, headers: &str, body: &str) -> (u16, String) {
    let mut answer = String::new();
    ask(server, site, request, headers, body).read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// JSON in a body, whether it is sent in one chunk or as it is.
fn json_in(body: &str) -> Value {
    let (begin, end) = (body.find('{').unwrap(), body.rfind('}').unwrap());
    serde_json::from_str(&body[begin..=end]).unwrap_or_else(|error| panic!("{error}: {body}"))
}

fn login(user: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{user}:{}", password(user))))
}

fn users_of_a_web_server_are_those_that_it_names() {
    require(&[Need::Nginx]);
    let site = Site::new();
    // The workers of the web server must reach the socket.
    fs::set_permissions(site.env.path(""), fs::Permissions::from_mode(0o711)).unwrap();
    let nginx = Nginx::start(&site.env, &site.env.path("api.sock"), &USERS, &oauth2_proxy());
    assert_users(&nginx.address);
    assert_tokens(&site, &nginx.address);
    assert_single_sign_on(&nginx.address);
    assert_pages_and_values(&site, &nginx.address);
    let log = nginx.end();
    assert!(!log.contains("[alert]") && !log.contains("[emerg]"), "{log}");
}

fn users_of_apache_are_those_that_it_names() {
    require(&[Need::Apache]);
    let site = Site::new();
    fs::set_permissions(site.env.path(""), fs::Permissions::from_mode(0o711)).unwrap();
    let apache = Apache::start(&site.env, &site.env.path("api.sock"), &USERS);
    assert_users(&apache.address);
    assert_pages_and_values(&site, &apache.address);
    let log = apache.end();
    assert!(!log.contains(":alert]") && !log.contains(":emerg]"), "{log}");
}

fn users_of_a_portal_are_those_that_it_names() {
    require(&[Need::Apache]);
    let site = Site::new();
    fs::set_permissions(site.env.path(""), fs::Permissions::from_mode(0o711)).unwrap();
    let portal = Apache::start_portal(&site.env, &site.env.path("api.sock"), &USERS);
    let ask = |path: &str, headers: &str| {
        answer(&portal.address, PASSWORDS, &format!("GET /polymeter/{path}"), headers, "")
    };
    for forged in ["", "X-Remote-User: sys\r\n"] {
        let (status, body) = ask("api/v1/whoami", &(login(OWNER.0) + forged));
        assert_eq!((status, &json_in(&body)["uid"]), (200, &json!(OWNER.1)), "{forged}: {body}");
        assert_eq!(ask("api/v1/whoami", forged).0, 401, "{forged}");
    }
    let (status, page) = ask("job?key=1", &login(OWNER.0));
    assert!(status == 200 && page.contains("<!doctype html>"), "{status}: {page}");
    let (_, link) = page.split_once("rel=\"stylesheet\" href=\"").unwrap();
    let style = link.split('"').next().unwrap();
    assert_eq!(ask(style, &login(OWNER.0)).0, 200, "{style} is below the path of the portal");
    portal.end();
}

const USERS: [&str; 4] = [OWNER.0, OTHER.0, ADMINISTRATOR, "root"];

/// On the site with passwords the password names the user, and nothing else.
fn assert_users(server: &str) {
    let whoami = |headers: &str| answer(server, PASSWORDS, "GET /api/v1/whoami", headers, "");
    for (user, uid) in [OWNER, OTHER] {
        // A header of the client's own changes nothing.
        for forged in ["", "X-Remote-User: sys\r\n", "X-Remote-User: root\r\nX_Remote_User: root\r\n"] {
            let (status, body) = whoami(&(login(user) + forged));
            assert_eq!((status, &json_in(&body)["uid"]), (200, &json!(uid)), "{user} {forged}: {body}");
            assert_eq!(json_in(&body)["is_administrator"], false);
        }
    }
    let (status, body) = whoami(&login(ADMINISTRATOR));
    assert_eq!((status, &json_in(&body)["is_administrator"]), (200, &json!(true)), "{body}");
    assert_eq!(whoami(&login("root")).0, 403, "a web server does not log root in");
    for headers in ["", "X-Remote-User: sys\r\n", "Authorization: Basic eDp5\r\n"] {
        assert_eq!(whoami(headers).0, 401, "{headers}");
    }
}

/// Serves as oauth2-proxy: a cookie names the user, whose claim `preferred_username` is in the answer.
/// Returns the address.
fn oauth2_proxy() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map(Result::unwrap) {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|length| length == 1) {
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap();
            let user = head.split_once("_oauth2_proxy=").map(|(_, rest)| rest.split("\r\n").next().unwrap());
            let (status, more) = match user {
                _ if !head.starts_with("GET /oauth2/auth ") => ("200 OK", "X-Page: form\r\n".to_owned()),
                None => ("401 Unauthorized", String::new()),
                Some("nameless") => ("202 Accepted", "X-Auth-Request-User: 17-f\r\n".to_owned()),
                Some(user) => (
                    "202 Accepted",
                    format!("X-Auth-Request-User: 17-f\r\nX-Auth-Request-Preferred-Username: {user}\r\n"),
                ),
            };
            let answer = format!("HTTP/1.0 {status}\r\n{more}Content-Length: 0\r\n\r\n");
            // nginx may have closed the connection.
            stream.write_all(answer.as_bytes()).ok();
        }
    });
    address
}

/// On the site with single sign-on the answer of oauth2-proxy names the user, and nothing else.
fn assert_single_sign_on(server: &str) {
    let whoami = |headers: &str| answer(server, SINGLE_SIGN_ON, "GET /api/v1/whoami", headers, "");
    for (user, uid) in [OWNER, OTHER] {
        for forged in ["", "X-Remote-User: sys\r\n", "X-Auth-Request-Preferred-Username: sys\r\n"] {
            let (status, body) = whoami(&format!("Cookie: _oauth2_proxy={user}\r\n{forged}"));
            assert_eq!((status, &json_in(&body)["uid"]), (200, &json!(uid)), "{user} {forged}: {body}");
        }
    }
    for cookie in ["", "Cookie: _oauth2_proxy=nameless\r\n", "X-Remote-User: sys\r\n", &login(OWNER.0)] {
        assert_eq!(whoami(cookie).0, 401, "{cookie}");
    }
    // A person gets the form, which needs no sign-in; a program gets the status.
    assert_eq!(answer(server, SINGLE_SIGN_ON, "GET /job?key=1", "", "").0, 302);
    assert_eq!(answer(server, SINGLE_SIGN_ON, "GET /oauth2/start?rd=/", "", "").0, 200);
    assert_eq!(answer(server, SINGLE_SIGN_ON, "GET /oauth2/auth", "", "").0, 404, "it is internal");
    let page = answer(
        server,
        SINGLE_SIGN_ON,
        "GET /job?key=1",
        &format!("Cookie: _oauth2_proxy={}\r\n", OWNER.0),
        "",
    );
    assert!(page.0 == 200 && page.1.contains("<!doctype html>"), "{}", page.0);
}

/// On the site for programs the token names the user, and nothing else.
fn assert_tokens(site: &Site, server: &str) {
    let created = program("polymeter")
        .args(["token", "create", "--scope", "read", "--collector"])
        .arg(site.env.path("control.sock"))
        .output()
        .unwrap();
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    let token = format!("Authorization: Bearer {}\r\n", String::from_utf8_lossy(&created.stdout).trim());
    let ask = |headers: &str| answer(server, TOKENS, "GET /api/v1/whoami", headers, "");
    for forged in ["", "X-Remote-User: sys\r\n"] {
        let (status, body) = ask(&format!("{token}{forged}"));
        assert_eq!((status, &json_in(&body)["scope"]), (200, &json!("read")), "{body}");
    }
    for headers in ["", "X-Remote-User: daemon\r\n", &login(OWNER.0)] {
        assert_eq!(ask(headers).0, 401, "{headers}");
    }
    // A token is no password, and the pages are on the other site.
    assert_eq!(answer(server, PASSWORDS, "GET /api/v1/whoami", &token, "").0, 401);
    assert_eq!(answer(server, TOKENS, "GET /job", &token, "").0, 404);
}

/// Pages, live values and changes of periods pass the web server.
fn assert_pages_and_values(site: &Site, server: &str) {
    let own = format!("/api/v1/jobs/{}", site.key("x"));
    let (status, page) = answer(server, PASSWORDS, "GET /job?key=1", &login(OWNER.0), "");
    assert!(status == 200 && page.contains("<!doctype html>"), "{status}: {page}");
    let body = json!({"plan": {"pids.current": "20ms"}, "for": "10min"}).to_string();
    let set = |user: &str, more: &str| {
        let headers = login(user) + more;
        answer(server, PASSWORDS, &format!("POST {own}/periods"), &headers, &body).0
    };
    assert_eq!(set(OTHER.0, ""), 404);
    assert_eq!(set(OWNER.0, "Origin: https://evil.example\r\n"), 403);
    assert_eq!(set(OWNER.0, "Origin: https://polymeter.example\r\nSec-Fetch-Site: same-origin\r\n"), 200);
    // Values come while the stream is open: the web server does not keep them.
    assert_eq!(answer(server, PASSWORDS, &format!("GET {own}/live"), &login(OTHER.0), "").0, 404);
    let mut stream =
        ask(server, PASSWORDS, &format!("GET {own}/live?metric=pids.current"), &login(OWNER.0), "");
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    while String::from_utf8_lossy(&received).matches("event: values").count() < 3 {
        let length = stream.read(&mut buffer).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&received));
        received.extend_from_slice(&buffer[..length]);
    }
    drop(stream);
    wait_until("the stream is closed", || {
        answer(server, PASSWORDS, "GET /api/v1/whoami", &login(OWNER.0), "").0 == 200
    });
}
