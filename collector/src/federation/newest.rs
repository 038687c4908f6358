//! Newest value of each series of all nodes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polymeter_store::accepted::{JobRecord, SeriesRecord};

/// How long a value of a series without an end is kept, as of an agent that is not reachable.
pub(crate) const KEPT: Duration = Duration::from_secs(600);

/// Shared by the sink, which writes, and the page. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct NewestValues(Arc<Mutex<Table>>);

impl NewestValues {
    /// Values of at most `series_max` series are kept.
    pub(crate) fn new(series_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Table { series_max, ..Table::default() })))
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Newest {
    /// Keeps the address in use, so that it identifies the record.
    pub(super) record: Arc<SeriesRecord>,
    /// Microseconds since the epoch.
    pub(super) time_us: i64,
    pub(super) value: f64,
    /// Arrival, since the start of the clock.
    seen: Duration,
}

/// Facts of a job, which become labels: names and values.
pub(crate) type Facts = Arc<[(&'static str, String)]>;

#[derive(Debug, Clone)]
pub(super) struct KnownJob {
    pub(super) record: Arc<JobRecord>,
    pub(super) facts: Facts,
    seen: Duration,
}

/// Newest values, by the addresses of the records.
#[derive(Debug, Default)]
pub(crate) struct Table {
    series_max: usize,
    series: HashMap<usize, Newest>,
    jobs: HashMap<usize, KnownJob>,
    refused: u64,
}

impl Table {
    /// A value that is older than that of the series changes nothing. One of too many series is counted.
    pub(crate) fn put(&mut self, record: &Arc<SeriesRecord>, (time_us, value): (i64, f64), seen: Duration) {
        let address = Arc::as_ptr(record) as usize;
        if let Some(newest) = self.series.get_mut(&address) {
            if newest.time_us <= time_us {
                (newest.time_us, newest.value, newest.seen) = (time_us, value, seen);
            }
        } else if self.series.len() < self.series_max {
            self.series.insert(address, Newest { record: Arc::clone(record), time_us, value, seen });
        } else {
            self.refused += 1;
        }
    }

    /// Keeps a job that is known; false if its facts are missing.
    pub(crate) fn keep_job(&mut self, record: &Arc<JobRecord>, seen: Duration) -> bool {
        let known = self.jobs.get_mut(&(Arc::as_ptr(record) as usize));
        known.is_some_and(|job| {
            job.seen = seen;
            true
        })
    }

    pub(crate) fn put_job(&mut self, record: &Arc<JobRecord>, facts: Facts, seen: Duration) {
        let job = KnownJob { record: Arc::clone(record), facts, seen };
        self.jobs.insert(Arc::as_ptr(record) as usize, job);
    }

    pub(crate) fn end(
        &mut self,
        is_series_over: impl Fn(&SeriesRecord) -> bool,
        is_job_over: impl Fn(&JobRecord) -> bool,
    ) {
        self.series.retain(|_, newest| !is_series_over(&newest.record));
        self.jobs.retain(|_, job| !is_job_over(&job.record));
    }

    /// Forgets what arrived before.
    pub(crate) fn forget_before(&mut self, seen: Duration) {
        self.series.retain(|_, newest| newest.seen >= seen);
        self.jobs.retain(|_, job| job.seen >= seen);
    }

    pub(crate) fn len(&self) -> usize {
        self.series.len()
    }

    /// Values since the last call for which there was no room.
    pub(crate) fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    pub(super) fn snapshot(&self) -> (Vec<Newest>, Vec<KnownJob>) {
        (self.series.values().cloned().collect(), self.jobs.values().cloned().collect())
    }
}
