//! `polymeter overhead`: the slowdown of a job by sampling.

use std::path::Path;
use std::process::Stdio;

use polymeter_e2e::{Need, program, require, tests, text, wait_until};
use polymeter_store::StoreUrl;
use polymeter_store::reader::{Read, Reader, SeriesScope};
use serde_json::Value;

tests![
    the_job_is_sampled_in_its_blocks_only,
    a_job_that_ends_earlier_is_measured_until_then,
    a_measurement_that_cannot_succeed_is_refused
];

/// Pushes the number of its iterations until the measurement has ended.
const SCRIPT: &str = r#"
( n=0; while [ ! -e done ]; do n=$((n + 1)); polymeter push iterations=$n; sleep 0.05; done ) &
polymeter overhead --metric user.iterations cpu.usage=5ms --for 16s --block 1s --seed 5 --json > receipt.json
status=$?
touch done
wait
exit $status
"#;

fn the_job_is_sampled_in_its_blocks_only() {
    require(&[Need::Root]);
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("run.db");
    let programs = Path::new(program("polymeter").get_program()).parent().unwrap().to_owned();
    let mut run = program("polymeter");
    run.env("PATH", format!("{}:/usr/bin:/bin", programs.display())).current_dir(directory.path());
    let output = run.arg("run").arg("-o").arg(&store).args(["--", "sh", "-c", SCRIPT]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let receipt = std::fs::read_to_string(directory.path().join("receipt.json")).unwrap();
    let receipt: Value = serde_json::from_str(&receipt).unwrap();
    assert_eq!((&receipt["measure"], &receipt["seed"]), (&"work".into(), &5.into()), "{receipt:#}");
    assert!(receipt["pairs"].as_u64() >= Some(5), "{receipt:#}");
    let percent = |key: &str| receipt[key].as_f64().unwrap();
    assert!(percent("low_percent") <= percent("slowdown_percent"), "{receipt:#}");
    assert!(percent("slowdown_percent") <= percent("high_percent"), "{receipt:#}");

    // Each block of the receipt has as many samples as its state implies.
    let times_us = sample_times_us(&store);
    let (mut dense, mut sparse) = (Vec::new(), Vec::new());
    for block in receipt["blocks"].as_array().unwrap() {
        let [begin_us, end_us] = ["begin_us", "end_us"].map(|key| block[key].as_i64().unwrap());
        // A change takes effect at the next multiple of the period.
        let span_us = begin_us + 200_000..end_us - 100_000;
        let count = times_us.iter().filter(|time_us| span_us.contains(time_us)).count();
        let per_s = count as f64 * 1e6 / (span_us.end - span_us.start) as f64;
        if block["is_sampled"] == true { dense.push(per_s) } else { sparse.push(per_s) }
    }
    assert_eq!(dense.len(), sparse.len());
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
    assert!(mean(&dense) > 4.0 * mean(&sparse), "samples a second: {dense:?}, {sparse:?}");
}

/// A job that pushes its iterations for as many seconds as its argument says, and tells how to reach it.
const ENDING: &str = r#"
printf '%s %s' "$POLYMETER_JOB_ID" "$POLYMETER_SOCKET" > reach.new; mv reach.new reach
( n=0; while [ ! -e done ]; do n=$((n + 1)); polymeter push iterations=$n; sleep 0.05; done ) &
sleep "$1"; touch done; wait
"#;

fn a_job_that_ends_earlier_is_measured_until_then() {
    require(&[Need::Root]);
    for (seconds, is_measured) in [("18", true), ("4", false)] {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("run.db");
        let programs = Path::new(program("polymeter").get_program()).parent().unwrap().to_owned();
        let mut run = program("polymeter");
        run.env("PATH", format!("{}:/usr/bin:/bin", programs.display())).current_dir(directory.path());
        run.args(["run", "-o"]).arg(&store).args(["--", "sh", "-c", ENDING, "job", seconds]);
        let mut run = run.stderr(Stdio::null()).spawn().unwrap();
        let mut reach = String::new();
        wait_until("the job runs", || {
            reach = std::fs::read_to_string(directory.path().join("reach")).unwrap_or_default();
            !reach.is_empty()
        });
        let (job, socket) = reach.split_once(' ').unwrap();
        let mut overhead = program("polymeter");
        overhead.env("POLYMETER_SOCKET", socket);
        overhead.args(["overhead", "--metric", "user.iterations", "cpu.usage=5ms", "--for", "10min"]);
        overhead
            .args(["--block", "1s", "--job", job, "--json", "--store"])
            .arg(format!("sqlite:{}", store.display()));
        let output = overhead.output().unwrap();
        assert!(run.wait().unwrap().success());
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.success(), is_measured, "{answer:#}");
        if is_measured {
            assert!((5..10).contains(&answer["pairs"].as_u64().unwrap()), "{answer:#}");
            assert_eq!(answer["ended_by"], "the job ended");
        }
        let again = overhead.output().unwrap();
        assert!(text(&again.stdout).contains("it has ended"), "{}", text(&again.stdout));
    }
}

fn sample_times_us(store: &Path) -> Vec<i64> {
    let mut reader = Reader::open(&StoreUrl::sqlite(store)).unwrap();
    let reader: &mut dyn Read = &mut reader;
    let job = reader.last_job(None).unwrap().unwrap();
    let series = reader.job_series(job.job_key, &["cpu.usage"]).unwrap();
    let series: Vec<i64> = series.iter().map(|series| series.series_id).collect();
    let mut times_us = Vec::new();
    let all = 0..i64::MAX;
    let read: Result<(), polymeter_store::StoreError> =
        reader.samples(SeriesScope::Job(job.job_key), &series, &all, |row| {
            times_us.push(row.time_ns / 1000);
            Ok(())
        });
    read.unwrap();
    times_us
}

fn a_measurement_that_cannot_succeed_is_refused() {
    require(&[]);
    for (arguments, message) in [
        (vec!["--metric", "user.n", "cpu.usage"], "it has no period"),
        (vec!["--metric", "user.n", "cpu.usage=1ms", "--block", "500ms"], "the shortest is 1s"),
        (vec!["--metric", "user.n", "cpu.usage=1ms", "--for", "10s", "--block", "2s"], "5 pairs of blocks"),
        (vec!["cpu.usage=1ms"], "--metric"),
    ] {
        let output = program("polymeter").arg("overhead").args(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
    }
}
