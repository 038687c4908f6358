//! In-band dictionary: a name is sent once, then represented by its id.

use std::collections::btree_map::Entry::Vacant;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::batch::{Column, Shape};
use crate::ledger::JobOwner;
use crate::limits;
use crate::series::{
    JobDescriptor, JobHandle, MetricDescriptor, MetricId, SeriesDescriptor, SeriesId, SessionDescriptor,
    ShapeDescriptor, ShapeId,
};
use crate::stacks::{FunctionDescriptor, FunctionId, StackDescriptor, StackId};

/// Line of the dictionary. An entry may refer to ids of earlier entries only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// Session with its node; the first entry of every session.
    Session(SessionDescriptor),
    Metric(MetricId, MetricDescriptor),
    Job(JobHandle, JobDescriptor),
    Series(SeriesId, SeriesDescriptor),
    Shape(ShapeId, ShapeDescriptor),
    Function(FunctionId, FunctionDescriptor),
    Stack(StackId, StackDescriptor),
}

/// Dictionary of a sender: the entries that were announced and are still in use.
#[derive(Debug, Default)]
pub struct Announced {
    metrics: BTreeMap<MetricId, MetricDescriptor>,
    jobs: BTreeMap<JobHandle, JobDescriptor>,
    /// Their descriptors are those of the columns of `shapes`.
    series: BTreeSet<SeriesId>,
    shapes: BTreeMap<ShapeId, Arc<Shape>>,
    functions: BTreeMap<FunctionId, FunctionDescriptor>,
    function_ids: HashMap<FunctionDescriptor, FunctionId>,
    functions_of_jobs: BTreeMap<JobHandle, usize>,
    next_function: u32,
    /// An id is larger than that of its parent.
    stacks: BTreeMap<StackId, StackDescriptor>,
    stack_ids: HashMap<StackDescriptor, StackId>,
    stacks_of_jobs: BTreeMap<JobHandle, usize>,
    next_stack: u32,
    version: u64,
}

