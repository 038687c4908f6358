//! Windows: a lease for them, from the request to the rows of the store.

use std::fs;

use polymeter_e2e::fixture::{Fixture, NEEDS, OWNER};
use polymeter_e2e::workload::Sleeper;
use polymeter_e2e::{program, require, stored, tests, text, wait_until};
use rusqlite::Connection;
use serde_json::json;

tests![
    windows_are_granted_stored_and_counted,
    a_run_in_windows_is_complete,
    a_report_has_quantiles_of_the_samples_in_windows,
    histograms_on_request_are_those_of_the_samples
];

const SAMPLES: &str = "SELECT sum(coalesce(count, 1)), count(*), count(count), max(count) FROM samples
     JOIN series ON series.series_id = samples.series_id";
/// Samples, rows, rows of windows, and the most samples in a window, of a metric.
fn counts(store: &Connection, metric: &str) -> (i64, i64, i64, Option<i64>) {
    let sql = format!("{SAMPLES} WHERE metric = ?");
    store.query_row(&sql, [metric], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))).unwrap()
}

fn windows_are_granted_stored_and_counted() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let answer = fixture.granted(OWNER, &["pids.current=2ms/10ms", "cpu.usage=2ms/200ms", "--for", "3s"]);
    assert_eq!(answer["metrics"], json!({"pids.current": "2ms/10ms", "cpu.usage": "2ms/200ms"}), "{answer}");
    // Reading is charged by the period, sending by the window; the baseline has two metrics at 50 ms.
    let sent = answer["cost"]["samples_per_s"].as_f64().unwrap();
    assert!((100.0..200.0).contains(&sent), "{answer}");
    let shown = fixture.user(OWNER, "plan", &["--job", "x"]);
    assert!(text(&shown.stdout).contains("2ms/200ms"), "{}", text(&shown.stdout));
    for (request, word) in [
        ("cpu.usage=3ms/10ms", "expected a multiple of 3ms"),
        ("cpu.usage=2ms/2ms", "at least two of it"),
        ("cpu.usage=500us/1s", "the shortest period allowed for cpu.usage is 1ms"),
    ] {
        let message = fixture.refused(OWNER, "set", &["--job", "x", request]);
        assert!(message.contains(word), "{request}: {message}");
    }
    wait_until("the lease ends", || fixture.is("cpu.usage", "500ms", "baseline"));
    let mut reader = fixture.env.reader();
    let job = stored::job(&mut reader, "x").unwrap();
    wait_until("the store knows the end of the lease", || {
        let changes = reader.plan_changes(job.job_key).unwrap();
        changes.iter().any(|change| change.metric == "cpu.usage" && change.cause == "lease_end")
    });
    let changes = reader.plan_changes(job.job_key).unwrap();
    let lease = changes.iter().find(|change| change.metric == "cpu.usage" && change.cause == "lease");
    assert_eq!(lease.unwrap().new_sampling(), "2ms/200ms".parse().ok());
    fixture.agent.daemon.terminate();
    fixture.collector.terminate();
    check_store(&fixture.env.path("store.db"));
    let store = Connection::open(fixture.env.path("store.db")).unwrap();
    let (samples, rows, windows, most) = counts(&store, "cpu.usage");
    assert!(
        samples > 10 * rows && windows > 5 && most <= Some(102),
        "{samples} in {rows}, {windows} {most:?}"
    );
    let (samples, rows, _, most) = counts(&store, "pids.current");
    assert!(samples > 2 * rows && most <= Some(7), "{samples} in {rows}, {most:?}");
}

