//! Intervals that a ring kept, as a reader finds them: report, page, export, bundle.

use std::fs;

use polymeter_e2e::browser::Browser;
use polymeter_e2e::{program, stored, tests, text};
use serde_json::Value;

use crate::site_fixture::{Ended, OTHER, OWNER, assert_calm};

tests![a_failed_job_opens_with_its_kept_interval];

/// Samples that the ring kept, one each millisecond up to the end of the job.
const KEPT: i64 = 200;

/// Adds what a ring kept of the memory of one node, which grows to 200 MB, a histogram of the job and one of
/// its node, and lets the job run out of memory.
const ROWS: &str = "
    UPDATE job SET state = 'OUT_OF_MEMORY';
    CREATE TEMP TABLE memory AS SELECT series_id, series.job_key, series.node, job.ended FROM series JOIN job USING (job_key)
        WHERE metric IN ('process.memory.resident', 'memory.current') AND labels = '{}' ORDER BY series_id LIMIT 1;
    INSERT INTO kept_interval SELECT job_key, node, ended - 200000000, ended, -5, 'oom: killed <b>', 200 FROM memory;
    INSERT INTO trigger_firing SELECT -5, job_key, node, ended - 1000000, 'oom <b>', NULL, ended - 200000000, ended,
        'the kernel killed a process for lack of memory', 'keeps 0 s', 2, json_object('n7', 'no answer <i>') FROM memory;
    INSERT INTO kept_sample
        WITH RECURSIVE step (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM step WHERE n < 200)
        SELECT ended - 200000000 + n * 1000000 - 1000, series_id, n * 1e6 FROM memory, step;
    INSERT INTO series_block (first_id, shape_id, node)
        SELECT 2000000, shape_id, memory.node FROM series_block JOIN memory ON series_id >= first_id
        ORDER BY first_id DESC LIMIT 1;
    INSERT INTO window_histogram
        WITH RECURSIVE step (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM step WHERE n < 31)
        SELECT job_key, ended - (n % 2) * 1000000000, series_id, n, n * n FROM memory, step WHERE n > 0
        UNION ALL SELECT NULL, ended, 2000000, 5, 1 FROM memory;
    INSERT INTO ledger_source (source) VALUES ('ring/memory');
    INSERT INTO ledger_line (session_key, job_key, handle, due, taken, not_kept, stored, source_id)
        SELECT session_key, memory.job_key, 1, 1010, 1000, 700, 200, source_id FROM session, memory, ledger_source
        WHERE source = 'ring/memory' LIMIT 1;
    DROP TABLE memory;";

const TEXT: &str =
    "the last 199 ms before the OOM kill, at 1ms, on 1 of 2 nodes (1 node is missing: n7: no answer <i>)";

const MARK: &str = "trigger oom <b>: the kernel killed a process for lack of memory";

/// Why the interval was kept.
fn reason(site: &Ended) -> String {
    let mut reader = site.env.reader();
    let key = stored::jobs(&mut reader).pop().unwrap().job_key;
    let node = reader.firings(key).unwrap().remove(0).node;
    format!("oom <b> on {node}: the kernel killed a process for lack of memory")
}

/// The list of what fired, below the findings.
fn assert_firings(browser: &mut Browser, reason: &str) {
    let fired = browser.eval("[...document.querySelectorAll('.firings li')].map((item) => item.textContent)");
    let [fired] = fired.as_array().unwrap().as_slice() else { panic!("{fired}") };
    let text = format!("{reason}; keeps 0 s; 1 node is missing: n7: no answer <i>");
    assert!(fired.as_str().unwrap().ends_with(&text), "{fired}");
    let is_below =
        "document.querySelector('.findings').compareDocumentPosition(document.querySelector('.firings')) & 4";
    assert_eq!(browser.eval(is_below), 4);
}

