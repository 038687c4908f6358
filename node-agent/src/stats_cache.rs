//! Cache of the sampler's newest reports, which the sender fills and the control requests read.

use std::collections::BTreeMap;
use std::sync::Mutex;

use polymeter_proto::ledger::Tally;
use polymeter_proto::series::JobHandle;

use crate::lanes::{ReadCost, SourceReport};
use crate::mutex::lock;

/// Reports by job and name of the source.
type Reports = BTreeMap<(Option<JobHandle>, String), SourceStats>;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SourceStats {
    pub tally: Tally,
    /// Cost since the source was opened.
    pub cost: ReadCost,
    /// Recent mean time of a read; 0 before the first.
    pub recent_ns: f64,
}

impl SourceStats {
    /// Statistics after the next report. The reads since the last report are half of the recent mean, so that
    /// a file that becomes slow is noticed within a few seconds, and one slow read changes little.
    fn updated(&self, report: &SourceReport) -> Self {
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

/// Newest reports of all sources. The sampler does not access them.
#[derive(Debug, Default)]
pub struct StatsCache {
    reports: Mutex<Reports>,
}

impl StatsCache {
    pub fn update(&self, reports: &[SourceReport]) {
        let mut stats = lock(&self.reports);
        for report in reports {
            let key = (report.key.job.as_ref().map(|job| job.handle), report.key.name.as_str().to_owned());
            if report.last {
                stats.remove(&key);
            } else {
                let before = stats.entry(key).or_default();
                *before = before.updated(report);
            }
        }
    }

    pub fn of(&self, job: Option<JobHandle>) -> Vec<(String, SourceStats)> {
        let stats = lock(&self.reports);
        let of_job = stats.iter().filter(|((of, _), _)| *of == job);
        of_job.map(|((_, name), stats)| (name.clone(), *stats)).collect()
    }

    /// Recent mean time of a read of all sources that were read, by job and source, in nanoseconds.
    pub fn read_times(&self) -> BTreeMap<Option<JobHandle>, BTreeMap<String, f64>> {
        let mut times: BTreeMap<_, BTreeMap<String, f64>> = BTreeMap::new();
        for ((job, name), stats) in lock(&self.reports).iter().filter(|(_, stats)| stats.recent_ns > 0.0) {
            times.entry(*job).or_default().insert(name.clone(), stats.recent_ns);
        }
        times
    }
}
