//! Jobs and runs of ten days: they get the findings of short ones, and their charts have their values.

use polymeter_e2e::daemons::{Daemon, collector_with};
use polymeter_e2e::site::{Proxy, api_config};
use polymeter_e2e::{Need, TestEnvironment, program, require, tests};
use serde_json::{Value, json};

tests![findings_and_charts_do_not_depend_on_the_duration];

/// Durations, and the distance between samples, in seconds.
const DURATIONS: [(i64, i64); 3] = [(600, 10), (4 * 3600, 10), (10 * 86_400, 60)];

/// Has the number 1 in every Debian.
const OWNER: &str = "daemon";

const START_S: i64 = 1_795_000_000;

const RUN: &str = r#"{"command":["mpirun","-n","2","./solver"]}"#;

/// A job with the values of its series on each node as SQL, of `t`, its seconds, and `span`, its duration.
struct Shape {
    name: &'static str,
    nodes: &'static [&'static str],
    cores: u32,
    run: Option<&'static str>,
    /// Metric, labels, value on the first node, value on others.
    series: &'static [(&'static str, &'static str, &'static str, &'static str)],
    findings: &'static [&'static str],
}

const MEMORY: (&str, &str, &str, &str) = ("memory.anon", "{}", "1073741824", "1073741824");

