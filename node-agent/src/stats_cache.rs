//! The board on which the sender pins what the sampler reported, for whoever asks.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use polymeter_proto::ledger::Tally;
use polymeter_proto::series::JobHandle;

use crate::lanes::{Cost, SourceReport};

/// What is known of each source, by its job and name.
type Reports = BTreeMap<(Option<JobHandle>, String), SourceStats>;

/// The newest report of a source.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SourceStats {
    /// What became of its samples.
    pub tally: Tally,
    /// What its reads cost since it was opened.
    pub cost: Cost,
    /// The mean time of a read of late, in nanoseconds; 0 before the first.
    pub recent_ns: f64,
}

impl SourceStats {
    /// What the next report makes of this one: half of what is recent is what came since, so that a file that becomes
    /// slow is noticed within a few seconds, and one slow read is not much.
    fn go_on(&self, report: &SourceReport) -> Self {
        let reads = report.cost.reads.saturating_sub(self.cost.reads);
        let took_ns = report.cost.total_ns.saturating_sub(self.cost.total_ns);
        let since = took_ns.checked_div(reads).and_then(|mean_ns| u32::try_from(mean_ns).ok()).map(f64::from);
        let recent_ns = match since {
            None => self.recent_ns,
            Some(mean_ns) if self.recent_ns <= 0.0 => mean_ns,
            Some(mean_ns) => (self.recent_ns + mean_ns) / 2.0,
        };
        Self { tally: report.tally, cost: report.cost, recent_ns }
    }
}

/// The newest reports of all sources. The sampler never touches it.
#[derive(Debug, Default)]
pub struct StatsCache {
    reports: Mutex<Reports>,
}

impl StatsCache {
    /// Pins new reports over the old ones, and takes down those of sources that are gone.
    pub fn update(&self, reports: &[SourceReport]) {
        let mut pinned = lock(&self.reports);
        for report in reports {
            let key = (report.key.job.as_ref().map(|job| job.handle), report.key.name.as_str().to_owned());
            if report.last {
                pinned.remove(&key);
            } else {
                let before = pinned.entry(key).or_default();
                *before = before.go_on(report);
            }
        }
    }

    /// The newest reports of one job, or of the node.
    pub fn of(&self, job: Option<JobHandle>) -> Vec<(String, SourceStats)> {
        let pinned = lock(&self.reports);
        let of_job = pinned.iter().filter(|((of, _), _)| *of == job);
        of_job.map(|((_, name), pinned)| (name.clone(), *pinned)).collect()
    }

    /// The mean time of a read of late, in nanoseconds, of all sources that were read, by job and source.
    pub fn read_times(&self) -> BTreeMap<Option<JobHandle>, BTreeMap<String, f64>> {
        let mut times: BTreeMap<_, BTreeMap<String, f64>> = BTreeMap::new();
        for ((job, name), stats) in lock(&self.reports).iter().filter(|(_, stats)| stats.recent_ns > 0.0) {
            times.entry(*job).or_default().insert(name.clone(), stats.recent_ns);
        }
        times
    }
}

/// What a panic left behind is still the best that is known.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
