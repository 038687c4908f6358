//! Completion of the ids of stored jobs, in the configured collector or the store of this directory: those of
//! the user; for root those of all users.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use clap_complete::engine::CompletionCandidate;
use polymeter_client::completion::beginning_with;
use polymeter_client::completion::jobs::{shown_user, within_patience};
use polymeter_store::reader::{JobFilter, JobRow};

use super::read_source::ReadSource;

const JOBS_MAX: u32 = 100;

/// Last started first.
pub(crate) fn stored(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning_with(current, within_patience(|| jobs(None)))
}

/// Only of jobs that have ended.
pub(crate) fn names(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning_with(
        current,
        within_patience(|| {
            let jobs = known_jobs(Some(true)).into_iter();
            let names: BTreeSet<String> = jobs.filter_map(|job| job.name).collect();
            names.into_iter().map(CompletionCandidate::new).collect()
        }),
    )
}

pub(crate) fn running() -> Vec<CompletionCandidate> {
    jobs(Some(false))
}

fn known_jobs(is_ended: Option<bool>) -> Vec<JobRow> {
    let filter = JobFilter {
        owner_uid: shown_user().map(i64::from),
        is_ended,
        limit: JOBS_MAX,
        ..JobFilter::default()
    };
    let Ok(mut source) = ReadSource::default().open() else { return Vec::new() };
    source.reader.jobs(&filter).unwrap_or_default()
}

fn jobs(is_ended: Option<bool>) -> Vec<CompletionCandidate> {
    known_jobs(is_ended)
        .into_iter()
        .map(|job| {
            CompletionCandidate::new(job.display_id.unwrap_or(job.job_id)).help(job.name.map(Into::into))
        })
        .collect()
}
