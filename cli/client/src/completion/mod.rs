//! Values that shells complete: ids of jobs, metrics and periods. A shell waits for them, so they are found
//! within a fraction of a second, and a failure leaves them out.

pub mod jobs;
pub mod metrics;
pub mod periods;

use std::ffi::OsStr;

use clap_complete::engine::CompletionCandidate;

pub fn beginning_with(
    current: &OsStr,
    candidates: impl IntoIterator<Item = CompletionCandidate>,
) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let fits =
        |candidate: &CompletionCandidate| candidate.get_value().to_string_lossy().starts_with(&*current);
    candidates.into_iter().filter(fits).collect()
}
