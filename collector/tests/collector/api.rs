//! Tests of the HTTP API: users see their own jobs, and the series of nodes while these run there.

use std::path::Path;

use serde_json::{Value, json};

use crate::reading::{Fixture, USERS};
use crate::support::TestEnvironment;
use crate::support::http::{Request, Response};

scenarios! {
    users_see_their_own_jobs_over_http,
    series_of_nodes_are_for_the_jobs_on_them,
}

pub(crate) fn request(uid: u32, socket: &Path, method: &str, target: &str, body: Option<&str>) -> Response {
    Request { method, target, headers: "", body }.response(uid, socket)
}

pub(crate) fn get(uid: u32, socket: &Path, target: &str) -> Response {
    Request::get(target).response(uid, socket)
}

pub(crate) fn key(fixture: &Fixture, id: &str) -> i64 {
    let jobs = get(0, &fixture.api, &format!("/api/v1/jobs?id={id}")).json();
    jobs["jobs"][0]["key"].as_i64().unwrap()
}

/// Ends of the paths of resources about one job.
pub(crate) fn parts_of_a_job(fixture: &Fixture) -> Vec<String> {
    let document = get(0, &fixture.api, "/api/openapi.json").json();
    let paths = document["paths"].as_object().unwrap().iter();
    let readable = paths.filter(|(_, methods)| methods.get("get").is_some());
    let of_job = readable.filter_map(|(path, _)| path.strip_prefix("/api/v1/jobs/{key}"));
    of_job.map(str::to_owned).collect()
}

/// Keys of the jobs that a user may see, as a list.
fn key_list(fixture: &Fixture, uid: u32) -> String {
    let jobs = get(uid, &fixture.api, "/api/v1/jobs").json();
    jobs["jobs"].as_array().unwrap().iter().map(|job| job["key"].to_string()).collect::<Vec<_>>().join(",")
}

