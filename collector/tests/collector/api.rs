//! Tests of the HTTP API: users see their own jobs, hostile requests are refused, and no client affects the writers
//! or other clients.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use polymeter_proto::ledger::{Event, JobFacts, JobFactsUpdate};
use serde_json::Value;

use crate::reading::{Fixture, USERS};
use crate::support::agent::Agent;
use crate::support::http::{Request, Response, receive};
use crate::support::reading::connect_as;
use crate::support::{TestEnvironment, now_us, wait_until};

scenarios! {
    users_see_their_own_jobs_over_http,
    samples_are_those_of_the_store,
    hostile_requests_are_refused,
    pages_of_other_sites_reach_nothing,
    csv_has_no_formulas,
    clocks_of_agents_are_compared_with_the_collectors,
    clients_that_disconnect_release_their_readers,
    connections_beyond_the_limit_are_answered,
    queries_of_kwollects_form_have_its_result,
    series_of_nodes_are_for_the_jobs_on_them,
    samples_are_exported_as_parquet,
}

fn request(uid: u32, socket: &Path, method: &str, target: &str, body: Option<&str>) -> Response {
    Request { method, target, headers: "", body }.response(uid, socket)
}

pub(crate) fn get(uid: u32, socket: &Path, target: &str) -> Response {
    Request::get(target).response(uid, socket)
}

/// Returns the key of the job with an id, as root sees it.
pub(crate) fn key(fixture: &Fixture, id: &str) -> i64 {
    let jobs = get(0, &fixture.api, &format!("/api/v1/jobs?id={id}")).json();
    jobs["jobs"][0]["key"].as_i64().unwrap()
}

