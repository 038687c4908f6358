//! Tests of samples over HTTP: they are those of the store in each format, however long the answer is.

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use polymeter_proto::ledger::{Event, JobFacts, JobFactsUpdate};
use serde_json::Value;

use crate::api::{get, key};
use crate::reading::{Fixture, USERS};
use crate::support::agent::{shape, values};
use crate::support::http::{Request, receive};
use crate::support::reading::connect_as;
use crate::support::{TestEnvironment, now_us};

scenarios! {
    samples_are_those_of_the_store,
    long_answers_wait_for_their_client,
    csv_has_no_formulas,
    queries_of_kwollects_form_have_its_result,
    samples_are_exported_as_parquet,
}

fn lengths(answer: &Value, column: &str) -> Vec<usize> {
    answer["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|series| series[column].as_array().unwrap().len())
        .collect()
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
    assert_eq!(lengths(&raw, "value"), vec![20; count], "{raw}");
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
    for derived in ["samples?metric=perf.ipc", "samples?metric=cpu.usage,perf.ipc&points=9"] {
        let refused = get(USERS[0], &fixture.api, &path(derived));
        let text = refused.text();
        assert!(refused.status == 400 && text.contains("perf.instructions, perf.cpu_cycles"), "{text}");
    }
    let whole =
        format!("samples?from_us={}&until_us={}&points=1", from_us - 60_000_000, from_us + 3_600_000_000);
    let whole = get(USERS[0], &fixture.api, &path(&whole)).json();
    assert_eq!(whole["rollup_s"], Value::Null, "a job with few samples");
    for series in whole["series"].as_array().unwrap() {
        let expected = if series["kind"] == "counter" { 19 } else { 20 };
        assert_eq!(series["count"], serde_json::json!([expected]), "{series}");
    }
    assert!(fixture.collector.stop().is_ok(), "no thread has panicked");
}

fn known(values: &Value) -> usize {
    values.as_array().unwrap().iter().filter(|value| !value.is_null()).count()
}

fn assert_course(fixture: &Fixture, key: i64, from_us: i64) {
    let metrics = get(USERS[0], &fixture.api, &format!("/api/v1/jobs/{key}/metrics")).json();
    let time = format!("from_us={from_us}&until_us={}&points=20", from_us + 20_000_000);
    for row in metrics["metrics"].as_array().unwrap() {
        let metric = row["metric"].as_str().unwrap();
        let [all, none] = ["", "&node=none"].map(|more| {
            let target = format!("/api/v1/jobs/{key}/course?metric={metric}&{time}{more}");
            get(USERS[0], &fixture.api, &target).json()
        });
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
    // A quantity stands for the metrics of the job that measure it.
    let course = |query: &str| {
        let target =
            format!("/api/v1/jobs/{key}/course?{query}&from_us={from_us}&until_us={}", from_us + 20_000_000);
        get(USERS[0], &fixture.api, &target)
    };
    let quantity = course("quantity=cores").json();
    assert_eq!(quantity, course("metric=cpu.usage").json());
    assert!(
        known(&quantity["middle"]) > 0 && quantity["middle"].as_array().unwrap().len() == 600,
        "{quantity}"
    );
    assert_eq!(known(&course("quantity=gpu_power").json()["middle"]), 0, "the job lacks it");
    for refused in ["quantity=cores&metric=cpu.usage", "quantity=cores&minus=cpu.usage", "quantity=none"] {
        assert_eq!(course(refused).status, 400, "{refused}");
    }
}

fn long_answers_wait_for_their_client(environment: &TestEnvironment) {
    // More than the buffers between the reader of the store and the client hold: about 6 MB.
    const FRAMES: i64 = 15;
    const TIMES: i64 = 2000;
    let mut fixture = Fixture::new(environment);
    let key = key(&fixture, "1");
    let (shape, begin_us) = (shape(1, Some(&fixture.jobs[0])), now_us() + 60_000_000);
    for frame in 0..FRAMES {
        let sent: Vec<_> = (frame * TIMES..(frame + 1) * TIMES)
            .map(|number| (begin_us + number * 1000, values(number).0))
            .collect();
        let rows: Vec<_> = sent.iter().map(|(at_us, values)| (&shape, *at_us, values.as_slice())).collect();
        let number = fixture.agent.frame(&rows, &[], &[]);
        fixture.agent.send(number);
    }
    fixture.agent.wait_until_acknowledged();
    let target = |format: &str| {
        format!("/api/v1/jobs/{key}/samples?from_us={begin_us}&until_us=4000000000000000&format={format}")
    };
    let expected = usize::try_from(3 * FRAMES * TIMES).unwrap();
    for format in ["csv", "json", "parquet"] {
        let mut stream = connect_as(USERS[0], &fixture.api);
        Request::get(&target(format)).send(&mut stream);
        // Others are answered while this client does not read.
        assert_eq!(get(USERS[1], &fixture.api, "/api/v1/jobs").status, 200);
        let response = receive(&mut stream);
        assert_eq!(response.status, 200, "{format}: {}", response.head);
        let found = match format {
            "csv" => response.text().lines().count() - 1,
            "json" => {
                let answer = response.json();
                let series = answer["series"].as_array().unwrap().iter();
                series.map(|series| series["value"].as_array().unwrap().len()).sum()
            }
            _ => {
                let file = SerializedFileReader::new(bytes::Bytes::from(response.bytes)).unwrap();
                usize::try_from(file.metadata().file_metadata().num_rows()).unwrap()
            }
        };
        assert_eq!(found, expected, "{format}");
    }
    // A client that is gone before the end releases its reader.
    let mut stream = connect_as(USERS[0], &fixture.api);
    Request::get(&target("csv")).send(&mut stream);
    drop(stream);
    assert_eq!(get(USERS[0], &fixture.api, "/api/v1/jobs").status, 200);
    assert!(fixture.collector.stop().is_ok(), "no thread has panicked");
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

fn rows(fixture: &Fixture, uid: u32, query: &str) -> Vec<Value> {
    let response = get(uid, &fixture.api, &format!("/metrics?{query}"));
    assert_eq!(response.status, 200, "{query}: {response:?}");
    response.json().as_array().unwrap().clone()
}

fn queries_of_kwollects_form_have_its_result(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    let all = rows(&fixture, 0, "job_id=1");
    let expected = environment.number("SELECT count(*) FROM metrics_by_job WHERE job_id = '1'");
    assert_eq!(
        (all.len() as i64, expected),
        (120, 120),
        "as the SQL view: three series of the job, and three of the node"
    );
    assert!(all.iter().all(|row| row["device_id"] == "n1" && row["labels"].is_object()));
    let of_job = rows(&fixture, USERS[0], "job_id=1");
    assert!(
        of_job.len() >= 100 && of_job.iter().all(|row| all.contains(row)),
        "the known metrics of the node"
    );
    assert!(
        rows(&fixture, USERS[1], "job_id=1").is_empty() && rows(&fixture, USERS[1], "job_id=999").is_empty()
    );
    let metric = of_job[0]["metric_id"].as_str().unwrap();
    let of_metric = rows(&fixture, USERS[0], &format!("job_id=1&metrics={metric}"));
    assert!(!of_metric.is_empty() && of_metric.len() < of_job.len());
    assert!(of_metric.iter().all(|row| row["metric_id"] == metric));
    assert!(of_metric.iter().map(|row| row["value"].as_f64().unwrap()).sum::<f64>() > 0.0);
    assert!(rows(&fixture, USERS[0], "job_id=1&nodes=n2").is_empty());
    assert!(rows(&fixture, USERS[0], "job_id=1&end_time=2001-01-01T00:00:00Z").is_empty());
    let minutes = rows(&fixture, USERS[0], "job_id=1&summary=true");
    assert!(!minutes.is_empty() && minutes.len() < of_job.len());
    // The series of a node are for administrators.
    assert!(rows(&fixture, USERS[0], "nodes=n1&start_time=0&end_time=4000000000").is_empty());
    assert!(!rows(&fixture, 0, "nodes=n1&start_time=0&end_time=4000000000").is_empty());
    let csv = get(USERS[0], &fixture.api, "/metrics?job_id=1&format=csv");
    assert_eq!(csv.text().lines().count(), 1 + of_job.len());
    assert_eq!(get(USERS[0], &fixture.api, "/metrics").status, 400);
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
