//! Ids of jobs: those of the user; for root those of all users.

use std::ffi::OsStr;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use clap_complete::engine::CompletionCandidate;
use polymeter_proto::control::{Answer, JobsRequest, Request};

use super::beginning_with;
use crate::client::agent::{SOCKET, ask_within};

/// The maximum time for finding ids.
const PATIENCE: Duration = Duration::from_millis(400);

/// The maximum number of stored jobs.
#[cfg(feature = "local")]
const STORED_MAX: u32 = 100;

/// Completes the id of a running job: of this node's agent, or of the collector if there are none.
pub(crate) fn running(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning_with(
        current,
        within_patience(|| {
            let own = tracked();
            if own.is_empty() { stored_jobs(Some(false)) } else { own }
        }),
    )
}

/// Completes the id of a stored job, the one that started last first.
#[cfg(feature = "local")]
pub(crate) fn stored(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning_with(current, within_patience(|| stored_jobs(None)))
}

/// Returns what `find` finds in time. It goes on in the background otherwise, until the process exits.
fn within_patience(find: fn() -> Vec<CompletionCandidate>) -> Vec<CompletionCandidate> {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || sender.send(find()).ok());
    receiver.recv_timeout(PATIENCE).unwrap_or_default()
}

/// Returns the user whose jobs are shown; none for root, who sees all.
fn shown_user() -> Option<u32> {
    let user = rustix::process::geteuid();
    (!user.is_root()).then(|| user.as_raw())
}

/// Returns the jobs that this node's agent tracks.
fn tracked() -> Vec<CompletionCandidate> {
    let answer = ask_within(SOCKET.as_ref(), &Request::Jobs(JobsRequest {}), PATIENCE);
    let Ok(Answer::Status(status)) = answer else { return Vec::new() };
    let user = shown_user();
    let jobs = status.subjects.into_iter().filter(|job| user.is_none() || job.uid == user);
    jobs.filter_map(|job| job.job).map(CompletionCandidate::new).collect()
}

/// Returns the jobs of the configured collector, or of the store in this directory.
#[cfg(feature = "local")]
fn stored_jobs(is_ended: Option<bool>) -> Vec<CompletionCandidate> {
    use crate::client::read_source::ReadSource;
    use polymeter_store::reader::JobFilter;

    let filter = JobFilter {
        owner_uid: shown_user().map(i64::from),
        is_ended,
        limit: STORED_MAX,
        ..JobFilter::default()
    };
    let Ok(mut source) = ReadSource::default().open() else { return Vec::new() };
    let jobs = source.reader.jobs(&filter).unwrap_or_default();
    let candidate = |job: polymeter_store::reader::JobRow| {
        CompletionCandidate::new(job.display_id.unwrap_or(job.job_id)).help(job.name.map(Into::into))
    };
    jobs.into_iter().map(candidate).collect()
}

#[cfg(not(feature = "local"))]
const fn stored_jobs(_: Option<bool>) -> Vec<CompletionCandidate> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_that_hangs_is_given_up() {
        #[expect(clippy::disallowed_methods, reason = "the search hangs")]
        let found = within_patience(|| {
            std::thread::sleep(Duration::from_secs(600));
            vec![CompletionCandidate::new("7")]
        });
        assert!(found.is_empty());
        assert_eq!(within_patience(|| vec![CompletionCandidate::new("7")]).len(), 1);
    }
}
