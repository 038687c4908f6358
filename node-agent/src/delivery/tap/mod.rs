//! The tap: passes the samples of each batch to watchers, and the newest values to the page of metrics,
//! before the batch goes into a frame.
//!
//! The sender calls it and never waits: a watcher that is slower than the samples misses some, and gets their
//! number. The sampler is not involved.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

use polymeter_proto::batch::{Batch, Column, Shape};
use polymeter_proto::ledger::Event;
use polymeter_proto::name::Selector;
use polymeter_proto::series::{JobHandle, ShapeId};
use tokio::sync::mpsc;

use crate::mutex::lock;

mod newest;

pub(crate) use self::newest::{NewestValues, Snapshot};

/// Most samples that wait for one watcher: a megabyte, and the most of one batch.
const SAMPLES_WAITING: usize = 64 * 1024;

/// Most batches that wait for one watcher, of any size.
const BATCHES_WAITING: usize = 64;

/// Most shapes that are cached for one watcher: far more than a job has at once. Beyond that the cache is
/// cleared.
const SHAPES: usize = 1024;

#[derive(Debug)]
pub struct Excerpt {
    shape: Arc<Shape>,
    column: usize,
    /// Time at which the values were read, in microseconds since the epoch.
    pub times_us: Vec<i64>,
    pub values: Vec<f64>,
}

impl Excerpt {
    pub fn series(&self) -> Option<&Column> {
        self.shape.columns.get(self.column)
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }
}

/// Counts samples that wait for one watcher and that it missed. Both sides share it.
#[derive(Debug, Default)]
struct Backlog {
    waiting: AtomicUsize,
    lagged: AtomicU64,
}

#[derive(Debug)]
struct Watcher {
    id: u64,
    job: Option<JobHandle>,
    /// All metrics if empty.
    selectors: Vec<Selector>,
    /// Selected columns of each shape, cached so that selectors are matched once per shape and not per batch.
    chosen: BTreeMap<ShapeId, Vec<usize>>,
    queue: mpsc::Sender<Vec<Excerpt>>,
    backlog: Arc<Backlog>,
}

impl Watcher {
    fn wants(&self, metric: &str) -> bool {
        self.selectors.is_empty() || self.selectors.iter().any(|selector| selector.matches(metric))
    }

    fn choose(&mut self, shape: &Shape) -> Vec<usize> {
        if shape.job.as_ref().map(|job| job.handle) != self.job {
            return Vec::new();
        }
        if let Some(columns) = self.chosen.get(&shape.id) {
            return columns.clone();
        }
        let wanted = shape.columns.iter().enumerate();
        let wanted = wanted.filter(|(_, column)| self.wants(column.metric.1.name.as_str()));
        let columns: Vec<usize> = wanted.map(|(column, _)| column).collect();
        if self.chosen.len() >= SHAPES {
            self.chosen.clear();
        }
        self.chosen.insert(shape.id, columns.clone());
        columns
    }

    fn offer(&mut self, batch: &Batch) {
        let mut excerpts = self.excerpts(batch);
        let waiting = self.backlog.waiting.load(Acquire);
        let mut room = SAMPLES_WAITING.saturating_sub(waiting);
        let mut lagged = 0;
        excerpts.retain(|excerpt| {
            let fits = room.checked_sub(excerpt.values.len());
            room = fits.unwrap_or(room);
            lagged += if fits.is_some() { 0 } else { excerpt.values.len() };
            fits.is_some()
        });
        let offered: usize = excerpts.iter().map(|excerpt| excerpt.values.len()).sum();
        if offered > 0 {
            // Counted before the receiver can take them, so that the count never falls below zero.
            self.backlog.waiting.fetch_add(offered, AcqRel);
            if self.queue.try_send(excerpts).is_err() {
                self.backlog.waiting.fetch_sub(offered, AcqRel);
                lagged += offered;
            }
        }
        self.backlog.lagged.fetch_add(lagged as u64, Relaxed);
    }