const PARTS: [&str; 15] = [
    "",
    "/nodes",
    "/report",
    "/summary",
    "/findings",
    "/series",
    "/samples",
    "/metrics",
    "/course",
    "/marks",
    "/plan-changes",
    "/losses",
    "/refused-requests",
    "/plan",
    "/sampling",
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
        // No agent answers.
        if part != "/plan" && part != "/sampling" {
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
        csv.head.contains("content-type: text/csv") && csv.text().lines().count() == 1 + 20 * count,
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
    assert_course(&fixture, key, from_us);
    let whole =
        format!("samples?from_us={}&until_us={}&points=1", from_us - 60_000_000, from_us + 3_600_000_000);
    let whole = get(USERS[0], &fixture.api, &path(&whole)).json();
    assert_eq!(whole["rollup_s"], 3600.0);
    assert!(fixture.collector.stop().is_ok(), "no thread has panicked");
}

/// Asserts that a course over the nodes is that of the samples in parts of a second.
fn assert_course(fixture: &Fixture, key: i64, from_us: i64) {
    let metrics = get(USERS[0], &fixture.api, &format!("/api/v1/jobs/{key}/metrics")).json();
    let time = format!("from_us={from_us}&until_us={}&points=20", from_us + 20_000_000);
    let known = |values: &Value| values.as_array().unwrap().iter().filter(|value| !value.is_null()).count();
    for row in metrics["metrics"].as_array().unwrap() {
        let metric = row["metric"].as_str().unwrap();
        let course = |more: &str| {
            let target = format!("/api/v1/jobs/{key}/course?metric={metric}&{time}{more}");
            get(USERS[0], &fixture.api, &target).json()
        };
        let (all, none) = (course(""), course("&node=none"));
        let expected = if row["kind"] == "counter" { 19 } else { 20 };
        assert_eq!(
            (known(&all["low"]), known(&all["middle"]), known(&all["high"])),
            (expected, expected, expected)
        );
        assert_eq!(all["means"].as_array().unwrap().len(), all["rows"].as_array().unwrap().len());
        assert_eq!((known(&none["middle"]), &none["mean"]), (0, &Value::Null));
        let unit = if row["kind"] == "counter" { &row["rate_unit"] } else { &row["unit"] };
        assert_eq!(&all["unit"], unit);
    }
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

/// Sends a request with a name of the server, and returns the status.
fn status_at(host: &str, uid: u32, socket: &Path, request: &str, headers: &str) -> u16 {
    let mut stream = connect_as(uid, socket);
    let body = if request.starts_with("POST") { "{}" } else { "" };
    let length = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    write!(stream, "{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{length}{headers}\r\n{body}")
        .unwrap();
    let response = receive(&mut stream);
    if response.status >= 400 {
        assert!(response.head.contains("content-type: application/problem+json"), "{response:?}");
    }
    response.status
}

/// A page of another site may have a name that leads to a forwarded port (DNS rebinding), or send requests to it.
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

fn csv_has_no_formulas(environment: &TestEnvironment) {
    let mut fixture = Fixture::new(environment);
    let name = |text: &str| Some(text.try_into().unwrap());
    let facts = JobFacts {
        account: name("+1+1"),
        queue: name("-5"),
        state: name("=HYPERLINK(1)"),
        ..JobFacts::default()
    };
    let update = Event::JobFacts(JobFactsUpdate { job: fixture.jobs[0].handle, is_over: false, facts });
    let sequence = fixture.agent.frame(&[], &[], &[update]);
    fixture.agent.send(sequence);
    fixture.agent.wait_until_acknowledged();
    let csv = get(0, &fixture.api, "/api/v1/jobs?id=1&format=csv");
    let cells: Vec<&str> = csv.text().lines().nth(1).unwrap().split(',').collect();
    for (cell, is_there) in
        [("'=HYPERLINK(1)", true), ("'+1+1", true), ("-5", true), ("=HYPERLINK(1)", false), ("+1+1", false)]
    {
        assert_eq!(cells.contains(&cell), is_there, "{cell}: {cells:?}");
    }
    let json = get(0, &fixture.api, "/api/v1/jobs?id=1").json();
    assert_eq!(json["jobs"][0]["account"], "+1+1", "JSON is not for spreadsheets");
}

fn clocks_of_agents_are_compared_with_the_collectors(environment: &TestEnvironment) {
    let mut fixture = Fixture::new(environment);
    let agent = |fixture: &Fixture| get(0, &fixture.api, "/api/v1/agents").json()["agents"][0].clone();
    for ahead_us in [5_000_000_i64, -3_600_000_000] {
        // A new session is measured at once.
        let session = 7 + ahead_us.unsigned_abs();
        fixture.agent = Agent::to(&environment.context, &fixture.collector, "n1", session);
        fixture.agent.ahead_us = ahead_us;
        fixture.agent.frame(&[], &[], &[]);
        fixture.agent.send_from(0);
        wait_until("the clock is measured", || {
            fixture.agent.receive(50);
            agent(&fixture)["clock_offset_us"].as_i64().is_some()
        });
        let found = agent(&fixture);
        let [offset_us, error_us, measured_us] =
            ["offset", "error", "measured"].map(|of| found[format!("clock_{of}_us")].as_i64().unwrap());
        assert!((offset_us - ahead_us).abs() <= error_us && error_us < 5_000_000, "{found}");
        assert!((now_us() - measured_us).abs() < 600_000_000, "{found}");
    }
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

fn queries_of_kwollects_form_have_its_result(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    let rows = |uid, query: &str| {
        let response = get(uid, &fixture.api, &format!("/metrics?{query}"));
        assert_eq!(response.status, 200, "{query}: {response:?}");
        response.json().as_array().unwrap().clone()
    };
    let all = rows(0, "job_id=1");
    let expected = environment.number("SELECT count(*) FROM metrics_by_job WHERE job_id = '1'");
    assert_eq!(
        (all.len() as i64, expected),
        (120, 120),
        "as the SQL view: three series of the job, and three of the node"
    );
    assert!(all.iter().all(|row| row["device_id"] == "n1" && row["labels"].is_object()));
    let values = |rows: &[Value]| rows.iter().map(|row| row["value"].as_f64().unwrap()).sum::<f64>();
    let of_job = rows(USERS[0], "job_id=1");
    assert!(
        of_job.len() >= 100 && of_job.iter().all(|row| all.contains(row)),
        "the known metrics of the node"
    );
    assert!(rows(USERS[1], "job_id=1").is_empty() && rows(USERS[1], "job_id=999").is_empty());
    let metric = of_job[0]["metric_id"].as_str().unwrap();
    let of_metric = rows(USERS[0], &format!("job_id=1&metrics={metric}"));
    assert!(!of_metric.is_empty() && of_metric.len() < of_job.len());
    assert!(of_metric.iter().all(|row| row["metric_id"] == metric) && values(&of_metric) > 0.0);
    assert!(rows(USERS[0], "job_id=1&nodes=n2").is_empty());
    assert!(rows(USERS[0], "job_id=1&end_time=2001-01-01T00:00:00Z").is_empty());
    let minutes = rows(USERS[0], "job_id=1&summary=true");
    assert!(!minutes.is_empty() && minutes.len() < of_job.len());
    // The series of a node are for administrators.
    assert!(rows(USERS[0], "nodes=n1&start_time=0&end_time=4000000000").is_empty());
    assert!(!rows(0, "nodes=n1&start_time=0&end_time=4000000000").is_empty());
    let csv = get(USERS[0], &fixture.api, "/metrics?job_id=1&format=csv");
    assert_eq!(csv.text().lines().count(), 1 + of_job.len());
    assert_eq!(get(USERS[0], &fixture.api, "/metrics").status, 400);
}

fn series_of_nodes_are_for_the_jobs_on_them(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    let key = key(&fixture, "1");
    let list = |uid, target: &str, name: &str| {
        let response = get(uid, &fixture.api, target);
        assert_eq!(response.status, 200, "{target}: {response:?}");
        response.json()[name].as_array().unwrap().clone()
    };
    let of_nodes = format!("/api/v1/jobs/{key}/series?of=nodes&metric=node.load1,cpu.usage");
    let (own, all) = (list(USERS[0], &of_nodes, "series"), list(0, &of_nodes, "series"));
    assert_eq!((own.len(), &own), (2, &all), "of the node, and not of the job");
    let of_job = list(0, &format!("/api/v1/jobs/{key}/series"), "series");
    assert!(own.iter().all(|series| of_job.iter().all(|other| other["id"] != series["id"])));
    assert_eq!(get(USERS[1], &fixture.api, &of_nodes).status, 404);
    let samples = format!("/api/v1/jobs/{key}/samples?of=nodes&until_us=4000000000000000&metric=node.load1");
    let values = list(USERS[0], &samples, "series");
    assert_eq!(values.len(), 1);
    assert_eq!(values[0]["value"].as_array().unwrap().len(), 20);
    assert_eq!(values, list(0, &samples, "series"));
    let of_one = "/api/v1/nodes/n1/series";
    assert_eq!(list(0, of_one, "series").len(), 3);
    assert_eq!(get(USERS[0], &fixture.api, of_one).status, 403);
    assert!(list(0, "/api/v1/nodes/n9/series", "series").is_empty());
    let span = "from_us=0&until_us=4000000000000000";
    let of_node = format!("/api/v1/nodes/n1/samples?{span}&metric=node.load1");
    assert_eq!(list(0, &of_node, "series")[0]["value"], values[0]["value"]);
    let parts = list(0, &format!("{of_node}&points=1"), "series");
    assert_eq!(parts[0]["count"].as_array().unwrap()[0], 20);
    assert_eq!(get(USERS[0], &fixture.api, &of_node).status, 403);
    // The agents, for administrators.
    let agents = list(0, "/api/v1/agents", "agents");
    assert_eq!((agents.len(), agents[0]["node"].as_str()), (1, Some("n1")));
    let agent = &agents[0];
    assert!(
        agent["version"].is_string() && agent["last_sample_us"].is_i64() && agent["delay_us"].is_i64(),
        "{agent}"
    );
    assert_eq!((agent["lost"].as_u64(), agent["ended_us"].is_null()), (Some(0), true), "{agent}");
    assert!(list(0, "/api/v1/agents?from_us=4000000000000000", "agents").is_empty());
    assert!(list(USERS[0], "/api/v1/agents", "agents").is_empty());
    let summary = get(USERS[0], &fixture.api, &format!("/api/v1/jobs/{key}/summary")).json();
    let meters = summary["meters"].as_array().unwrap();
    assert_eq!((meters.len(), meters[0]["label"].as_str()), (4, Some("CPU")), "{summary}");
}

fn samples_are_exported_as_parquet(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    let key = key(&fixture, "1");
    let path = format!("/api/v1/jobs/{key}/samples?until_us=4000000000000000");
    let file = get(USERS[0], &fixture.api, &format!("{path}&format=parquet"));
    assert!(file.head.contains("content-type: application/vnd.apache.parquet"), "{}", file.head);
    let reader = SerializedFileReader::new(bytes::Bytes::from(file.bytes)).unwrap();
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    let csv = get(USERS[0], &fixture.api, &format!("{path}&format=csv"));
    assert_eq!(rows.len(), csv.text().lines().count() - 1);
    let values: Vec<f64> = rows.iter().map(|row| row.get_double(6).unwrap()).collect();
    let expected =
        csv.text().lines().skip(1).map(|line| line.rsplit(',').next().unwrap().parse::<f64>().unwrap());
    assert_eq!(values, expected.collect::<Vec<_>>(), "in the same order");
    assert!(rows.iter().all(|row| row.get_string(1).unwrap() == "1" && row.get_string(2).unwrap() == "n1"));
    let accepted = Request { headers: "Accept: application/vnd.apache.parquet\r\n", ..Request::get(&path) };
    assert!(accepted.response(USERS[0], &fixture.api).bytes.starts_with(b"PAR1"));
    assert_eq!(get(USERS[0], &fixture.api, &format!("{path}&points=5&format=parquet")).status, 400);
    assert_eq!(get(USERS[0], &fixture.api, "/api/v1/jobs?format=parquet").status, 400);
    assert_eq!(get(USERS[1], &fixture.api, &format!("{path}&format=parquet")).status, 404);
}
