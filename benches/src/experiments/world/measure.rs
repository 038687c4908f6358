//! The measurements of a filled store.

use std::error::Error;
use std::fs;

use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::{self, say, to_f64};

use super::arguments::Arguments;
use super::calendar::{BIG_JOB, DAY_US, FIRST_JOB, FIRST_REGISTERED, LARGE_SERIES, MEDIUM_JOB};
use super::fill;
use super::reads::{self, Runs, User};
use super::sizes::Sizes;
use super::{remote, scale};

/// Maximum number of runs of the measurement of registration.
const REGISTRATION_RUNS: u16 = 3;

const METRIC: &str = "memory.anon";

pub(crate) fn is_filled(store: &Store) -> bool {
    // A store without tables is empty.
    store.ask("SELECT count(*) FROM job").is_ok_and(|jobs| jobs != "0")
}

/// Measures the store, and prints the results as a table, each row as soon as it is measured.
pub(crate) fn measure(store: &Store, arguments: &Arguments, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    let past = jobs_between(store, FIRST_JOB, BIG_JOB - 1)?;
    say(&format!("{}: {past} past jobs, up to {} runs each", store.kind(), arguments.runs));
    say("");
    table::head(&["measurement", "median", "shortest", "longest", "runs", "memory at most"]);
    let results = Results { only: arguments.only.as_deref() };
    reports(store, arguments, past, &results)?;
    queries(store, arguments, past, &results)?;
    through_the_collector(store, arguments, &results)?;
    scale::reports(store, arguments.runs, |what, measure| results.add_duration(what, measure))?;
    let (nodes, hours) = (u64::from(arguments.big_nodes), u64::from(arguments.big_hours));
    scale::exports(store, arguments.runs, nodes * hours * 3_600 * LARGE_SERIES as u64, |what, measure| {
        results.add(what, |rate| format!("{rate:.0}"), measure)
    })?;
    if arguments.registrations > 0 {
        registration(store, arguments, &results)?;
    }
    let runs = |value| Runs { seconds: vec![value], peak_kib: 0 };
    let of_metadata = runs(sizes.per_job_node);
    results.add("bytes of metadata per job and node", |value| format!("{value:.0}"), || Ok(of_metadata))?;
    let per_sample = runs(sizes.per_sample);
    results.add("bytes per sample", |value| format!("{value:.2}"), || Ok(per_sample))
}

struct Results<'a> {
    /// Part of the names of the wanted measurements; none if all are wanted.
    only: Option<&'a str>,
}

impl Results<'_> {
    /// Measures `what` if that is wanted, and prints it.
    fn add(
        &self,
        what: &str,
        format: impl Fn(f64) -> String,
        measure: impl FnOnce() -> Result<Runs, Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        if self.only.is_none_or(|only| what.contains(only)) {
            table::row(&cells(what, &measure()?, format));
        }
        Ok(())
    }

    fn add_duration(
        &self,
        what: &str,
        measure: impl FnOnce() -> Result<Runs, Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        self.add(what, |seconds| format!("{seconds:.4} s"), measure)
    }
}

fn jobs_between(store: &Store, first: u64, last: u64) -> Result<u64, Box<dyn Error>> {
    let sql = format!("SELECT count(*) FROM job WHERE CAST(job_id AS bigint) BETWEEN {first} AND {last}");
    Ok(store.ask(&sql)?.parse()?)
}

/// Id of a past job in the second half of the history, all of whose samples were taken.
const fn past_job(past: u64) -> u64 {
    let id = FIRST_JOB + past * 2 / 3;
    if id.is_multiple_of(50) { id + 1 } else { id }
}

fn reports(
    store: &Store,
    arguments: &Arguments,
    past: u64,
    results: &Results<'_>,
) -> Result<(), Box<dyn Error>> {
    let report = |job: u64| {
        let job = job.to_string();
        reads::command(&["report", &job, "--store", store.url()], User::Own, arguments.runs, || Ok(()))
    };
    let samples = u64::from(arguments.samples) * u64::from(arguments.series);
    let what = format!("report of a job of {samples} samples");
    results.add_duration(&what, || report(past_job(past)))?;
    let (large, nodes) = (LARGE_SERIES as u64, arguments.big_nodes);
    let big = u64::from(nodes) * u64::from(arguments.big_hours) * 3_600 * large;
    let what = format!("report of the job of {big} samples on {nodes} nodes");
    results.add_duration(&what, || report(BIG_JOB))?;
    let scratch = tempfile::tempdir()?;
    let out = scratch.path().join("bundle");
    let (job, directory) = (MEDIUM_JOB.to_string(), out.display().to_string());
    let bundle = ["bundle", &job, "--store", store.url(), "--out", &directory];
    let what = format!("bundle of {} samples", u64::from(arguments.medium_seconds) * large);
    results.add_duration(&what, || {
        reads::command(&bundle, User::Own, arguments.runs, || {
            if out.exists() { Ok(fs::remove_dir_all(&out)?) } else { Ok(()) }
        })
    })
}