fn polymeter(site: &Ended, arguments: &[&str]) -> String {
    let store = format!("sqlite:{}", site.env.path("store.db").display());
    let mut command = program("polymeter");
    command.args(arguments).args(["--store", &store]);
    let output = command.current_dir(site.env.path("")).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn a_failed_job_opens_with_its_kept_interval() {
    let site = Ended::with("job", |store| store.execute_batch(ROWS).unwrap());
    let job = stored::jobs(&mut site.env.reader()).pop().unwrap();
    assert_report(&site, &job.job_id);
    assert_files(&site, &job.job_id);
    assert_page(&site, job.job_key);
}

/// The samples that the ring did not keep are no loss, and in no other figure.
fn assert_report(site: &Ended, job: &str) {
    let screen = polymeter(site, &["report", job]);
    let reason = reason(site);
    assert!(screen.lines().any(|line| line == format!("kept      {TEXT}: {reason}")), "{screen}");
    assert!(screen.lines().any(|line| line.starts_with("fired ") && line.contains(&reason)), "{screen}");
    let report: Value = serde_json::from_str(&polymeter(site, &["report", job, "--json"])).unwrap();
    let kept = &report["kept"][0];
    assert_eq!(
        (&kept["text"], &kept["period_us"], &kept["samples"]),
        (&TEXT.into(), &1000.into(), &KEPT.into())
    );
    let fired = &report["firings"][0];
    assert_eq!((&fired["rule"], &fired["nodes_missing"]["n7"]), (&"oom <b>".into(), &"no answer <i>".into()));
    let ring = &report["ring"];
    assert_eq!((&ring["taken"], &ring["kept"], &ring["not_kept"]), (&1000.into(), &KEPT.into(), &700.into()));
    assert_eq!((&ring["unknown"], &report["unknown"]), (&100.into(), &0.into()));
    let due: i64 = report["sources"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|source| source["source"] != "ring/memory")
        .map(|source| source["due"].as_i64().unwrap())
        .sum();
    assert_eq!(report["ledger"]["due"], due);
    let finding = report["findings"].as_array().unwrap().iter().find(|of| of["id"] == "growth-before-kill");
    let sentence = finding.unwrap()["sentence"].as_str().unwrap();
    assert!(sentence.contains("grew by 190 MiB within 199 ms"), "{sentence}");
    let all = polymeter(site, &["report", job, "--show", "all"]);
    assert!(all.contains("1000 taken, 0 missed, 200 kept, 700 not wanted"), "{all}");

    let page = site.env.path("report.html");
    polymeter(site, &["report", job, "--html", page.to_str().unwrap()]);
    let mut browser = Browser::start();
    browser.open(&page);
    browser.wait_until("document.documentElement.dataset.charts");
    let line = browser.eval("document.querySelector('.kept li').textContent");
    assert_eq!(line, format!("kept: {TEXT}: {reason}"));
    assert_firings(&mut browser, &reason);
    let names = |of: &str| {
        format!(
            "JSON.parse(document.getElementById('charts-data').textContent).{of}.map(({{ name }}) => name)"
        )
    };
    let bands = browser.eval(&names("bands"));
    assert!(bands.as_array().unwrap().contains(&format!("kept: {reason}").into()), "{bands}");
    let marks = browser.eval(&names("marks"));
    assert!(marks.as_array().unwrap().contains(&MARK.into()), "{marks}");
    browser.eval("document.querySelector('.kept a').focus()");
    browser.enter();
    browser.wait_until("document.querySelector('.range').textContent !== ''");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

fn assert_files(site: &Ended, job: &str) {
    polymeter(site, &["export", job, "--kept", "-o", "kept.csv"]);
    let rows = fs::read_to_string(site.env.path("kept.csv")).unwrap();
    assert_eq!(rows.lines().count() as i64, KEPT + 1, "{rows}");
    for format in ["parquet", "jsonl"] {
        let said = polymeter(site, &["export", job, "--kept", "-o", &format!("kept.{format}"), "--json"]);
        assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["samples"], KEPT);
    }
    polymeter(site, &["bundle", job, "--out", "bundle"]);
    assert!(site.env.path("bundle/kept.parquet").metadata().unwrap().len() > 1000);
    let intervals = fs::read_to_string(site.env.path("bundle/kept_intervals.csv")).unwrap();
    assert!(intervals.contains(&format!("{}", (-5_i64).cast_unsigned())), "{intervals}");
    let firings = fs::read_to_string(site.env.path("bundle/firings.csv")).unwrap();
    assert!(firings.lines().count() == 2 && firings.contains("no answer <i>"), "{firings}");
}

fn assert_page(site: &Ended, key: i64) {
    let mut browser = site.proxy.open(OWNER.0, &format!("job?key={key}"));
    browser.wait_until("document.documentElement.dataset.complete");
    let line = browser.eval("document.querySelector('.kept li').textContent");
    let reason = reason(site);
    assert_eq!(line, format!("kept: {TEXT}: {reason}"));
    assert_firings(&mut browser, &reason);
    let marks = browser.eval("document.querySelector('.charts').data.marks.map(({ name }) => name)");
    assert!(marks.as_array().unwrap().contains(&MARK.into()), "{marks}");
    let names = browser.eval("document.querySelector('.charts').data.bands.map(({ name }) => name)");
    assert!(names.as_array().unwrap().contains(&"kept: oom: killed <b>".into()), "{names}");
    browser.eval("document.querySelector('.kept a').focus()");
    browser.enter();
    browser.wait_until(
        "(([from, until]) => Math.abs(until - from - 0.2) < 1e-3)(document.querySelector('.charts').axis.range)",
    );
    // Parts of the time read the samples of both voices.
    let of = |query: &str| {
        format!(
            "(async () => {{ const at = document.querySelector('.charts').axis.range, begin = document.querySelector('.charts').data.begin_s; \
             const [from, until] = at.map((s) => Math.round((begin + s) * 1e6)); \
             const answer = await fetch(`api/v1/jobs/{key}/samples?from_us=${{from}}&until_us=${{until}}&{query}`); \
             return (await answer.json()).series; }})()"
        )
    };
    let kept = browser.eval(&of("set=kept"));
    assert_eq!((kept.as_array().unwrap().len(), kept[0]["value"].as_array().unwrap().len()), (1, 200));
    let parts = browser.eval(&of("points=50&metric=process.memory.resident,memory.current"));
    let highest = parts.as_array().unwrap().iter().flat_map(|of| of["max"].as_array().unwrap());
    let highest = highest.filter_map(Value::as_f64).fold(0.0, f64::max);
    assert!((highest - 2e8).abs() < 1.0, "{highest}");
    let listed =
        browser.eval(&format!("fetch('api/v1/jobs/{key}/kept-intervals').then((answer) => answer.json())"));
    assert_eq!(listed["kept_intervals"][0]["samples"], KEPT);
    assert_calm(&site.proxy, &mut browser);
    assert_percentiles(site, &mut browser, key);
    // Another user sees nothing, as of a job that does not exist.
    let mut other = site.proxy.open(OTHER.0, "");
    let foreign = fetched(&mut other, &format!("jobs/{key}/percentiles"));
    assert_eq!(foreign[0], 404, "{foreign}");
    let answer = |of: &mut Browser, key: i64| fetched(of, &format!("jobs/{key}/firings"));
    let foreign = answer(&mut other, key);
    assert_eq!(foreign[0], 404, "{foreign}");
    let text = |answer: &Value, key: i64| answer[1].as_str().unwrap().replace(&key.to_string(), "KEY");
    assert_eq!(text(&foreign, key), text(&answer(&mut other, 987_654), 987_654));
    let own = answer(&mut browser, key);
    assert!(own[0] == 200 && own[1].as_str().unwrap().contains("oom <b>"), "{own}");
}

fn fetched(of: &mut Browser, path: &str) -> Value {
    of.eval(&format!("fetch('api/v1/{path}').then(async (answer) => [answer.status, await answer.text()])"))
}

/// Compares the percentiles with those of the sorted values: n^2 samples of each number n, the odd ones in
/// the window before the last.
fn assert_percentiles(site: &Ended, browser: &mut Browser, key: i64) {
    let percentiles = |is_wanted: fn(u32) -> bool| {
        let values = (1..=31_u32).filter(|n| is_wanted(*n));
        let values: Vec<u32> = values.flat_map(|n| (0..n * n).map(move |_| n)).collect();
        let at = |percent: usize| f64::from(values[(values.len() * percent).div_ceil(100) - 1]);
        let samples = f64::from(u32::try_from(values.len()).unwrap());
        serde_json::json!([samples, at(50), at(90), at(99), at(100)])
    };
    let mut found = |query: &str| {
        let answer = fetched(browser, &format!("jobs/{key}/percentiles?{query}"));
        assert_eq!(answer[0], 200, "{answer}");
        let answer: Value = serde_json::from_str(answer[1].as_str().unwrap()).unwrap();
        let rows = answer["percentiles"].as_array().unwrap().clone();
        assert!(rows.len() <= 1, "of the job's series alone: {answer}");
        rows.first().map_or(Value::Null, |row| {
            let number = |name: &str| row[name].as_f64().unwrap();
            serde_json::json!(["samples", "p50", "p90", "p99", "max"].map(number))
        })
    };
    assert_eq!(found(""), percentiles(|_| true));
    let ended_us = stored::jobs(&mut site.env.reader()).pop().unwrap().ended_ns.unwrap() / 1000;
    assert_eq!(found(&format!("from_us={}", ended_us - 500_000)), percentiles(|n| n % 2 == 0));
    assert_eq!(found(&format!("until_us={}", ended_us - 500_000)), percentiles(|n| n % 2 == 1));
    assert_eq!(found("metric=cpu.*"), Value::Null);
    let csv = fetched(browser, &format!("jobs/{key}/percentiles?format=csv"));
    assert!(
        csv[1].as_str().unwrap().starts_with("id,node,metric,unit,labels,samples,p50,p90,p99,max"),
        "{csv}"
    );
    let of_node = fetched(browser, "nodes/n1/percentiles");
    assert_eq!(of_node[0], 403, "a user may not read the node: {of_node}");
}
