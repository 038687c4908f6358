//! The measurements of a filled store.

use std::error::Error;
use std::fs;

use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::{self, say, to_f64};

use crate::arguments::Arguments;
use crate::calendar::{BIG_JOB, DAY_US, FIRST_JOB, FIRST_REGISTERED, LARGE_SERIES, MEDIUM_JOB};
use crate::fill;
use crate::reads::{self, Runs};
use crate::sizes::Sizes;

/// The maximum number of runs of the measurement of registration.
const REGISTRATION_RUNS: u16 = 3;

/// The metric of the queries for a single series.
const METRIC: &str = "memory.anon";

/// Returns true if the store contains a history.
pub(crate) fn is_filled(store: &Store) -> bool {
    // A store without tables is empty.
    store.ask("SELECT count(*) FROM job").is_ok_and(|jobs| jobs != "0")
}

/// Measures the store, and prints the results as a table.
pub(crate) fn measure(store: &Store, arguments: &Arguments, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    let past = jobs_between(store, FIRST_JOB, BIG_JOB - 1)?;
    say(&format!("{}: {past} past jobs, up to {} runs each", store.kind(), arguments.runs));
    say("");
    let mut rows = reports(store, arguments, past)?;
    rows.extend(queries(store, arguments, past)?);
    if arguments.registrations > 0 {
        rows.push(registration(store, arguments)?);
    }
    let single = |what: &str, value: String| {
        vec![what.to_owned(), value, "-".to_owned(), "-".to_owned(), "1".to_owned(), "-".to_owned()]
    };
    rows.push(single("bytes of metadata per job and node", format!("{:.0}", sizes.per_job_node)));
    rows.push(single("bytes per sample", format!("{:.2}", sizes.per_sample)));
    table::table(&["measurement", "median", "shortest", "longest", "runs", "memory at most"], &rows);
    Ok(())
}

/// Returns the number of jobs with ids in a range.
fn jobs_between(store: &Store, first: u64, last: u64) -> Result<u64, Box<dyn Error>> {
    let sql = format!("SELECT count(*) FROM job WHERE CAST(job_id AS bigint) BETWEEN {first} AND {last}");
    Ok(store.ask(&sql)?.parse()?)
}

/// Returns the id of a past job in the second half of the history, all of whose samples were taken.
const fn past_job(past: u64) -> u64 {
    let id = FIRST_JOB + past * 2 / 3;
    if id.is_multiple_of(50) { id + 1 } else { id }
}

fn reports(store: &Store, arguments: &Arguments, past: u64) -> Result<Vec<Vec<String>>, Box<dyn Error>> {
    let runs = arguments.runs;
    let report = |job: u64| {
        reads::command(&["report", "--job", &job.to_string(), "--store", store.url()], runs, || Ok(()))
    };
    let scratch = tempfile::tempdir()?;
    let out = scratch.path().join("bundle");
    let remove = || if out.exists() { Ok(fs::remove_dir_all(&out)?) } else { Ok(()) };
    let (medium, directory) = (MEDIUM_JOB.to_string(), out.display().to_string());
    let bundle = ["bundle", &medium, "--store", store.url(), "--out", &directory];
    let samples = u64::from(arguments.samples) * u64::from(arguments.series);
    let large = LARGE_SERIES as u64;
    let big = u64::from(arguments.big_nodes) * u64::from(arguments.big_hours) * 3_600 * large;
    let medium = u64::from(arguments.medium_seconds) * large;
    Ok(vec![
        row(&format!("report of a job of {samples} samples"), &report(past_job(past))?),
        row(
            &format!("report of the job of {big} samples on {} nodes", arguments.big_nodes),
            &report(BIG_JOB)?,
        ),
        row(&format!("bundle of {medium} samples"), &reads::command(&bundle, runs, remove)?),
    ])
}

fn queries(store: &Store, arguments: &Arguments, past: u64) -> Result<Vec<Vec<String>>, Box<dyn Error>> {
    let run = |sql: &str, rows: u64| reads::query(store, sql, rows, arguments.runs);
    let by_job = |job: u64| format!("SELECT timestamp, value FROM metrics_by_job WHERE job_id = '{job}'");
    let medium = u64::from(arguments.medium_seconds) * LARGE_SERIES as u64;
    let hours = u64::from(arguments.big_hours);
    let of_readme = format!("{} AND metric_id = '{METRIC}' ORDER BY timestamp", by_job(past_job(past)));
    let sums = format!("SELECT count(*), sum(value) FROM ({}) AS q", by_job(MEDIUM_JOB));
    let (sqlite, postgres) = ("started / 1000", "CAST(extract(epoch FROM started) * 1000000 AS bigint)");
    let started = if store.kind() == Kind::Sqlite { sqlite } else { postgres };
    let begin_us: i64 =
        store.ask(&format!("SELECT {started} FROM job WHERE job_id = '{BIG_JOB}'"))?.parse()?;
    let series = store.ask(&format!(
        "SELECT min(series_id) FROM series WHERE job_id = '{BIG_JOB}' AND metric = '{METRIC}'"
    ))?;
    let time = |time_us: i64| match store.kind() {
        Kind::Sqlite => (time_us * 1_000).to_string(),
        Kind::Postgres | Kind::Timescaledb => format!("to_timestamp({})", time_us / 1_000_000),
    };
    let one_series = format!(
        "SELECT time, value FROM samples WHERE series_id = {series} AND time >= {} AND time < {}",
        time(begin_us),
        time(begin_us + DAY_US)
    );
    Ok(vec![
        row("metrics_by_job, one metric, as in the README", &run(&of_readme, arguments.samples.into())?),
        row(&format!("metrics_by_job, {medium} values"), &run(&by_job(MEDIUM_JOB), medium)?),
        row(&format!("metrics_by_job, count and sum of {medium} values"), &run(&sums, 1)?),
        row(&format!("one series of {hours} h at 1 s"), &run(&one_series, hours * 3_600)?),
    ])
}

fn registration(store: &Store, arguments: &Arguments) -> Result<Vec<String>, Box<dyn Error>> {
    let known = store.ask("SELECT count(*) FROM series")?;
    let mut rates = Vec::new();
    for _ in 0..arguments.runs.min(REGISTRATION_RUNS) {
        let registered = jobs_between(store, FIRST_REGISTERED, i64::MAX.cast_unsigned())?;
        rates.push(fill::register(store, arguments, FIRST_REGISTERED + registered)?);
    }
    let runs = Runs { seconds: rates, peak_kib: 0 };
    let what =
        format!("registration of jobs with {} series, jobs/s, with {known} known series", arguments.series);
    Ok(cells(&what, &runs, |rate| format!("{rate:.0}")))
}

fn row(what: &str, runs: &Runs) -> Vec<String> {
    cells(what, runs, |seconds| format!("{seconds:.4} s"))
}

fn cells(what: &str, runs: &Runs, format: impl Fn(f64) -> String) -> Vec<String> {
    let of = |choose: fn(f64, f64) -> f64| runs.seconds.iter().copied().reduce(choose).unwrap_or(f64::NAN);
    let memory =
        if runs.peak_kib > 0 { format!("{:.0} MiB", to_f64(runs.peak_kib) / 1024.0) } else { "-".to_owned() };
    vec![
        what.to_owned(),
        format(runs.median()),
        format(of(f64::min)),
        format(of(f64::max)),
        runs.seconds.len().to_string(),
        memory,
    ]
}