const SHAPES: [Shape; 4] = [
    Shape {
        name: "pair-with-an-idle-rank",
        nodes: &["n1"],
        cores: 2,
        run: Some(RUN),
        series: &[
            ("cpu.usage", "{}", "t * 1e9", ""),
            ("busiest.cpu.usage", r#"{"comm":"solver","pid":"10"}"#, "t * 1e9", ""),
            ("busiest.cpu.usage", r#"{"comm":"solver","pid":"11"}"#, "0", ""),
            MEMORY,
        ],
        findings: &["serial-code"],
    },
    Shape {
        name: "memory-that-grows",
        nodes: &["n1"],
        cores: 2,
        run: Some(RUN),
        series: &[
            ("cpu.usage", "{}", "t * 1.9e9", ""),
            ("memory.anon", "{}", "1073741824 * (1 + 19.0 * t / span)", ""),
        ],
        findings: &["memory-growth"],
    },
    Shape {
        name: "one-slow-node",
        nodes: &["n1", "n2", "n3", "n4"],
        cores: 32,
        run: None,
        series: &[("cpu.usage", "{}", "t * 1.2e9", "t * 7.8e9"), MEMORY],
        findings: &["node-below-others"],
    },
    Shape {
        name: "nothing-to-change",
        nodes: &["n1", "n2", "n3", "n4"],
        cores: 32,
        run: None,
        series: &[("cpu.usage", "{}", "t * 7.8e9", "t * 7.8e9"), MEMORY],
        findings: &[],
    },
];

fn insert(database: &rusqlite::Connection, shape: &Shape, (span_s, period_s): (i64, i64)) {
    let Shape { nodes, cores, run, series, .. } = shape;
    let id = format!("{}-{span_s}", shape.name);
    let (start_ns, end_ns) = (START_S * 1_000_000_000, (START_S + span_s) * 1_000_000_000);
    let job = "INSERT INTO job (job_id, owner_uid, started, ended, cores, state, run, scheduler)
               VALUES (?1, 1, ?2, ?3, ?4, 'COMPLETED', ?5, iif(?5 IS NULL, 'slurm', NULL))";
    database.execute(job, (&id, start_ns, end_ns, cores, run)).unwrap();
    let key = database.last_insert_rowid();
    for (position, node) in nodes.iter().enumerate() {
        let of_node = "INSERT INTO job_node (job_key, node, started, ended) VALUES (?1, ?2, ?3, ?4)";
        database.execute(of_node, (key, node, start_ns, end_ns)).unwrap();
        database.execute("INSERT INTO series_shape (digest) VALUES (?1)", [format!("{id} {node}")]).unwrap();
        let of_shape = database.last_insert_rowid();
        let next = "UPDATE series_counter SET next_id = next_id + ?1 RETURNING next_id - ?1";
        let first: i64 = database.query_row(next, [series.len() as i64], |row| row.get(0)).unwrap();
        let block = "INSERT INTO series_block (first_id, shape_id, job_key, node, job_id) VALUES (?1, ?2, ?3, ?4, ?5)";
        database.execute(block, (first, of_shape, key, node, &id)).unwrap();
        for (number, (metric, labels, of_first, of_others)) in series.iter().enumerate() {
            let member = "INSERT INTO series_shape_member VALUES (?1, ?2, ?3, ?4, NULL)";
            database.execute(member, (of_shape, number as i64, metric, labels)).unwrap();
            let value = if position == 0 { of_first } else { of_others };
            let samples = format!(
                "INSERT INTO samples (time, series_id, value) WITH RECURSIVE at (t) AS (SELECT 0 UNION ALL SELECT t + {period_s} FROM at WHERE t < {span_s})
                 SELECT {start_ns} + t * 1000000000, {first} + {number}, {value} FROM at, (SELECT {span_s} AS span)"
            );
            database.execute(&samples, ()).unwrap();
        }
    }
}

fn fill(env: &TestEnvironment) {
    let mut database = rusqlite::Connection::open(env.path("store.db")).unwrap();
    let database = database.transaction().unwrap();
    for (metric, unit, kind) in [
        ("cpu.usage", "nanoseconds", "counter"),
        ("busiest.cpu.usage", "nanoseconds", "counter"),
        ("memory.anon", "bytes", "gauge"),
    ] {
        database.execute("INSERT OR IGNORE INTO metric VALUES (?1, ?2, ?3)", (metric, unit, kind)).unwrap();
    }
    for shape in &SHAPES {
        for duration in DURATIONS {
            insert(&database, shape, duration);
        }
    }
    database.commit().unwrap();
}

fn findings_and_charts_do_not_depend_on_the_duration() {
    require(&[Need::Root, Need::Chromium]);
    let env = TestEnvironment::new();
    let (collector, _) = collector_with(&env, &env.endpoint(), &api_config(&env.path("api.sock")));
    fill(&env);
    for shape in &SHAPES {
        for (span_s, _) in DURATIONS {
            let id = format!("{}-{span_s}", shape.name);
            assert_eq!(findings(&env, &id), shape.findings, "{id}");
        }
    }
    charts_have_the_values(&env);
    drop::<Daemon>(collector);
}

fn findings(env: &TestEnvironment, id: &str) -> Vec<String> {
    let mut report = program("polymeter");
    report.args(["report", id, "--json", "--store", &env.store()]);
    let output = report.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["id"].as_str().unwrap().to_owned()).collect()
}

/// A page of the job of ten days, and what the API sends it.
fn charts_have_the_values(env: &TestEnvironment) {
    let proxy = Proxy::start(&env.path("api.sock"));
    let mut browser = proxy.open(OWNER, "job?id=one-slow-node-864000");
    browser.wait_until("document.documentElement.dataset.complete");
    let readout = browser.eval("document.querySelector('.chart .readout').textContent");
    assert!(readout.as_str().unwrap().contains("max 7.80"), "{readout}");
    let course = "(async () => {
        const { jobs } = await (await fetch('api/v1/jobs?id=one-slow-node-864000')).json();
        return (await fetch(`api/v1/jobs/${jobs[0].key}/course?quantity=cores`)).json();
    })()";
    let course = browser.eval(course);
    let all = |line: &Value, expected: f64| {
        let values = line.as_array().unwrap();
        values.len() == 600 && values.iter().all(|value| value == &json!(expected))
    };
    assert!(all(&course["low"], 1.2) && all(&course["middle"], 7.8) && all(&course["high"], 7.8), "{course}");
    assert_eq!(course["mean"], json!(6.15));
    assert!(all(&course["means"][0], 1.2) && all(&course["means"][3], 7.8), "{course}");
}
