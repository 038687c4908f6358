//! Windows: a lease for them, from the request to the rows of the store.

use polymeter_e2e::fixture::{Fixture, NEEDS, OWNER};
use polymeter_e2e::{program, require, stored, tests, text, wait_until};
use rusqlite::Connection;
use serde_json::json;

tests![
    windows_are_granted_stored_and_counted,
    a_run_in_windows_is_complete,
    a_report_has_quantiles_of_the_samples_in_windows
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
