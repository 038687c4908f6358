//! The generation of the history.

use std::error::Error;

use polymeter_benches::clock::{now_ns, wall_us};
use polymeter_benches::collector::Collector;
use polymeter_benches::store::Store;
use polymeter_benches::sums::Sums;
use polymeter_benches::table::{say, to_f64};

use super::arguments::Arguments;
use super::calendar::{self, JobPlan};
use super::fleet::Fleet;
use super::template::Template;

pub(crate) fn fill(store: &Store, arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let now_us = wall_us();
    let (jobs, begin_us) = (calendar::jobs(arguments, now_us), calendar::begin_us(arguments, now_us));
    let samples = send(store, arguments, &jobs, begin_us)?;
    let sums = Sums::read(store)?;
    say(&format!("{}: {sums}", store.kind()));
    sums.check()?;
    if sums.stored != samples {
        return Err(format!("{samples} samples were sent, and {} are stored", sums.stored).into());
    }
    Ok(())
}

/// Adds further jobs to the store. What is stored is not compared: retention may have removed samples of the
/// others.
pub(crate) fn add(store: &Store, arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let now_us = wall_us();
    let jobs = calendar::extras(arguments, now_us);
    let begin_us = jobs.iter().map(|job| job.begin_us).min().unwrap_or(now_us);
    send(store, arguments, &jobs, begin_us).map(drop)
}

fn send(
    store: &Store,
    arguments: &Arguments,
    jobs: &[JobPlan],
    begin_us: i64,
) -> Result<u64, Box<dyn Error>> {
    let (template, now_us, begin_ns) = (Template::read()?, wall_us(), now_ns());
    let samples = with_collector(store, |endpoint| {
        let mut fleet = Fleet::connect(calendar::nodes(arguments), endpoint, begin_us, &template)?;
        fleet.run(jobs, true)?;
        fleet.stop(now_us)?;
        Ok(fleet.samples())
    })?;
    let seconds = to_f64(now_ns() - begin_ns) / 1e9;
    say(&format!(
        "{}: {} jobs, {samples} samples in {seconds:.0} s: {:.0} jobs/s, {:.0} samples/s",
        store.kind(),
        jobs.len(),
        to_f64(jobs.len() as u64) / seconds,
        to_f64(samples) / seconds
    ));
    Ok(samples)
}

/// Registers new jobs, each with one sample of each series, and returns the jobs per second.
pub(crate) fn register(store: &Store, arguments: &Arguments, first_id: u64) -> Result<f64, Box<dyn Error>> {
    let (template, now_us) = (Template::read()?, wall_us());
    let jobs = calendar::registrations(arguments, first_id, arguments.registrations, now_us);
    with_collector(store, |endpoint| {
        let mut fleet = Fleet::connect(calendar::nodes(arguments), endpoint, now_us, &template)?;
        let begin_ns = now_ns();
        fleet.run(&jobs, false)?;
        let seconds = to_f64(now_ns() - begin_ns) / 1e9;
        fleet.stop(now_us + 1_000_000)?;
        Ok(to_f64(jobs.len() as u64) / seconds)
    })
}

/// Configuration of the collector: the jobs are older than the default retention of samples, beyond which it
/// rejects them.
pub(crate) const KEEP_A_YEAR: &str = "[retention]\nraw = \"1y\"\n10s = \"1y\"\n";

fn with_collector<T>(
    store: &Store,
    work: impl FnOnce(&str) -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let listen = format!("ipc://{}/collector", scratch.path().display());
    let collector = Collector::start(scratch.path(), &listen, store, KEEP_A_YEAR)?;
    let done = work(collector.endpoint());
    if done.is_err() {
        say(&collector.log());
    }
    collector.stop()?;
    done
}
