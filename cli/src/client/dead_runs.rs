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

/// Ends the killed runs of a file. A store with other running jobs belongs to a collector, and is left alone.
/// Without the right to write, or if the file is busy, the runs stay as they are.
pub(crate) fn end_killed(store: &StoreUrl) {
    if store.file().is_some() {
        try_end(store).ok();
    }
}

fn try_end(store: &StoreUrl) -> Result<(), StoreError> {
    /// Time until which the samples of the ended sessions count as lost: none.
    const LOST_UNTIL_US: i64 = 0;
    let running = JobFilter { is_ended: Some(false), limit: JOBS_MAX, ..JobFilter::default() };
    let running = Reader::open(store)?.jobs(&running)?;
    if running.is_empty() || !running.iter().all(|job| process(&job.job_id).is_some()) {
        return Ok(());
    }
    let silence = if running.iter().all(is_gone) { SILENCE_WITHOUT_PROCESS } else { SILENCE };
    let silence_us = i64::try_from(silence.as_micros()).unwrap_or(i64::MAX);
    let cutoff_us = clock::realtime_us().saturating_sub(silence_us);
    // Agent and run end together: there is no time for which samples may be missing.
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
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    job.nodes == [host]
        && process(&job.job_id).is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
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
