//! Newest value of each series, for the page of metrics.
//!
//! The sender puts values in, once for each series of a batch. Readers copy them out and format the copy, so
//! that the sender waits for a copy at most, and the sampler for nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use polymeter_proto::batch::{Batch, Column, Shape};
use polymeter_proto::ledger::{Event, JobOwner, PlanChange};
use polymeter_proto::series::{JobHandle, Labels, SeriesId, Unit};
use polymeter_proto::step_level::StepLevel;

use crate::mutex::lock;

/// Most series that are kept: more than a node of 1,000 CPUs has, in about 10 MB.
const SERIES_MAX: usize = 100_000;

/// Periods for which a value is the newest one. Then its source has ended, or reads nothing.
const PERIODS_KEPT: i64 = 3;

/// How long a value from a program is kept, whose period is unknown. Prometheus looks back as long.
const SUPPLIED_KEPT_US: i64 = 300_000_000;

#[derive(Debug, Clone)]
pub(crate) struct Newest {
    shape: Arc<Shape>,
    column: usize,
    pub(crate) time_us: i64,
    pub(crate) value: f64,
}

impl Newest {
    pub(crate) fn series(&self) -> Option<&Column> {
        self.shape.columns.get(self.column)
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// How long the value counts, in microseconds, if batches arrive at once.
    fn lifetime_us(&self) -> i64 {
        let is_supplied = self.series().is_some_and(|series| series.metric.1.unit == Unit::Labelled);
        let period_us = i64::try_from(self.shape.period.as_nanos() / 1000).unwrap_or(i64::MAX);
        let lifetime_us = period_us.saturating_mul(PERIODS_KEPT);
        if is_supplied { lifetime_us.max(SUPPLIED_KEPT_US) } else { lifetime_us }
    }
}

#[derive(Debug, Default)]
struct Table {
    series: HashMap<SeriesId, Newest>,
    /// Owners that became known after their jobs were announced.
    owners: BTreeMap<JobHandle, JobOwner>,
    refused: u64,
}

#[derive(Debug)]
pub(crate) struct NewestValues {
    table: Mutex<Table>,
    /// How long a value may be under way, in microseconds.
    delay_us: i64,
}

/// Copy of what is known at one time.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// In the order of the series' ids.
    pub(crate) values: Vec<Newest>,
    pub(crate) owners: BTreeMap<JobHandle, JobOwner>,
    /// Series that had no room.
    pub(crate) refused: u64,
}

impl NewestValues {
    /// `flush_us` is the time between two batches.
    pub(crate) fn new(flush_us: i64) -> Self {
        const MARGIN_US: i64 = 5_000_000;
        let delay_us = flush_us.saturating_mul(2).saturating_add(MARGIN_US);
        Self { table: Mutex::new(Table::default()), delay_us }
    }

    pub(super) fn publish(&self, batch: &Batch) {
        let mut newest: Vec<Vec<Option<(i64, u64)>>> =
            batch.shapes().iter().map(|shape| vec![None; shape.columns.len()]).collect();
        for row in batch.recorded() {
            let Some(columns) = newest.get_mut(row.shape) else { continue };
            for (column, newest) in columns.iter_mut().enumerate() {
                if let Some(bits) = row.value(column) {
                    *newest = Some((row.time_us, bits));
                }
            }
        }
        let mut table = lock(&self.table);
        for (shape, newest) in batch.shapes().iter().zip(newest) {
            for (column, newest) in newest.into_iter().enumerate() {
                if let Some((time_us, bits)) = newest {
                    table.put(shape, column, time_us, bits);
                }
            }
        }
    }

    pub(super) fn note(&self, event: &Event) {
        match event {
            Event::JobEnded { job, .. } => lock(&self.table).end(*job),
            Event::JobOwner(owner) => {
                lock(&self.table).owners.insert(owner.job, owner.clone());
            }
            Event::PlanChange(change) if change.new.is_none() => lock(&self.table).stop(change),
            Event::PlanChange(_)
            | Event::Mark(_)
            | Event::JobFacts(_)
            | Event::RequestRefused(_)
            | Event::SessionEnded { .. }
            | Event::JobDetails(_)
            | Event::Kept(_)
            | Event::Fired(_) => {}
        }
    }

    /// Forgets values that are too old at `now_us`, and copies the others.
    pub(crate) fn snapshot(&self, now_us: i64) -> Snapshot {
        let mut table = lock(&self.table);
        let oldest_us =
            |newest: &Newest| now_us.saturating_sub(newest.lifetime_us()).saturating_sub(self.delay_us);
        table.series.retain(|_, newest| newest.time_us >= oldest_us(newest));
        let mut snapshot = Snapshot {
            values: table.series.values().cloned().collect(),
            owners: table.owners.clone(),
            refused: table.refused,
        };
        drop(table);
        snapshot.values.sort_unstable_by_key(|newest| newest.series().map(|series| series.series));
        snapshot
    }
}

impl Table {
    fn put(&mut self, shape: &Arc<Shape>, column: usize, time_us: i64, bits: u64) {
        let Some(series) = shape.columns.get(column) else { return };
        let value = series.metric.1.number.to_f64(bits);
        if self.series.len() >= SERIES_MAX && !self.series.contains_key(&series.series) {
            self.refused = self.refused.saturating_add(1);
            return;
        }
        self.series.insert(series.series, Newest { shape: Arc::clone(shape), column, time_us, value });
    }

    fn end(&mut self, job: JobHandle) {
        self.series.retain(|_, newest| job_of(newest) != Some(job));
        self.owners.remove(&job);
    }

    /// Removes the series of a metric that is no longer sampled.
    fn stop(&mut self, change: &PlanChange) {
        self.series.retain(|_, newest| {
            let Some(series) = newest.series() else { return false };
            series.metric.1.name != change.metric
                || job_of(newest) != change.job
                || level_of(&series.labels) != change.level
        });
    }
}

fn job_of(newest: &Newest) -> Option<JobHandle> {
    newest.shape.job.as_ref().map(|job| job.handle)
}

fn level_of(labels: &Labels) -> Option<StepLevel> {
    StepLevel::of_labels(|label| labels.get(label).is_some())
}