fn descriptor_of(shape: &Shape, column: &Column) -> SeriesDescriptor {
    let job = shape.job.as_ref().map(|job| job.handle);
    SeriesDescriptor { metric: column.metric.0, job, labels: column.labels.clone() }
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
            self.announce_metric(*metric, descriptor, entries);
            if self.series.insert(column.series) {
                entries.push(Entry::Series(column.series, descriptor_of(shape, column)));
            }
        }
        self.shapes.insert(shape.id, Arc::clone(shape));
        entries.push(Entry::Shape(shape.id, shape.descriptor()));
    }

    /// Adds the metric's entry if it was not announced yet: call stacks are not in a block.
    pub fn announce_metric(&mut self, id: MetricId, metric: &MetricDescriptor, entries: &mut Vec<Entry>) {
        if let Vacant(place) = self.metrics.entry(id) {
            place.insert(metric.clone());
            self.version += 1;
            entries.push(Entry::Metric(id, metric.clone()));
        }
    }

    pub fn metric(&self, id: MetricId) -> Option<&MetricDescriptor> {
        self.metrics.get(&id)
    }

    /// Returns the id of a function of an announced job, and adds its entry if it was not announced yet.
    /// Returns none if there is no room: [`limits::JOB_FUNCTIONS`], [`limits::SESSION_FUNCTIONS`].
    pub fn announce_function(
        &mut self,
        function: &FunctionDescriptor,
        entries: &mut Vec<Entry>,
    ) -> Option<FunctionId> {
        if let Some(id) = self.function_ids.get(function) {
            return Some(*id);
        }
        let of_job = self.functions_of_jobs.entry(function.job).or_default();
        if *of_job >= limits::JOB_FUNCTIONS || self.functions.len() >= limits::SESSION_FUNCTIONS {
            return None;
        }
        let id = FunctionId(self.next_function);
        self.next_function = self.next_function.checked_add(1)?;
        *of_job += 1;
        self.functions.insert(id, function.clone());
        self.function_ids.insert(function.clone(), id);
        self.version += 1;
        entries.push(Entry::Function(id, function.clone()));
        Some(id)
    }

    /// Returns the id of a stack of an announced function and parent, and adds its entry if it was not
    /// announced yet. Returns none if there is no room: [`limits::JOB_STACKS`], [`limits::SESSION_STACKS`].
    pub fn announce_stack(&mut self, stack: StackDescriptor, entries: &mut Vec<Entry>) -> Option<StackId> {
        if let Some(id) = self.stack_ids.get(&stack) {
            return Some(*id);
        }
        let job = self.functions.get(&stack.function)?.job;
        let of_job = self.stacks_of_jobs.entry(job).or_default();
        if *of_job >= limits::JOB_STACKS || self.stacks.len() >= limits::SESSION_STACKS {
            return None;
        }
        let id = StackId(self.next_stack);
        self.next_stack = self.next_stack.checked_add(1)?;
        *of_job += 1;
        self.stacks.insert(id, stack);
        self.stack_ids.insert(stack, id);
        self.version += 1;
        entries.push(Entry::Stack(id, stack));
        Some(id)
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

    pub fn knows_job(&self, handle: JobHandle) -> bool {
        self.jobs.contains_key(&handle)
    }

    /// Returns all announced entries that are still in use, for a receiver without a dictionary.
    pub fn all(&self, session: &SessionDescriptor) -> Vec<Entry> {
        let session = std::iter::once(Entry::Session(session.clone()));
        let metrics = self.metrics.iter().map(|(id, metric)| Entry::Metric(*id, metric.clone()));
        let jobs = self.jobs.iter().map(|(handle, job)| Entry::Job(*handle, job.clone()));
        let columns =
            self.shapes.values().flat_map(|shape| shape.columns.iter().map(move |column| (shape, column)));
        let mut all_series = BTreeMap::new();
        for (shape, column) in columns {
            all_series.entry(column.series).or_insert_with(|| descriptor_of(shape, column));
        }
        let series = all_series.into_iter().map(|(id, series)| Entry::Series(id, series));
        let shapes = self.shapes.iter().map(|(id, shape)| Entry::Shape(*id, shape.descriptor()));
        let functions = self.functions.iter().map(|(id, function)| Entry::Function(*id, function.clone()));
        let stacks = self.stacks.iter().map(|(id, stack)| Entry::Stack(*id, *stack));
        let series = series.chain(shapes);
        session.chain(metrics).chain(jobs).chain(series).chain(functions).chain(stacks).collect()
    }

    /// Returns the shapes that only this dictionary still has: no further frame has a block of them.
    pub fn unused_shapes(&self) -> Vec<ShapeId> {
        let unused = self.shapes.iter().filter(|(_, shape)| Arc::strong_count(shape) == 1);
        unused.map(|(id, _)| *id).collect()
    }

    /// Removes shapes that are unused and whose frames are all acknowledged.
    pub fn retire_shapes(&mut self, unused: &[ShapeId]) {
        for id in unused {
            self.version += u64::from(self.shapes.remove(id).is_some());
        }
    }

    /// Removes a job that has ended and whose frames are all acknowledged.
    pub fn retire_job(&mut self, handle: JobHandle) {
        self.version += 1;
        self.jobs.remove(&handle);
        let series = &mut self.series;
        self.shapes.retain(|_, shape| {
            let is_other = shape.job.as_ref().is_none_or(|job| job.handle != handle);
            if !is_other {
                for column in &shape.columns {
                    series.remove(&column.series);
                }
            }
            is_other
        });
        if self.functions_of_jobs.remove(&handle).is_some() {
            self.stacks_of_jobs.remove(&handle);
            self.functions.retain(|_, function| function.job != handle);
            self.function_ids.retain(|function, _| function.job != handle);
            let functions = &self.functions;
            self.stacks.retain(|_, stack| functions.contains_key(&stack.function));
            self.stack_ids.retain(|stack, _| functions.contains_key(&stack.function));
        }
    }
}
