//! Tokens of the HTTP API that users create on a login node, where MUNGE tells the collector who they are.

use std::io::{Read, Write};
use std::net::TcpStream;

use polymeter_e2e::fixture::{NEEDS, OTHER_USER, OWNER};
use polymeter_e2e::munge::Munged;
use polymeter_e2e::two_nodes::TwoNodes;
use polymeter_e2e::{Need, require, tests, wait_until};
use serde_json::{Value, json};

tests![a_token_that_munge_issued_opens_the_api_as_its_user];

/// A job on two nodes, and a collector whose API knows no users but those of tokens.
struct Setting {
    fixture: TwoNodes,
    endpoint: String,
    api: String,
    socket: String,
}

/// Exit status of a command, its answer, and its messages.
type Answer = (Option<i32>, Value, String);

impl Setting {
    fn new(munged: &Munged) -> Self {
        let socket = munged.socket().display().to_string();
        let more = format!(
            "control_listen = \"tcp://127.0.0.1:0\"\nauth = \"munge\"\nmunge_socket = \"{socket}\"\n[api]\nlisten = \"127.0.0.1:0\"\n"
        );
        let fixture = TwoNodes::new(&more);
        let endpoint = format!("tcp://{}", logged(&fixture, "tcp://"));
        let api = logged(&fixture, "serving the HTTP API at http://");
        Self { fixture, endpoint, api, socket }
    }

    /// Runs a command about tokens as a user of a login node.
    fn command(&self, uid: u32, verb: &[&str]) -> Answer {
        let options = ["--collector", &self.endpoint, "--munge-socket", &self.socket, "--json"];
        let output = self.fixture.user(uid, &[&["token"], verb, &options[..]].concat());
        let answer = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code(), answer, String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn create(&self, uid: u32, scope: &str) -> (String, String) {
        let (status, created, stderr) =
            self.command(uid, &["create", "--name", "notebook", "--scope", scope]);
        assert_eq!(status, Some(0), "{stderr}");
        assert_eq!((&created["uid"], &created["scope"]), (&json!(uid), &json!(scope)), "{created}");
        (created["token"].as_str().unwrap().to_owned(), created["id"].as_str().unwrap().to_owned())
    }

    /// Sends a request over TCP, where only the token tells who asks. Returns the status and the answer.
    fn ask(&self, token: Option<&str>, method: &str, target: &str, body: &str) -> (u16, Value) {
        let credentials =
            token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        let (host, length) = (&self.api, body.len());
        let head = format!(
            "{method} {target} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{credentials}\r\n"
        );
        let mut stream = TcpStream::connect(host).unwrap();
        stream.write_all((head + body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}")))
    }

    fn get(&self, token: &str, target: &str) -> (u16, Value) {
        self.ask(Some(token), "GET", target, "")
    }

    fn jobs(&self, token: &str) -> Vec<Value> {
        self.get(token, "/api/v1/jobs").1["jobs"].as_array().unwrap().clone()
    }

    /// Checks that a token names a user within a scope, who is no administrator: not even root's connection
    /// counts.
    fn assert_is(&self, token: &str, uid: u32, scope: &str) {
        let (status, user) = self.get(token, "/api/v1/whoami");
        assert_eq!(status, 200, "{user}");
        let found = (&user["uid"], &user["scope"], &user["is_administrator"]);
        assert_eq!(found, (&json!(uid), &json!(scope), &json!(false)), "{user}");
        assert_eq!(self.get(token, "/api/v1/agents").1["agents"], json!([]));
        assert_eq!(self.get(token, "/api/v1/nodes/n/series").0, 403);
    }
}

/// Text that follows `before` in the collector's log, up to a space or a comma.
fn logged(fixture: &TwoNodes, before: &str) -> String {
    let mut found = None;
    wait_until(&format!("the collector logs {before:?}"), || {
        let log = fixture.collector.log();
        let rest = log.split_once(before).map(|(_, rest)| rest.to_owned());
        found = rest.and_then(|rest| Some(rest.split([' ', ',', '\n']).next()?.to_owned()));
        found.is_some()
    });
    found.unwrap()
}

fn a_token_that_munge_issued_opens_the_api_as_its_user() {
    require(&[&NEEDS[..], &[Need::Munge]].concat());
    let munged = Munged::start();
    let setting = Setting::new(&munged);
    let (reads, id) = setting.create(OWNER, "read");
    let (controls, _) = setting.create(OWNER, "control");
    let (of_other, _) = setting.create(OTHER_USER, "control");
    assert_eq!(setting.ask(None, "GET", "/api/v1/whoami", "").0, 401);
    setting.assert_is(&reads, OWNER, "read");
    setting.assert_is(&controls, OWNER, "control");
    setting.assert_is(&of_other, OTHER_USER, "control");

    // The jobs of the user, and nothing of others.
    wait_until("the job is stored", || !setting.jobs(&reads).is_empty());
    let own = setting.jobs(&reads);
    assert_eq!(own.iter().map(|job| &job["id"]).collect::<Vec<_>>(), [&json!("x")]);
    assert_eq!(setting.jobs(&of_other), Vec::<Value>::new());
    let job = format!("/api/v1/jobs/{}", own[0]["key"]);
    for part in ["", "/metrics", "/series", "/course?quantity=cores", "/summary", "/marks", "/live"] {
        let target = format!("{job}{part}");
        assert_eq!(setting.get(&of_other, &target).0, 404, "{target}");
        if part != "/live" {
            assert_eq!(setting.get(&reads, &target).0, 200, "{target}");
        }
    }
    // What a token may change follows from its scope and its user.
    let body = json!({"plan": {"cpu.usage": "5ms"}, "for": "10min"}).to_string();
    let set = |token: &str| setting.ask(Some(token), "POST", &format!("{job}/periods"), &body);
    assert_eq!(set(&reads).0, 403);
    assert_eq!(set(&of_other).0, 404);
    let is_changed = || setting.fixture.both_have("cpu.usage", "5ms", "lease");
    assert!(!is_changed());
    let (status, answer) = set(&controls);
    assert_eq!(status, 200, "{answer}");
    wait_until("both nodes have the period", is_changed);

    assert_ends(&setting, &reads, &id);
    // Without munged there are no new tokens, and those that were issued remain valid.
    drop(munged);
    let (status, _, stderr) = setting.command(OWNER, &["create", "--scope", "read"]);
    assert_eq!(status, Some(3), "{stderr}");
    setting.assert_is(&controls, OWNER, "control");
    setting.fixture.end();
}

/// Checks that other users neither see nor end a token of the owner. The owner does, and then it opens
/// nothing.
fn assert_ends(setting: &Setting, token: &str, id: &str) {
    let (_, listed, _) = setting.command(OTHER_USER, &["list"]);
    assert!(!listed.to_string().contains(id), "{listed}");
    assert_ne!(setting.command(OTHER_USER, &["revoke", id]).0, Some(0));
    assert_eq!(setting.get(token, "/api/v1/whoami").0, 200);
    let (status, revoked, stderr) = setting.command(OWNER, &["revoke", id]);
    assert_eq!((status, revoked[0]["id"].as_str()), (Some(0), Some(id)), "{stderr}");
    wait_until("the token is revoked", || setting.get(token, "/api/v1/whoami").0 == 401);
}