    fn excerpts(&mut self, batch: &Batch) -> Vec<Excerpt> {
        let mut excerpts: Vec<Excerpt> = Vec::new();
        // For each shape of the batch: the position of its first excerpt, and their columns.
        let mut wanted: Vec<(usize, Vec<usize>)> = Vec::new();
        for shape in batch.shapes() {
            let columns = self.choose(shape);
            let begin = excerpts.len();
            excerpts.extend(columns.iter().map(|column| Excerpt {
                shape: Arc::clone(shape),
                column: *column,
                times_us: Vec::new(),
                values: Vec::new(),
            }));
            wanted.push((begin, columns));
        }
        for row in batch.recorded() {
            let Some((begin, columns)) = wanted.get(row.shape) else { continue };
            for (excerpt, column) in excerpts.iter_mut().skip(*begin).zip(columns) {
                let Some(bits) = row.value(*column) else { continue };
                let Some(series) = excerpt.shape.columns.get(*column) else { continue };
                excerpt.values.push(series.metric.1.number.to_f64(bits));
                excerpt.times_us.push(row.time_us);
            }
        }
        excerpts.retain(|excerpt| !excerpt.values.is_empty());
        excerpts
    }
}

#[derive(Debug, Default)]
pub struct Tap {
    watchers: Mutex<Vec<Watcher>>,
    count: AtomicUsize,
    next_id: AtomicU64,
    /// None unless the page of metrics is served.
    newest: Option<NewestValues>,
}

impl Tap {
    pub(crate) fn with_newest(newest: Option<NewestValues>) -> Self {
        Self { newest, ..Self::default() }
    }

    pub(crate) const fn newest(&self) -> Option<&NewestValues> {
        self.newest.as_ref()
    }

    pub fn is_watched(&self) -> bool {
        self.count.load(Acquire) > 0
    }

    /// Watches metrics that match a selector, or all if there is none.
    pub fn watch(self: &Arc<Self>, job: Option<JobHandle>, selectors: Vec<Selector>) -> WatchReceiver {
        let (queue, receiver) = mpsc::channel(BATCHES_WAITING);
        let backlog = Arc::new(Backlog::default());
        let id = self.next_id.fetch_add(1, Relaxed);
        let chosen = BTreeMap::new();
        let watcher = Watcher { id, job, selectors, chosen, queue, backlog: Arc::clone(&backlog) };
        self.change(|watchers| watchers.push(watcher));
        WatchReceiver { id, tap: Arc::clone(self), queue: receiver, backlog }
    }

    pub fn publish(&self, batch: &Batch) {
        if let Some(newest) = &self.newest {
            newest.publish(batch);
        }
        if self.is_watched() && !batch.is_empty() {
            lock(&self.watchers).iter_mut().for_each(|watcher| watcher.offer(batch));
        }
    }

    /// Takes note of what follows the samples.
    pub fn note(&self, event: &Event) {
        if let Some(newest) = &self.newest {
            newest.note(event);
        }
        if let Event::JobEnded { job, .. } = event {
            self.end(*job);
        }
    }

    fn end(&self, job: JobHandle) {
        if self.is_watched() {
            self.change(|watchers| watchers.retain(|watcher| watcher.job != Some(job)));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Watcher>)) {
        let mut watchers = lock(&self.watchers);
        change(&mut watchers);
        self.count.store(watchers.len(), Relaxed);
    }
}

/// Ends the watch when it is dropped.
#[derive(Debug)]
pub struct WatchReceiver {
    id: u64,
    tap: Arc<Tap>,
    queue: mpsc::Receiver<Vec<Excerpt>>,
    backlog: Arc<Backlog>,
}

impl WatchReceiver {
    /// None when the job has ended and all its samples were received.
    pub async fn next(&mut self) -> Option<Vec<Excerpt>> {
        let excerpts = self.queue.recv().await?;
        let samples = excerpts.iter().map(|excerpt| excerpt.values.len()).sum();
        self.backlog.waiting.fetch_sub(samples, AcqRel);
        Some(excerpts)
    }

    /// Samples missed since the last call.
    pub fn take_lagged(&self) -> u64 {
        self.backlog.lagged.swap(0, Relaxed)
    }
}

impl Drop for WatchReceiver {
    fn drop(&mut self) {
        self.tap.change(|watchers| watchers.retain(|watcher| watcher.id != self.id));
    }
}

#[cfg(test)]
mod tests;
