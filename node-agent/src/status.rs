//! The board on which the sender pins what the sampler reported, for whoever asks.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use polymeter_proto::ledger::Tally;
use polymeter_proto::series::JobHandle;

use crate::sampler::{Cost, SourceReport};

/// The tally and cost of each source, by its job and name.
type Reports = BTreeMap<(Option<JobHandle>, String), (Tally, Cost)>;

/// The newest reports of all sources. The sampler never touches it.
#[derive(Debug, Default)]
pub struct Board {
    reports: Mutex<Reports>,
    outbox_dropped: Mutex<u64>,
}

impl Board {
    /// Pins new reports over the old ones, and takes down those of sources that are gone.
    pub fn update(&self, reports: &[SourceReport]) {
        let mut pinned = lock(&self.reports);
        for report in reports {
            let key = (report.key.job.as_ref().map(|job| job.handle), report.key.name.as_str().to_owned());
            if report.last {
                pinned.remove(&key);
            } else {
                pinned.insert(key, (report.tally, report.cost));
            }
        }
    }

    /// Counts samples that went because the outbox was full.
    pub fn outbox_dropped(&self, samples: u64) {
        *lock(&self.outbox_dropped) += samples;
    }

    /// How many samples went because the outbox was full.
    pub fn samples_dropped_by_outbox(&self) -> u64 {
        *lock(&self.outbox_dropped)
    }

    /// The newest reports of one job, or of the node.
    pub fn of(&self, job: Option<JobHandle>) -> Vec<(String, Tally, Cost)> {
        let pinned = lock(&self.reports);
        let of_job = pinned.iter().filter(|((of, _), _)| *of == job);
        of_job.map(|((_, name), (tally, cost))| (name.clone(), *tally, *cost)).collect()
    }
}

/// What a panic left behind is still the best that is known.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
