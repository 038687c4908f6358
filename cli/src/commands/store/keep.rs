//! `polymeter store keep`: exempts a job from retention.

use clap_complete::engine::ArgValueCompleter;
use polymeter_service::clock;
use polymeter_store::reader::{JobFilter, JobRow, Reader};
use polymeter_store::{Administration, Level, StoreUrl};
use serde::Serialize;

use crate::calendar::{Date, date};
use crate::client::job_completion;
use crate::client::read_source::Source;
use crate::client::store_choice::StoreChoice;
use crate::failure::Failure;
use crate::output::printable::printable_name;
use crate::output::terminal;
use crate::report::choice::choose;
use crate::store_failure::{cannot_read, store_failure};

#[derive(Debug, clap::Args)]
pub(crate) struct KeepArguments {
    /// The job's id.
    #[arg(value_name = "JOB", add = ArgValueCompleter::new(job_completion::stored))]
    job: String,

    #[command(flatten)]
    store: StoreChoice,

    /// The store's key of the job, if several jobs have this id.
    #[arg(long, value_name = "KEY")]
    job_key: Option<i64>,

    /// The day on which retention applies again, as YYYY-MM-DD in UTC. Default: never.
    #[arg(long, value_name = "DATE", conflicts_with = "release")]
    until: Option<Date>,

    /// Let retention apply again.
    #[arg(long)]
    release: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Kept {
    job: String,
    job_key: i64,
    is_kept: bool,
    until: Option<String>,
    /// Day before which samples of the job were removed already.
    dropped_before: Option<String>,
}

pub(crate) fn execute(arguments: &KeepArguments) -> Result<(), Failure> {
    if let Some(until) = arguments.until.filter(|until| until.begin_us <= clock::realtime_us()) {
        return Err(Failure::Usage(format!(
            "cannot keep a job until {}: the day has begun; name a later one",
            date(until.begin_us)
        )));
    }
    let url = arguments.store.resolve()?;
    let job = choose_one(&url, arguments)?;
    let verb = if arguments.release { "release" } else { "keep" };
    let name = printable_name(&job.job_id).into_owned();
    let refused = |error| store_failure(&format!("cannot {verb} job {name}"), &error);
    let mut store = Administration::open(&url).map_err(refused)?;
    if arguments.release {
        if !store.release(job.job_key).map_err(refused)? {
            return Err(Failure::Failed(format!(
                "cannot release job {name}: it is not kept; polymeter store lists the kept jobs"
            )));
        }
    } else {
        store.keep(job.job_key, arguments.until.map(|until| until.begin_us)).map_err(refused)?;
    }
    let states = store.retention().map_err(refused)?;
    let dropped_us = states
        .iter()
        .find(|state| state.level == Level::Samples)
        .and_then(|state| state.dropped_before_us)
        .filter(|dropped_us| dropped_us.saturating_mul(1000) > job.started_ns);
    let kept = Kept {
        job: job.job_id.clone(),
        job_key: job.job_key,
        is_kept: !arguments.release,
        until: arguments.until.map(|until| date(until.begin_us)),
        dropped_before: dropped_us.filter(|_| !arguments.release).map(date),
    };
    if arguments.json { terminal::print_json(&kept) } else { terminal::print(&text(&kept)) }
}

fn choose_one(url: &StoreUrl, arguments: &KeepArguments) -> Result<JobRow, Failure> {
    let Some(key) = arguments.job_key else {
        let mut source = Source::of_store(url)?;
        return choose(&mut source, Some(&arguments.job)).map(|chosen| chosen.job);
    };
    let filter = JobFilter {
        job_id: Some(arguments.job.clone()),
        job_key: Some(key),
        limit: 1,
        ..JobFilter::default()
    };
    let mut jobs = Reader::open(url).map_err(cannot_read)?.jobs(&filter).map_err(cannot_read)?;
    jobs.pop().ok_or_else(|| {
        Failure::Failed(format!(
            "unknown job `{}` with the key {key}: the store does not contain it; omit --job-key",
            printable_name(&arguments.job)
        ))
    })
}

fn text(kept: &Kept) -> String {
    let job = &kept.job;
    let mut text = match (kept.is_kept, &kept.until) {
        (true, None) => format!("job {job} is kept\n"),
        (true, Some(until)) => format!("job {job} is kept until {until}\n"),
        (false, _) => format!("job {job} is not kept any more\n"),
    };
    if let Some(before) = &kept.dropped_before {
        text.push_str(&format!("samples before {before} were removed already\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(is_kept: bool, until: Option<&str>, before: Option<&str>) -> String {
        text(&Kept {
            job: "4711".to_owned(),
            job_key: 7,
            is_kept,
            until: until.map(str::to_owned),
            dropped_before: before.map(str::to_owned),
        })
    }

    #[test]
    fn the_result_names_the_job_and_what_is_gone() {
        assert_eq!(kept(true, None, None), "job 4711 is kept\n");
        assert_eq!(kept(false, None, None), "job 4711 is not kept any more\n");
        assert_eq!(
            kept(true, Some("2030-01-01"), Some("2026-08-24")),
            "job 4711 is kept until 2030-01-01\nsamples before 2026-08-24 were removed already\n"
        );
    }
}
