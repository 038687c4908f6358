//! The in-band dictionary: a name is sent once, then represented by its id.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry::Vacant;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::batch::Shape;
use crate::ledger::JobOwner;
use crate::series::{
    JobDescriptor, JobHandle, MetricDescriptor, MetricId, SeriesDescriptor, SeriesId, SessionDescriptor,
    ShapeDescriptor, ShapeId,
};

/// One line of the dictionary. An entry may refer to ids of earlier entries only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// The session with its node; the first entry of every session.
    Session(SessionDescriptor),
    /// A metric.
    Metric(MetricId, MetricDescriptor),
    /// A job.
    Job(JobHandle, JobDescriptor),
    /// A series.
    Series(SeriesId, SeriesDescriptor),
    /// The columns of a block.
    Shape(ShapeId, ShapeDescriptor),
}

/// The sender's dictionary: the entries that were announced and are still in use.
#[derive(Debug, Default)]
pub struct Announced {
    metrics: BTreeMap<MetricId, MetricDescriptor>,
    jobs: BTreeMap<JobHandle, JobDescriptor>,
    series: BTreeMap<SeriesId, SeriesDescriptor>,
    shapes: BTreeMap<ShapeId, Arc<Shape>>,
    version: u64,
}

impl Announced {
    /// Adds to `entries` what a receiver needs to decode a block of `shape`, if it was not announced yet.
    pub fn announce(&mut self, shape: &Arc<Shape>, entries: &mut Vec<Entry>) {
        if self.shapes.contains_key(&shape.id) {
            return;
        }
        self.version += 1;
        if let Some(job) = &shape.job {
            self.announce_job(job.handle, &job.descriptor, entries);
        }
        for column in &shape.columns {
            let (metric, descriptor) = &column.metric;
            if let Vacant(place) = self.metrics.entry(*metric) {
                place.insert(descriptor.clone());
                entries.push(Entry::Metric(*metric, descriptor.clone()));
            }
            if let Vacant(place) = self.series.entry(column.series) {
                let job = shape.job.as_ref().map(|job| job.handle);
                let series = SeriesDescriptor { metric: *metric, job, labels: column.labels.clone() };
                place.insert(series.clone());
                entries.push(Entry::Series(column.series, series));
            }
        }
        self.shapes.insert(shape.id, Arc::clone(shape));
        entries.push(Entry::Shape(shape.id, shape.descriptor()));
    }

    /// Adds the job's entry if it was not announced yet: an event may refer to a job without a block.
    pub fn announce_job(&mut self, handle: JobHandle, descriptor: &JobDescriptor, entries: &mut Vec<Entry>) {
        if let Vacant(place) = self.jobs.entry(handle) {
            place.insert(descriptor.clone());
            self.version += 1;
            entries.push(Entry::Job(handle, descriptor.clone()));
        }
    }

    /// Adds the owner to the job's entry, for receivers that request the dictionary again.
    pub fn learn_owner(&mut self, owner: &JobOwner) {
        if let Some(descriptor) = self.jobs.get_mut(&owner.job) {
            descriptor.owner_uid = descriptor.owner_uid.or(owner.uid);
            descriptor.owner = descriptor.owner.take().or_else(|| owner.name.clone());
            self.version += 1;
        }
    }

    /// Returns a number that changes whenever the result of [`Announced::all`] changes.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Returns true if the job was announced and is not retired.
    pub fn knows_job(&self, handle: JobHandle) -> bool {
        self.jobs.contains_key(&handle)
    }

    /// Returns all entries that were announced and are still in use, for a receiver without a dictionary.
    pub fn all(&self, session: &SessionDescriptor) -> Vec<Entry> {
        let session = std::iter::once(Entry::Session(session.clone()));
        let metrics = self.metrics.iter().map(|(id, metric)| Entry::Metric(*id, metric.clone()));
        let jobs = self.jobs.iter().map(|(handle, job)| Entry::Job(*handle, job.clone()));
        let series = self.series.iter().map(|(id, series)| Entry::Series(*id, series.clone()));
        let shapes = self.shapes.iter().map(|(id, shape)| Entry::Shape(*id, shape.descriptor()));
        session.chain(metrics).chain(jobs).chain(series).chain(shapes).collect()
    }

    /// Removes a job that has ended and whose frames are all acknowledged.
    pub fn retire_job(&mut self, handle: JobHandle) {
        self.version += 1;
        self.jobs.remove(&handle);
        self.series.retain(|_, series| series.job != Some(handle));
        self.shapes.retain(|_, shape| shape.job.as_ref().is_none_or(|job| job.handle != handle));
    }
}
