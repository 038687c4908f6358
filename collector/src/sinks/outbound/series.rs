//! Series that are sent: their selection, encoded labels and last times.

use std::collections::HashMap;
use std::sync::Arc;

use polymeter_proto::exposition::{LabelSet, Part, divisor};
use polymeter_proto::series::{Kind, Labels, MetricDescriptor};
use polymeter_store::accepted::SeriesRecord;

use super::config::OutboundConfig;
use super::facts::Facts;
use super::protocol::{Named, Protocol};
use super::request::{encode_labels, hash};
use super::spool::record::encode_times;
use super::sum::Sum;
use super::window::{Progress, Window};

/// Each series needs about 500 bytes.
const SERIES_MAX: usize = 4_000_000;

/// How long the last time of a series that is no longer offered is kept.
const TIMES_KEPT_MS: i64 = 86_400_000;

pub(super) fn shard_of(hash: u64, shards: usize) -> usize {
    usize::try_from((hash >> 32) % shards.max(1) as u64).unwrap_or_default()
}

/// Labels of a series, as a request has them.
fn encode(labels: LabelSet, protocol: &Protocol, named: Named<'_>) -> Vec<u8> {
    let mut pairs = labels.into_pairs();
    pairs.extend((protocol.names)(named).into_iter().map(|(name, value)| (name.to_owned(), value)));
    pairs.sort();
    encode_labels(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())))
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Identity<'a> {
    pub(super) node: &'a str,
    pub(super) job: Option<&'a str>,
    pub(super) metric: &'a MetricDescriptor,
    pub(super) labels: &'a Labels,
}

impl<'a> Identity<'a> {
    pub(super) fn of(record: &'a SeriesRecord) -> Self {
        Self {
            node: record.node().as_str(),
            job: record.job.as_ref().map(|job| job.descriptor.job_id.as_str()),
            metric: &record.metric,
            labels: &record.labels,
        }
    }
}

#[derive(Debug)]
pub(super) struct Selection(OutboundConfig);

impl Selection {
    pub(super) fn has_job(&self, node: &str, job: &str) -> bool {
        self.0.nodes.iter().any(|glob| glob.matches(node)) && self.0.jobs.iter().any(|glob| glob.matches(job))
    }

    pub(super) fn has(&self, series: Identity<'_>) -> bool {
        let is_of_job = match series.job {
            Some(job) => self.has_job(series.node, job),
            None => self.0.nodes.iter().any(|glob| glob.matches(series.node)),
        };
        is_of_job && self.0.metrics.iter().any(|selector| selector.matches(series.metric.name.as_str()))
    }

    pub(super) fn encode(&self, series: Identity<'_>, part: Part) -> Vec<u8> {
        let labels = LabelSet::new(series.node, series.job, &self.0.labels, series.labels);
        encode(labels, self.0.protocol, Named::Metric(series.metric, part))
    }

    pub(super) fn encode_facts(&self, node: &str, job: &str, facts: &Facts) -> Vec<u8> {
        let labels = LabelSet::new(node, Some(job), &self.0.labels, &Labels::default());
        encode(facts.added_to(labels), self.0.protocol, Named::JobInfo)
    }
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) labels: Vec<u8>,
    hash: u64,
    pub(super) shard: usize,
    pub(super) progress: Progress,
    pub(super) divisor: f64,
    /// None for a gauge, and where it is not sent.
    pub(super) sum: Option<Sum>,
    /// None without windows.
    pub(super) windows: Option<Box<WindowSeries>>,
    pub(super) is_ended: bool,
    /// Last offer, in minutes since the collector started.
    used_min: u64,
}

#[derive(Debug)]
pub(super) struct WindowSeries {
    pub(super) min_labels: Vec<u8>,
    pub(super) max_labels: Vec<u8>,
    pub(super) open: Option<Window>,
}

pub(super) type Place = usize;

#[derive(Debug)]
struct Known {
    /// Keeps the address in use, so that it identifies the record.
    record: Arc<SeriesRecord>,
    /// None if the series is not selected.
    place: Option<Place>,
    used_min: u64,
}

#[derive(Debug)]
pub(super) struct SeriesTable {
    pub(super) selection: Selection,
    shards: usize,
    by_record: HashMap<usize, Known>,
    by_hash: HashMap<u64, Place>,
    entries: Vec<Option<Entry>>,
    free: Vec<Place>,
    /// Last times of series without an entry, in milliseconds since the epoch.
    times: HashMap<u64, i64>,
    now_min: u64,
}

