//! End of runs whose `polymeter run` was killed: no collector is left that could store it.

use std::path::Path;
use std::time::Duration;

use polymeter_service::clock;
use polymeter_store::reader::{JobFilter, JobRow, Reader};
use polymeter_store::{OpenOptions, Store, StoreError, StoreUrl};

/// Ids of runs are `run-PID-SECONDS`.
pub(crate) const RUN_PREFIX: &str = "run-";

/// Silence after which a run counts as killed if its process is gone. Runs send every second.
const SILENCE_WITHOUT_PROCESS: Duration = Duration::from_secs(5);

/// Silence after which a run counts as killed whose process may be on another machine: agents send at least
/// every 30 s.
const SILENCE: Duration = Duration::from_secs(75);

const JOBS_MAX: u32 = 100;

/// Opens a store to read it. The killed runs of a file are ended in it, or for this reader alone where
/// nothing can be written: the disk is full, the user may not write, or the file is busy.
pub(crate) fn open(store: &StoreUrl) -> Result<Reader, StoreError> {
    let mut reader = Reader::open(store)?;
    let Some(running) = store.file().and_then(|_| running_runs(&mut reader)) else { return Ok(reader) };
    let silence = if running.iter().all(is_gone) { SILENCE_WITHOUT_PROCESS } else { SILENCE };
    let silence_us = i64::try_from(silence.as_micros()).unwrap_or(i64::MAX);
    let cutoff_us = clock::realtime_us().saturating_sub(silence_us);
    // A live run on a full disk is silent, too.
    if end(store, cutoff_us).is_err() && !running.iter().any(is_alive) {
        reader.see_silent_as_ended(cutoff_us)?;
    }
    Ok(reader)
}

/// None if there are no running jobs, or others than runs: those belong to a collector, which ends them.
fn running_runs(reader: &mut Reader) -> Option<Vec<JobRow>> {
    let running = JobFilter { is_ended: Some(false), limit: JOBS_MAX, ..JobFilter::default() };
    let running = reader.jobs(&running).ok()?;
    let are_runs = running.iter().all(|job| process(&job.job_id).is_some());
    (are_runs && !running.is_empty()).then_some(running)
}

fn end(store: &StoreUrl, cutoff_us: i64) -> Result<(), StoreError> {
    /// Time until which the samples of the ended sessions count as lost: none, since agent and run end
    /// together.
    const LOST_UNTIL_US: i64 = 0;
    Store::open(store, &OpenOptions::default())?.end_silent(cutoff_us, LOST_UNTIL_US)?;
    Ok(())
}

/// None for other jobs.
fn process(job_id: &str) -> Option<u32> {
    let (pid, started_s) = job_id.strip_prefix(RUN_PREFIX)?.split_once('-')?;
    started_s.parse::<u64>().ok()?;
    pid.parse().ok()
}

/// True for a run on this machine whose process does not exist any more.
fn is_gone(job: &JobRow) -> bool {
    is_local(job) && !has_process(job)
}

fn is_alive(job: &JobRow) -> bool {
    is_local(job) && has_process(job)
}

fn is_local(job: &JobRow) -> bool {
    job.nodes == [rustix::system::uname().nodename().to_string_lossy().into_owned()]
}

fn has_process(job: &JobRow) -> bool {
    process(&job.job_id).is_some_and(|pid| Path::new("/proc").join(pid.to_string()).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_of_runs_name_a_process() {
        assert_eq!(process("run-4711-1795368277"), Some(4711));
        for other in ["4711", "run-", "run-x-1", "run-4711", "run-4711-x", "4711-run-1"] {
            assert_eq!(process(other), None, "{other}");
        }
    }
}