fn ids(fixture: &Fixture, uid: u32) -> Vec<String> {
    let jobs = get(uid, &fixture.api, "/api/v1/jobs").json();
    let jobs = jobs["jobs"].as_array().unwrap().iter();
    let mut ids: Vec<String> = jobs.map(|job| job["id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

fn users_see_their_own_jobs_over_http(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    assert_eq!(
        (ids(&fixture, 0), ids(&fixture, USERS[0]), ids(&fixture, USERS[1])),
        (vec!["1".into(), "2".into(), "3".into()], vec!["1".into()], vec!["2".into()])
    );
    let key = key(&fixture, "1");
    let parts = parts_of_a_job(&fixture);
    assert!(parts.len() >= 16, "{parts:?}");
    for part in parts.iter().map(String::as_str) {
        // The usual end of the samples of a running job is the present time.
        let query = match part {
            "/samples" => "?until_us=4000000000000000",
            "/course" => "?metric=cpu.usage&until_us=4000000000000000",
            _ => "",
        };
        let path = |key| format!("/api/v1/jobs/{key}{part}{query}");
        let (other, unknown) =
            (get(USERS[1], &fixture.api, &path(key)), get(USERS[1], &fixture.api, &path(i64::MAX)));
        assert_eq!(other.status, 404, "{part}");
        assert_eq!(other.bytes, unknown.bytes, "{part}: it does not reveal which jobs exist");
        // No agent answers, and a stream does not end.
        if !["/plan", "/sampling", "/live"].contains(&part) {
            let own = get(USERS[0], &fixture.api, &path(key));
            assert_eq!(own.status, 200, "{part}: {own:?}");
            assert!(own.head.contains("content-security-policy: default-src 'none'"), "{own:?}");
            assert_eq!(own.bytes, get(0, &fixture.api, &path(key)).bytes, "{part}");
        }
    }
    for verb in ["periods", "reset"] {
        let path = format!("/api/v1/jobs/{key}/{verb}");
        let body = if verb == "reset" { "{}" } else { r#"{"plan":{"cpu.usage":"1s"}}"# };
        assert_eq!(request(USERS[1], &fixture.api, "POST", &path, Some(body)).status, 404);
    }
    // The jobs of others have neither a course nor a place in any number.
    let all: Vec<String> = [USERS[0], 0].map(|uid| key_list(&fixture, uid)).to_vec();
    let keys_in = |uid| {
        let jobs = get(uid, &fixture.api, &format!("/api/v1/job-cores?key={}", all[1])).json();
        jobs["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job["key"].to_string())
            .collect::<Vec<_>>()
            .join(",")
    };
    assert_eq!((keys_in(USERS[0]), keys_in(0)), (all[0].clone(), all[1].clone()));
    let running = |uid| get(uid, &fixture.api, "/api/v1/overview").json()["running"].clone();
    assert_eq!((running(USERS[0]), running(0)), (json!(1), json!(3)));
    let location = get(USERS[0], &fixture.api, "/job/4009_1%0d%0aX:%20%2F%2Fy");
    assert_eq!(location.status, 303);
    assert!(location.head.contains("location: ../job?id=4009_1%0d%0ax%3a+%2f%2fy"), "{location:?}");
    let me = get(USERS[0], &fixture.api, "/api/v1/whoami").json();
    assert_eq!((me["uid"].as_u64(), me["is_administrator"].as_bool()), (Some(USERS[0].into()), Some(false)));
}

fn list(fixture: &Fixture, uid: u32, target: &str, name: &str) -> Vec<Value> {
    let response = get(uid, &fixture.api, target);
    assert_eq!(response.status, 200, "{target}: {response:?}");
    response.json()[name].as_array().unwrap().clone()
}

fn series_of_nodes_are_for_the_jobs_on_them(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    let key = key(&fixture, "1");
    let of_nodes = format!("/api/v1/jobs/{key}/series?of=nodes&metric=node.load1,cpu.usage");
    let (own, all) = (list(&fixture, USERS[0], &of_nodes, "series"), list(&fixture, 0, &of_nodes, "series"));
    assert_eq!((own.len(), &own), (2, &all), "of the node, and not of the job");
    let of_job = list(&fixture, 0, &format!("/api/v1/jobs/{key}/series"), "series");
    assert!(own.iter().all(|series| of_job.iter().all(|other| other["id"] != series["id"])));
    assert_eq!(get(USERS[1], &fixture.api, &of_nodes).status, 404);
    let samples = format!("/api/v1/jobs/{key}/samples?of=nodes&until_us=4000000000000000&metric=node.load1");
    let values = list(&fixture, USERS[0], &samples, "series");
    assert_eq!(values.len(), 1);
    assert_eq!(values[0]["value"].as_array().unwrap().len(), 20);
    assert_eq!(values, list(&fixture, 0, &samples, "series"));
    let of_one = "/api/v1/nodes/n1/series";
    assert_eq!(list(&fixture, 0, of_one, "series").len(), 3);
    assert_eq!(get(USERS[0], &fixture.api, of_one).status, 403);
    assert!(list(&fixture, 0, "/api/v1/nodes/n9/series", "series").is_empty());
    let span = "from_us=0&until_us=4000000000000000";
    let of_node = format!("/api/v1/nodes/n1/samples?{span}&metric=node.load1");
    assert_eq!(list(&fixture, 0, &of_node, "series")[0]["value"], values[0]["value"]);
    let parts = list(&fixture, 0, &format!("{of_node}&points=1"), "series");
    assert_eq!(parts[0]["count"].as_array().unwrap()[0], 20);
    assert_eq!(get(USERS[0], &fixture.api, &of_node).status, 403);
    // The agents, for administrators.
    let agents = list(&fixture, 0, "/api/v1/agents", "agents");
    assert_eq!((agents.len(), agents[0]["node"].as_str()), (1, Some("n1")));
    let agent = &agents[0];
    assert!(
        agent["version"].is_string() && agent["last_sample_us"].is_i64() && agent["delay_us"].is_i64(),
        "{agent}"
    );
    assert_eq!((agent["lost"].as_u64(), agent["ended_us"].is_null()), (Some(0), true), "{agent}");
    assert!(list(&fixture, 0, "/api/v1/agents?from_us=4000000000000000", "agents").is_empty());
    assert!(list(&fixture, USERS[0], "/api/v1/agents", "agents").is_empty());
    let summary = get(USERS[0], &fixture.api, &format!("/api/v1/jobs/{key}/summary")).json();
    let meters = summary["meters"].as_array().unwrap();
    // What is not known is left out: memory and GPUs.
    assert_eq!((meters.len(), meters[0]["label"].as_str()), (2, Some("CPU")), "{summary}");
}
