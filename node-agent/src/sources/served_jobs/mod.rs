//! Jobs that clients of Lustre name to a server, as they are known while the agent runs.

mod sums;
mod text;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::lock::lock;
use sums::JobSums;
use text::Counts;

pub(super) use sums::check;
pub(super) use sums::{JOBS_MAX, JobKey};
pub(super) use text::{Job, Parser};

#[derive(Debug, Default)]
pub struct ServedJobs {
    sums: Mutex<JobSums>,
    changes: AtomicU64,
}

impl ServedJobs {
    pub(super) fn update(&self, targets: BTreeMap<String, Vec<Job>>) {
        if lock(&self.sums).update(targets) {
            self.changes.fetch_add(1, Release);
        }
    }

    pub(super) fn chosen(&self) -> Vec<JobKey> {
        lock(&self.sums).chosen().cloned().collect()
    }

    pub(super) fn jobs(&self) -> usize {
        lock(&self.sums).jobs()
    }

    /// Counts of a job; `None` if no target has it now.
    pub(super) fn counts(&self, key: &JobKey) -> Option<Counts> {
        lock(&self.sums).counts(key)
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }
}
