//! Facts of jobs, for `polymeter_job_info`: from the frames, and from the store for jobs that began
//! before the collector.

use std::collections::HashMap;
use std::sync::Arc;

use polymeter_proto::read::JobFilter;
use polymeter_store::StoreUrl;
use polymeter_store::accepted::{Accepted, JobRecord};
use polymeter_store::reader::Reader;

use super::facts::{Facts, set};
use super::series::Place;

/// Well below the five minutes after which Prometheus takes a series for ended.
pub(super) const INFO_INTERVAL_MS: i64 = 15_000;

#[derive(Debug)]
pub(in crate::sinks) struct Job {
    /// Keeps the address in use, so that it identifies the record.
    record: Arc<JobRecord>,
    pub(in crate::sinks) facts: Facts,
    /// Changed since the series was looked up.
    pub(in crate::sinks) has_changed: bool,
    pub(super) place: Option<Place>,
    /// Time of the last sample, since the epoch.
    pub(super) info_ms: i64,
    /// Last use, in minutes since the collector started.
    used_min: u64,
}

impl Job {
    fn new(record: &Arc<JobRecord>, facts: Facts) -> Self {
        let record = Arc::clone(record);
        Self { record, facts, has_changed: true, place: None, info_ms: i64::MIN, used_min: 0 }
    }
}

pub(in crate::sinks) struct Jobs {
    store: StoreUrl,
    /// None before the first use, and after an error.
    reader: Option<Reader>,
    known: HashMap<usize, Job>,
    /// Keyed by the store's key.
    stored: HashMap<i64, Facts>,
    now_min: u64,
}

const STORED_MAX: usize = 20_000;

impl Jobs {
    pub(in crate::sinks) fn new(store: StoreUrl) -> Self {
        Self { store, reader: None, known: HashMap::new(), stored: HashMap::new(), now_min: 0 }
    }

    /// Looks a job up in the store when it is seen first.
    pub(in crate::sinks) fn find(&mut self, record: &Arc<JobRecord>) -> &mut Job {
        let address = Arc::as_ptr(record) as usize;
        if !self.known.contains_key(&address) {
            let mut facts = record.key.get().map(|key| self.stored_facts(key)).unwrap_or_default();
            let descriptor = &record.descriptor;
            set(&mut facts.cluster, descriptor.cluster.as_ref());
            set(&mut facts.user, descriptor.owner.as_ref());
            set(&mut facts.uid, descriptor.owner_uid.as_ref());
            self.known.insert(address, Job::new(record, facts));
        }
        let job = self.known.entry(address).or_insert_with(|| Job::new(record, Facts::default()));
        job.used_min = self.now_min;
        job
    }

    fn stored_facts(&mut self, key: i64) -> Facts {
        if let Some(facts) = self.stored.get(&key) {
            return facts.clone();
        }
        let reader = match self.reader.take() {
            Some(reader) => Ok(reader),
            None => Reader::open(&self.store),
        };
        // Without the store only facts of frames are known.
        let Ok(mut reader) = reader else { return Facts::default() };
        let filter = JobFilter { job_key: Some(key), limit: 1, ..JobFilter::default() };
        let Ok(mut rows) = reader.jobs(&filter) else { return Facts::default() };
        self.reader = Some(reader);
        let mut facts = Facts::default();
        if let Some(row) = rows.pop() {
            set(&mut facts.cluster, row.cluster.as_ref());
            set(&mut facts.user, row.owner.as_ref());
            set(&mut facts.uid, row.owner_uid.as_ref());
            set(&mut facts.name, row.name.as_ref());
            set(&mut facts.partition, row.queue.as_ref());
            set(&mut facts.account, row.account.as_ref());
            set(&mut facts.display_id, row.display_id.as_ref());
        }
        if self.stored.len() >= STORED_MAX {
            self.stored.clear();
        }
        self.stored.insert(key, facts.clone());
        facts
    }

    pub(in crate::sinks) fn learn(&mut self, frame: &Accepted) {
        for (record, facts) in &frame.job_facts {
            self.change(record, |job| {
                set(&mut job.account, facts.account.as_ref());
                set(&mut job.partition, facts.queue.as_ref());
            });
        }
        for (record, details) in &frame.job_details {
            self.change(record, |job| {
                set(&mut job.name, details.name.as_ref().map(|name| name.as_str()));
                set(&mut job.display_id, details.display_id.as_ref());
            });
        }
        for (record, owner) in &frame.job_owners {
            self.change(record, |job| {
                set(&mut job.user, owner.name.as_ref());
                set(&mut job.uid, owner.uid.as_ref());
            });
        }
    }

    fn change(&mut self, record: &Arc<JobRecord>, change: impl Fn(&mut Facts)) {
        // The facts of the other nodes of the job are read again.
        record.key.get().map(|key| self.stored.remove(&key));
        let job = self.find(record);
        let before = job.facts.clone();
        change(&mut job.facts);
        job.has_changed |= job.facts != before;
    }

    /// Removes the jobs that `is_over` names, and returns the series of their facts.
    pub(in crate::sinks) fn end(&mut self, mut is_over: impl FnMut(&JobRecord) -> bool) -> Vec<Place> {
        let ended = self.known.extract_if(|_, job| is_over(&job.record));
        ended.filter_map(|(_, job)| job.place).collect()
    }

    /// Forgets jobs that were not found for `idle_min` minutes. It must be shorter than that of series, whose
    /// places jobs have.
    pub(in crate::sinks) fn forget_idle(&mut self, now_min: u64, idle_min: u64) {
        self.now_min = now_min;
        self.known.retain(|_, job| job.used_min >= now_min.saturating_sub(idle_min));
    }
}
