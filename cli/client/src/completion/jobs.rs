//! Ids of jobs: those of the user; for root those of all users.

use std::ffi::OsStr;
use std::sync::OnceLock;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use clap_complete::engine::CompletionCandidate;
use polymeter_proto::control::{Answer, JobsRequest, Request};

use super::beginning_with;
use crate::connection::agent::{SOCKET, ask_within};

const PATIENCE: Duration = Duration::from_millis(400);

/// Set by the full program.
static RUNNING: OnceLock<fn() -> Vec<CompletionCandidate>> = OnceLock::new();

pub fn set_running(find: fn() -> Vec<CompletionCandidate>) {
    RUNNING.get_or_init(|| find);
}

/// Asks this node's agent, or the collector if it has no job.
pub fn running(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning_with(
        current,
        within_patience(|| {
            let own = tracked();
            if own.is_empty() { RUNNING.get().map_or(own, |find| find()) } else { own }
        }),
    )
}

/// Lets the search go on in the background after that, until the process exits.
pub fn within_patience(find: fn() -> Vec<CompletionCandidate>) -> Vec<CompletionCandidate> {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || sender.send(find()).ok());
    receiver.recv_timeout(PATIENCE).unwrap_or_default()
}

/// None for root, who sees all.
#[must_use]
pub fn shown_user() -> Option<u32> {
    let user = rustix::process::geteuid();
    (!user.is_root()).then(|| user.as_raw())
}

fn tracked() -> Vec<CompletionCandidate> {
    let answer = ask_within(SOCKET.as_ref(), &Request::Jobs(JobsRequest {}), PATIENCE);
    let Ok(Answer::Status(status)) = answer else { return Vec::new() };
    let user = shown_user();
    let jobs = status.subjects.into_iter().filter(|job| user.is_none() || job.uid == user);
    jobs.filter_map(|job| job.job).map(CompletionCandidate::new).collect()
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