impl SeriesTable {
    /// `times` has the last times of series in the spool.
    pub(super) fn new(config: OutboundConfig, shards: usize, times: HashMap<u64, i64>) -> Self {
        Self {
            selection: Selection(config),
            shards: shards.max(1),
            by_record: HashMap::new(),
            by_hash: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            times,
            now_min: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_hash.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= SERIES_MAX
    }

    /// Keeps an entry that no record names.
    pub(super) fn keep(&mut self, place: Place) {
        let now_min = self.now_min;
        if let Some(entry) = self.entry(place) {
            entry.used_min = now_min;
        }
    }

    /// Last times of series that were not offered since the start.
    pub(super) const fn times(&self) -> &HashMap<u64, i64> {
        &self.times
    }

    /// None if the series is not selected, or there are too many.
    pub(super) fn find(&mut self, record: &Arc<SeriesRecord>) -> Option<Place> {
        let address = Arc::as_ptr(record) as usize;
        if let Some(known) = self.by_record.get_mut(&address) {
            known.used_min = self.now_min;
            if let Some(entry) = known.place.and_then(|place| self.entries.get_mut(place)?.as_mut()) {
                entry.used_min = self.now_min;
            }
            return known.place;
        }
        let place = self.place_of(Identity::of(record));
        self.by_record.insert(address, Known { record: Arc::clone(record), place, used_min: self.now_min });
        place
    }

    /// Creates the entry if it is missing; none if the series is not selected, or there are too many.
    pub(super) fn place_of(&mut self, series: Identity<'_>) -> Option<Place> {
        if !self.selection.has(series) {
            return None;
        }
        let labels = self.selection.encode(series, Part::Last);
        let is_sum = self.selection.0.protocol.has_starts && series.metric.kind == Kind::Counter;
        self.place_of_labels(labels, divisor(series.metric.unit), is_sum.then(Sum::default))
    }

    /// [`Self::place_of`] for encoded labels.
    pub(super) fn place_of_labels(
        &mut self,
        labels: Vec<u8>,
        divisor: f64,
        sum: Option<Sum>,
    ) -> Option<Place> {
        let hash = hash(&labels);
        if let Some(place) = self.by_hash.get(&hash) {
            return Some(*place);
        }
        if self.is_full() {
            return None;
        }
        let last_ms = self.times.remove(&hash).unwrap_or(i64::MIN);
        let entry = Entry {
            labels,
            hash,
            shard: shard_of(hash, self.shards),
            progress: Progress { last_ms, caught_up_ms: i64::MIN },
            divisor,
            sum,
            windows: None,
            is_ended: false,
            used_min: self.now_min,
        };
        let place = self.free.pop().unwrap_or(self.entries.len());
        if place == self.entries.len() {
            self.entries.push(Some(entry));
        } else if let Some(free) = self.entries.get_mut(place) {
            *free = Some(entry);
        }
        self.by_hash.insert(hash, place);
        Some(place)
    }

    pub(super) fn entry(&mut self, place: Place) -> Option<&mut Entry> {
        self.entries.get_mut(place)?.as_mut()
    }

    /// Gives a series windows: the labels of the least and greatest values.
    pub(super) fn begin_windows(&mut self, place: Place, series: Identity<'_>) {
        let min_labels = self.selection.encode(series, Part::Min);
        let max_labels = self.selection.encode(series, Part::Max);
        if let Some(entry) = self.entry(place) {
            entry.windows = Some(Box::new(WindowSeries { min_labels, max_labels, open: None }));
        }
    }

    /// Removes the records that `is_over` names, and returns their entries.
    pub(super) fn end(&mut self, mut is_over: impl FnMut(&SeriesRecord) -> bool) -> Vec<Place> {
        let ended = self.by_record.extract_if(|_, known| is_over(&known.record));
        ended.filter_map(|(_, known)| known.place).collect()
    }

    /// Entries with an open window that began before `ms`.
    pub(super) fn open_windows(&self, before_ms: i64) -> Vec<Place> {
        let entries = self.entries.iter().enumerate();
        let open = entries.filter(|(_, entry)| {
            let windows = entry.as_ref().and_then(|entry| entry.windows.as_ref());
            windows.and_then(|windows| windows.open).is_some_and(|open| open.ms < before_ms)
        });
        open.map(|(place, _)| place).collect()
    }

    /// Forgets records and series that were not offered for `idle_min` minutes, except for the last times.
    pub(super) fn forget_idle(&mut self, now_min: u64, idle_min: u64) {
        self.now_min = now_min;
        let oldest = now_min.saturating_sub(idle_min);
        self.by_record.retain(|_, known| known.used_min >= oldest);
        for (place, slot) in self.entries.iter_mut().enumerate() {
            if let Some(entry) = slot.take_if(|entry| entry.used_min < oldest) {
                self.by_hash.remove(&entry.hash);
                self.times.insert(entry.hash, entry.progress.last_ms);
                self.free.push(place);
            }
        }
        // A record may still name the place of an entry that was shared, and is gone.
        let (by_hash, entries) = (&self.by_hash, &self.entries);
        self.by_record.retain(|_, known| {
            known.place.is_none_or(|place| {
                let entry = entries.get(place).and_then(Option::as_ref);
                entry.is_some_and(|entry| by_hash.get(&entry.hash) == Some(&place))
            })
        });
        let newest_ms = self.newest_ms();
        self.times.retain(|_, last_ms| newest_ms.saturating_sub(*last_ms) < TIMES_KEPT_MS);
    }

    fn newest_ms(&self) -> i64 {
        let of_entries = self.entries.iter().flatten().map(|entry| entry.progress.last_ms);
        of_entries.chain(self.times.values().copied()).max().unwrap_or_default()
    }

    pub(super) fn encode_times(&self, shard: usize) -> Vec<u8> {
        let of_entries = self.entries.iter().flatten().map(|entry| (entry.hash, entry.progress.last_ms));
        let of_others = self.times.iter().map(|(hash, last_ms)| (*hash, *last_ms));
        encode_times(of_entries.chain(of_others).filter(|(hash, _)| shard_of(*hash, self.shards) == shard))
    }
}