/// Checks the identity of the ledger, and that windows are consistent with their neighbours.
fn check_store(path: &std::path::Path) {
    let store = Connection::open(path).unwrap();
    let (taken, dropped, kept, unknown): (i64, i64, i64, i64) = store
        .query_row(
            "SELECT sum(taken), sum(dropped), sum(stored), sum(unknown) FROM ledger_balance",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )
        .unwrap();
    let samples: i64 =
        store.query_row("SELECT sum(coalesce(count, 1)) FROM samples", [], |row| row.get(0)).unwrap();
    assert_eq!((taken - dropped, unknown), (kept, 0));
    assert_eq!(samples, kept, "each sample is in a row");
    let impossible: i64 = store
        .query_row(
            "SELECT count(*) FROM samples
             WHERE count IS NOT NULL AND (count < 1 OR min > max
                 OR (sum IS NOT NULL AND (value < min OR value > max OR sum < count * min OR sum > count * max)))",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(impossible, 0);
}

fn a_run_in_windows_is_complete() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.db");
    let output = program("polymeter")
        .args(["run", "--every", "5ms/100ms", "-o", file.to_str().unwrap(), "--", "sh", "-c"])
        .arg("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sleep 0.5")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    check_store(&file);
    let store = Connection::open(&file).unwrap();
    let changed: i64 = store
        .query_row(
            "SELECT count(*) FROM plan_change WHERE new_period_us = 5000 AND new_window_us = 100000",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert!(changed > 0);
    let windows: i64 =
        store.query_row("SELECT count(*) FROM samples WHERE count > 10", [], |row| row.get(0)).unwrap();
    assert!(windows > 0, "a window of 100 ms has up to 21 samples");
}

fn a_report_has_quantiles_of_the_samples_in_windows() {
    require(&NEEDS);
    let fixture = Fixture::configured("histograms = [\"cpu.*\"]\n", "");
    fixture.granted(OWNER, &["pids.current=2ms/20ms", "cpu.usage=2ms/20ms", "--for", "1min"]);
    let path = fixture.env.path("store.db");
    let sum = "SELECT coalesce(sum(count), 0), count(DISTINCT series_id) FROM window_histogram";
    let histograms = |store: &Connection| -> (i64, i64) {
        store.query_row(sum, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    };
    wait_until("histograms are stored", || histograms(&Connection::open(&path).unwrap()).0 > 200);
    fixture.agent.daemon.terminate();
    fixture.collector.terminate();
    let store = Connection::open(&path).unwrap();
    let (samples, series) = histograms(&store);
    assert_eq!(series, 1, "only the wanted metric has them");
    let in_windows = "SELECT sum(samples.count), count(*) FROM samples JOIN series USING (series_id)
        WHERE metric = 'cpu.usage' AND samples.count IS NOT NULL";
    let (most, windows): (i64, i64) =
        store.query_row(in_windows, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert!(most - windows <= samples && samples <= most, "{samples} of {most} in {windows}");
    let url = format!("sqlite:{}", path.display());
    let report = |more: &[&str]| {
        let output = program("polymeter").args(["report", "x", "--store", &url]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let json: serde_json::Value = serde_json::from_str(&report(&["--json"])).unwrap();
    let found = &json["distributions"][0];
    assert_eq!((&found["metric"], &found["unit"]), (&json!("cpu.usage"), &json!("cores")), "{found}");
    assert_eq!(found["samples"], json!(samples));
    let quantiles = ["p50", "p90", "p99", "max"].map(|name| found[name].as_f64().unwrap());
    assert!(quantiles.is_sorted() && quantiles[0] >= 0.0, "{found}");
    // The row of a window has the exact extremes of the rates.
    let extreme = "SELECT max(max) FROM samples JOIN series USING (series_id) WHERE metric = 'cpu.usage'";
    let most: f64 = store.query_row(extreme, [], |row| row.get(0)).unwrap();
    assert!((quantiles[3] * 1e9 - most).abs() <= 0.04 * most + 1.0, "{found} {most}");
    assert!(report(&["--show", "series"]).contains("p99"));
}

/// The owner wants histograms of a gauge, an administrator those of a series of the node. Whole numbers below
/// 32 have buckets of their own, so that the rows of the windows tell what is in them.
fn histograms_on_request_are_those_of_the_samples() {
    require(&NEEDS);
    let fixture = Fixture::configured("", "");
    fixture.granted(OWNER, &["pids.current=2ms/20ms/histogram", "cpu.usage=2ms/20ms", "--for", "5min"]);
    let node = json!({"verb": "set", "plan": {"node.load1": "5ms/50ms/histogram"}, "for": "5min"});
    assert_eq!(fixture.agent.ask(&node)["metrics"], json!({"node.load1": "5ms/50ms/histogram"}));
    let plan = fixture.agent.ask(&json!({"verb": "plan", "job": "x"}));
    let lines = plan["plan"].as_array().unwrap();
    let line = lines.iter().find(|line| line["metric"] == "pids.current").unwrap();
    assert_eq!(line["period"], "2ms/20ms/histogram", "{line}");
    let refused = fixture.user(OWNER, "set", &["--job", "x", "pids.current=2ms/histogram"]);
    assert!(text(&refused.stderr).contains("10ms/1s/histogram"), "{}", text(&refused.stderr));
    // Processes come and go, so that the gauge has many values.
    let mut crowd: Vec<Sleeper> = Vec::new();
    for _ in 0..12 {
        let sleeper = Sleeper::start();
        fixture.job.enter(sleeper.pid());
        crowd.push(sleeper);
        polymeter_e2e::pause(80);
    }
    let path = fixture.env.path("store.db");
    let number = |sql: &str| -> i64 {
        let store = Connection::open(&path).unwrap();
        store.query_row(sql, [], |row| Ok(row.get::<_, Option<i64>>(0)?.unwrap_or(0))).unwrap()
    };
    let of = |metric: &str| {
        format!("SELECT sum(count) FROM histograms_by_job WHERE metric_id = '{metric}' AND job_id = 'x'")
    };
    wait_until("histograms are stored", || {
        number(&of("pids.current")) > 300 && number(&of("node.load1")) > 20
    });
    drop(crowd);
    fixture.agent.daemon.terminate();
    fixture.collector.terminate();
    assert_eq!(number(&of("cpu.usage")), 0, "only the wanted metric has them");
    let windows = "SELECT sum(samples.count) FROM samples JOIN series USING (series_id)
        WHERE metric = 'pids.current' AND samples.count IS NOT NULL AND time IN (SELECT time FROM window_histogram)";
    assert_eq!(number(&of("pids.current")), number(windows), "each sample of a window is in its histogram");
    let extremes = "SELECT count(*) FROM samples JOIN series USING (series_id) WHERE metric = 'pids.current' AND samples.count IS NOT NULL
        AND (min <> (SELECT min(least) FROM window_histogram AS h WHERE h.time = samples.time AND h.series_id = samples.series_id)
          OR max <> (SELECT max(least) FROM window_histogram AS h WHERE h.time = samples.time AND h.series_id = samples.series_id)
          OR sum <> (SELECT sum(least * h.count) FROM window_histogram AS h WHERE h.time = samples.time AND h.series_id = samples.series_id))";
    assert_eq!(number(extremes), 0, "values below 32 have buckets of their own");

    // The file has the same counts, and can be no series.
    let url = format!("sqlite:{}", path.display());
    for format in ["csv", "jsonl", "parquet"] {
        let file = fixture.env.path(&format!("histograms.{format}"));
        let output = program("polymeter")
            .args(["export", "x", "--histograms", "--json", "--store", &url, "-o", file.to_str().unwrap()])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let buckets = "SELECT count(DISTINCT least) FROM window_histogram WHERE job_key IS NOT NULL";
        assert_eq!(answer["samples"], number(buckets), "{format}: {answer}");
        if format == "csv" {
            let rows = fs::read_to_string(&file).unwrap();
            assert!(rows.contains("least") && rows.contains("pids.current"), "{rows}");
        }
    }
    let none = program("polymeter")
        .args(["export", "x", "--histograms", "--metric", "cpu.*", "--store", &url, "-o", "-"])
        .output()
        .unwrap();
    assert!(text(&none.stderr).contains("1ms/1s/histogram"), "{}", text(&none.stderr));
}