/// Values that are read to measure the memory of the collector.
const STREAMED_VALUES: u64 = 10_000_000;

fn through_the_collector(
    store: &Store,
    arguments: &Arguments,
    results: &Results<'_>,
) -> Result<(), Box<dyn Error>> {
    const NAME: &str = "through the collector";
    if results.only.is_some_and(|only| !NAME.contains(only)) {
        return Ok(());
    }
    let seconds = |value| format!("{value:.4} s");
    let medium = remote::values(store, MEDIUM_JOB, u64::MAX, arguments.runs)?;
    let count = medium.count;
    table::row(&cells(&format!("{count} values, directly from the store"), &medium.direct, seconds));
    table::row(&cells(&format!("{count} values, {NAME}"), &medium.through, seconds));
    let big = remote::values(store, BIG_JOB, STREAMED_VALUES, 1)?;
    let what = format!("growth of the collector by {} values, in MiB", big.count);
    table::row(&cells(&what, &big.growth_mib, |mib| format!("{mib:.1}")));
    Ok(())
}

fn queries(
    store: &Store,
    arguments: &Arguments,
    past: u64,
    results: &Results<'_>,
) -> Result<(), Box<dyn Error>> {
    let run = |sql: &str, rows: u64| reads::query(store, sql, rows, arguments.runs);
    let by_job = |job: u64| format!("SELECT timestamp, value FROM metrics_by_job WHERE job_id = '{job}'");
    let of_readme = format!("{} AND metric_id = '{METRIC}' ORDER BY timestamp", by_job(past_job(past)));
    let what = "metrics_by_job, one metric, as in the README";
    results.add_duration(what, || run(&of_readme, arguments.samples.into()))?;
    let medium = u64::from(arguments.medium_seconds) * LARGE_SERIES as u64;
    results.add_duration(&format!("metrics_by_job, {medium} values"), || run(&by_job(MEDIUM_JOB), medium))?;
    let sums = format!("SELECT count(*), sum(value) FROM ({}) AS q", by_job(MEDIUM_JOB));
    let what = format!("metrics_by_job, count and sum of {medium} values");
    results.add_duration(&what, || run(&sums, 1))?;
    let hours = u64::from(arguments.big_hours);
    let what = format!("one series of {hours} h at 1 s");
    results.add_duration(&what, || run(&series_of_a_day(store)?, hours * 3_600))
}

/// Query for one series of the big job.
fn series_of_a_day(store: &Store) -> Result<String, Box<dyn Error>> {
    let (sqlite, postgres) = ("started / 1000", "CAST(extract(epoch FROM started) * 1000000 AS bigint)");
    let started = if store.kind() == Kind::Sqlite { sqlite } else { postgres };
    let begin_us: i64 =
        store.ask(&format!("SELECT {started} FROM job WHERE job_id = '{BIG_JOB}'"))?.parse()?;
    let series = store.ask(&format!(
        "SELECT min(series_id) FROM series WHERE metric = '{METRIC}'
             AND job_key = (SELECT job_key FROM job WHERE job_id = '{BIG_JOB}')"
    ))?;
    let time = |time_us: i64| match store.kind() {
        Kind::Sqlite => (time_us * 1_000).to_string(),
        Kind::Postgres | Kind::Timescaledb | Kind::Citus => format!("to_timestamp({})", time_us / 1_000_000),
    };
    Ok(format!(
        "SELECT time, value FROM samples WHERE series_id = {series} AND time >= {} AND time < {}",
        time(begin_us),
        time(begin_us + DAY_US)
    ))
}

fn registration(store: &Store, arguments: &Arguments, results: &Results<'_>) -> Result<(), Box<dyn Error>> {
    let known = store.ask("SELECT count(*) FROM series")?;
    let what =
        format!("registration of jobs with {} series, jobs/s, with {known} known series", arguments.series);
    results.add(
        &what,
        |rate| format!("{rate:.0}"),
        || {
            let mut rates = Vec::new();
            for _ in 0..arguments.runs.min(REGISTRATION_RUNS) {
                let registered = jobs_between(store, FIRST_REGISTERED, i64::MAX.cast_unsigned())?;
                rates.push(fill::register(store, arguments, FIRST_REGISTERED + registered)?);
            }
            Ok(Runs { seconds: rates, peak_kib: 0 })
        },
    )
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
