//! Tests of tokens of the HTTP API: users create, list and revoke their own, and a token has at most the
//! rights of its user.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use polymeter_api::{ApiConfig, Listen};
use polymeter_collector::Collector;
use polymeter_proto::control::{
    CollectorAnswer, CreateTokenRequest, ListTokensRequest, Refusal, RevokeTokensRequest, Scope, TokenInfo,
    TokenRequest,
};
use polymeter_service::api_token::{ApiToken, Secret};
use polymeter_service::clock;

use crate::reading::{Fixture, USERS};
use crate::support::events::Client;
use crate::support::http::{Request, Response};
use crate::support::reading::connect_as;
use crate::support::{Kind, TestEnvironment, wait_until};

scenarios! {
    a_token_has_the_rights_of_its_user_within_its_scope,
    a_revoked_or_expired_token_is_refused,
    a_revoked_token_ends_its_streams,
    users_have_no_part_in_tokens_of_others,
    guessed_tokens_are_limited,
}

fn ask(uid: u32, socket: &Path, request: &TokenRequest) -> Result<Vec<TokenInfo>, Refusal> {
    let mut stream = BufReader::new(connect_as(uid, socket));
    writeln!(stream.get_mut(), "{}", request.to_line()).unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    match serde_json::from_str(&line).unwrap() {
        CollectorAnswer::Tokens(list) => Ok(list.tokens),
        CollectorAnswer::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn create(uid: u32, socket: &Path, scope: Scope) -> Result<String, Refusal> {
    let secret = Secret::new().unwrap();
    let request =
        CreateTokenRequest { digest: secret.digest(), scope, name: Some("test".to_owned()), days: None };
    let mut created = ask(uid, socket, &TokenRequest::CreateToken(request))?;
    assert_eq!((created.len(), created[0].uid, created[0].scope), (1, uid, scope));
    Ok(ApiToken { id: created.remove(0).id, secret }.to_text())
}

pub(crate) fn revoke(uid: u32, socket: &Path, token: &str) -> Result<usize, Refusal> {
    let id = Some(ApiToken::parse(token).unwrap().id);
    let request = TokenRequest::RevokeTokens(RevokeTokensRequest { id, uid: None });
    ask(uid, socket, &request).map(|revoked| revoked.len())
}

/// Asks as a user who has no jobs.
pub(crate) fn with_token(api: &Path, token: &str, request: &Request<'_>) -> Response {
    let headers = format!("Authorization: Bearer {token}\r\n");
    Request { headers: &headers, ..*request }.response(64_009, api)
}

pub(crate) fn get(api: &Path, token: &str, target: &str) -> Response {
    with_token(api, token, &Request::get(target))
}

pub(crate) fn jobs(api: &Path, token: &str) -> Vec<String> {
    let jobs = get(api, token, "/api/v1/jobs").json();
    let jobs = jobs["jobs"].as_array().unwrap_or_else(|| panic!("{jobs}")).iter();
    let mut ids: Vec<String> = jobs.map(|job| job["id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

fn a_revoked_token_ends_its_streams(environment: &TestEnvironment) {
    let fixture = Fixture::with(environment, |config| {
        config.api.as_mut().unwrap().limits.stream_refresh = Duration::from_millis(100);
    });
    let (control, api) = (&fixture.socket, &fixture.api);
    let tokens = [(); 2].map(|()| create(USERS[0], control, Scope::Read).unwrap());
    let key = get(api, &tokens[0], "/api/v1/jobs").json()["jobs"][0]["key"].as_i64().unwrap();
    let target = format!("/api/v1/jobs/{key}/live");
    let [mut revoked, mut other] = tokens.each_ref().map(|token| {
        Client::with_header(64_009, api, &target, &format!("Authorization: Bearer {token}\r\n"))
    });
    assert_eq!((revoked.status, other.status), (200, 200));
    assert_eq!(revoke(USERS[0], control, &tokens[0]), Ok(1));
    assert_eq!(revoked.next_of("end")["reason"], "revoked");
    assert_eq!(revoked.next(), None);
    assert!(fixture.collector.stop().is_ok(), "no thread has panicked");
    assert_eq!(other.next_of("end")["reason"], "stopping", "the other token is valid");
}

fn a_token_has_the_rights_of_its_user_within_its_scope(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    let (control, api) = (&fixture.socket, &fixture.api);
    let read = create(USERS[0], control, Scope::Read).unwrap();
    let change = create(USERS[0], control, Scope::Control).unwrap();
    let admin = create(0, control, Scope::Admin).unwrap();
    let of_root = create(0, control, Scope::Read).unwrap();
    assert_eq!(jobs(api, &read), ["1"]);
    assert_eq!(jobs(api, &change), ["1"]);
    assert_eq!(jobs(api, &admin), ["1", "2", "3"]);
    assert!(jobs(api, &of_root).is_empty(), "only with the scope `admin` root sees all jobs");
    for (token, scope, is_administrator) in [
        (&read, "read", false),
        (&change, "control", false),
        (&admin, "admin", true),
        (&of_root, "read", false),
    ] {
        let me = get(api, token, "/api/v1/whoami").json();
        assert_eq!(
            (me["scope"].as_str(), me["is_administrator"].as_bool()),
            (Some(scope), Some(is_administrator))
        );
    }
    let key = get(api, &read, "/api/v1/jobs").json()["jobs"][0]["key"].as_i64().unwrap();
    let other = get(api, &create(USERS[1], control, Scope::Control).unwrap(), &format!("/api/v1/jobs/{key}"));
    assert_eq!(other.status, 404);
    let target = format!("/api/v1/jobs/{key}/reset");
    let reset = Request { method: "POST", target: &target, headers: "", body: Some("{}") };
    let refused = with_token(api, &read, &reset);
    assert_eq!((refused.status, refused.json()["code"].as_str()), (403, Some("scope")));
    // The agent of the test does not answer; the request reaches the coordinator.
    assert_eq!(with_token(api, &change, &reset).status, 200);
    for uid in USERS {
        let refusal = create(uid, control, Scope::Admin).unwrap_err();
        assert_eq!((refusal.code.as_str(), refusal.field.as_deref()), ("forbidden", Some("scope")));
    }
    let daemon = polymeter_service::users::uid_of("daemon").unwrap();
    assert_eq!(jobs(api, &create(daemon, control, Scope::Admin).unwrap()).len(), 3, "an administrator");
    assert!(jobs(api, &create(daemon, control, Scope::Read).unwrap()).is_empty());
    // The store has no secret.
    let digests = environment.lines("SELECT digest FROM api_token");
    let secret = read.rsplit('_').next().unwrap();
    assert!(digests.len() >= 7 && digests.iter().all(|digest| !digest.contains(secret)));
    wait_until("the use is recorded", || {
        let listed =
            ask(USERS[0], control, &TokenRequest::ListTokens(ListTokensRequest { all_users: false }));
        listed.unwrap().iter().all(|token| token.used_us.is_some())
    });
    assert!(fixture.collector.stop().is_ok());
}

fn a_revoked_or_expired_token_is_refused(environment: &mut TestEnvironment) {
    let fixture = Fixture::new(environment);
    let (control, api) = (&fixture.socket, &fixture.api);
    let token = create(USERS[0], control, Scope::Read).unwrap();
    assert_eq!(jobs(api, &token), ["1"]);
    // Another secret with the id of a known token.
    let last = token.chars().last().unwrap();
    let wrong = format!("{}{}", &token[..token.len() - 1], if last == '0' { '1' } else { '0' });
    let refused = get(api, &wrong, "/api/v1/jobs");
    assert_eq!((refused.status, refused.json()["code"].as_str()), (401, Some("unauthenticated")));
    assert!(refused.head.contains("www-authenticate: bearer"), "{refused:?}");
    assert_eq!(revoke(USERS[0], control, &token), Ok(1));
    assert_eq!(get(api, &token, "/api/v1/jobs").status, 401, "at once in the same collector");
    assert_eq!(revoke(USERS[0], control, &token).unwrap_err().code, "unknown_token");
    let short = create(USERS[0], control, Scope::Read).unwrap();
    assert_eq!(jobs(api, &short), ["1"]);
    environment.execute("UPDATE api_token SET expires = created");
    wait_until("the token has expired", || get(api, &short, "/api/v1/jobs").status == 401);
    if environment.kind == Kind::Sqlite {
        return;
    }
    // Another collector of the store accepts the token, and notices its revocation later.
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let other_api = directory.path().join("api.sock");
    let mut config = environment.config();
    config.listen = format!("ipc://{}", directory.path().join("collector").display());
    config.api = Some(ApiConfig::new(Listen::Unix(other_api.clone())));
    let other = Collector::start(&config, &environment.context).unwrap();
    let shared = create(USERS[0], control, Scope::Read).unwrap();
    assert_eq!(jobs(&other_api, &shared), ["1"]);
    assert_eq!(revoke(0, control, &shared), Ok(1), "root revokes any token");
    wait_until("the other collector refuses the token", || {
        get(&other_api, &shared, "/api/v1/jobs").status == 401
    });
    assert!(other.stop().is_ok());
}

fn count_tokens(control: &Path, uid: u32, all_users: bool) -> Result<usize, Refusal> {
    ask(uid, control, &TokenRequest::ListTokens(ListTokensRequest { all_users })).map(|tokens| tokens.len())
}

fn users_have_no_part_in_tokens_of_others(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    let control = &fixture.socket;
    let token = create(USERS[0], control, Scope::Read).unwrap();
    assert_eq!(
        (
            count_tokens(control, USERS[0], false),
            count_tokens(control, USERS[1], false),
            count_tokens(control, 0, false)
        ),
        (Ok(1), Ok(0), Ok(0))
    );
    assert_eq!(count_tokens(control, 0, true), Ok(1));
    assert_eq!(count_tokens(control, USERS[1], true).unwrap_err().code, "forbidden");
    let unknown = revoke(USERS[1], control, &token).unwrap_err();
    assert_eq!(unknown.code, "unknown_token", "as one that does not exist");
    let all_of =
        |uid, of| ask(uid, control, &TokenRequest::RevokeTokens(RevokeTokensRequest { id: None, uid: of }));
    assert_eq!(all_of(USERS[1], Some(USERS[0])).unwrap_err().code, "forbidden");
    assert_eq!(all_of(USERS[1], None), Ok(Vec::new()));
    assert_eq!(count_tokens(control, USERS[0], false), Ok(1));
    let many = (0..40).filter(|_| create(USERS[1], control, Scope::Read).is_ok()).count();
    assert_eq!(many, 32, "the number of valid tokens is limited");
    assert_eq!(create(USERS[1], control, Scope::Read).unwrap_err().code, "too_many_tokens");
    assert_eq!(all_of(USERS[1], None).map(|revoked| revoked.len()), Ok(32));
    assert_eq!(all_of(0, Some(USERS[0])).map(|revoked| revoked.len()), Ok(1));
    assert_eq!(count_tokens(control, 0, true), Ok(0));
}

fn guessed_tokens_are_limited(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    let token = create(USERS[0], &fixture.socket, Scope::Read).unwrap();
    assert_eq!(jobs(&fixture.api, &token), ["1"]);
    let unused = create(USERS[0], &fixture.socket, Scope::Read).unwrap();
    let began_ns = clock::monotonic_ns();
    let statuses: Vec<u16> = (0..500)
        .map(|_| {
            let id = polymeter_service::api_token::new_id().unwrap();
            let guessed = ApiToken { id, secret: Secret::new().unwrap() }.to_text();
            get(&fixture.api, &guessed, "/api/v1/jobs").status
        })
        .collect();
    let elapsed_s = (clock::monotonic_ns() - began_ns) as f64 / 1e9;
    assert!(statuses.contains(&401), "{statuses:?}");
    assert!(statuses.iter().all(|status| [401, 429].contains(status)), "{statuses:?}");
    // At once 200, and 20 a second: a busy machine may make no more guesses than that.
    let answered = statuses.iter().filter(|status| **status == 401).count();
    assert!(answered as f64 <= 201.0 + 20.0 * elapsed_s, "{answered} in {elapsed_s} s");
    // The client's other tokens are accepted, also one that the collector has not seen since its start, and
    // other clients are not affected.
    assert_eq!(jobs(&fixture.api, &token), ["1"]);
    assert_eq!(jobs(&fixture.api, &unused), ["1"]);
    let own = Request::get("/api/v1/jobs").response(USERS[1], &fixture.api);
    assert_eq!(own.status, 200);
}
