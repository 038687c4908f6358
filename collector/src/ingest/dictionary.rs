//! Dictionary of one session: the records that its ids represent.

use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use polymeter_proto::period::Period;
use polymeter_proto::series::{
    Identifier, JobDescriptor, JobHandle, MetricDescriptor, MetricId, SeriesDescriptor, SessionDescriptor,
    SessionId, ShapeDescriptor, ShapeId,
};
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::Block;
use polymeter_store::accepted::{Accepted, JobRecord, LedgerLine, SeriesRecord, SessionRecord, StoreId};

use super::cost::{ENTRY_BYTES, cost, job_cost, series_cost, shape_cost};
use super::fault::{AGAIN, Fault, learn};
use super::id_table::IdTable;
use super::shared_rules::Shared;
use super::stack_table::StackTable;
use super::windows;
use crate::limits;

/// Ended jobs that are kept, since their last tallies may follow their end.
const ENDED_JOBS: usize = 256;

#[derive(Debug)]
pub(super) struct Shape {
    pub(super) line: Arc<LedgerLine>,
    /// Period of the samples if its rows summarise windows.
    inner_period: Option<Period>,
    pub(super) columns: Vec<Arc<SeriesRecord>>,
}

impl Shape {
    pub(super) fn fits(&self, block: &Block) -> Result<(), Fault> {
        if self.columns.len() != block.shape_columns {
            return Err(Fault::Contradiction(
                "inconsistent frame: a block and its shape differ in the number of columns",
            ));
        }
        if block.columns.iter().any(|column| *column >= self.columns.len()) {
            return Err(Fault::Contradiction(
                "inconsistent frame: a block refers to a column that its shape does not have",
            ));
        }
        if block.windows.is_some() != self.inner_period.is_some() {
            return Err(Fault::Contradiction(
                "inconsistent frame: only one of a block and its shape has windows",
            ));
        }
        match &block.windows {
            Some(found) => windows::check(block, found, &self.columns),
            None => Ok(()),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Dictionary {
    session: Option<Arc<SessionRecord>>,
    metrics: IdTable<Arc<MetricDescriptor>>,
    pub(super) jobs: HashMap<JobHandle, Arc<JobRecord>>,
    series: IdTable<Arc<SeriesRecord>>,
    pub(super) shapes: IdTable<Shape>,
    pub(super) stacks: StackTable,
    lines: HashMap<(Option<JobHandle>, Identifier), Arc<LedgerLine>>,
    /// Owners of jobs that were announced without one.
    owners: HashMap<JobHandle, u32>,
    ended: VecDeque<JobHandle>,
    /// Times of the oldest and the newest sample of each job, in microseconds since the epoch.
    sampled_us: HashMap<JobHandle, (i64, i64)>,
    has_changed: bool,
    bytes: usize,
}

impl Dictionary {
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn session(&self) -> Result<&Arc<SessionRecord>, Fault> {
        self.session.as_ref().ok_or(Fault::Unknown("session"))
    }

    pub(super) const fn take_changes(&mut self) -> bool {
        std::mem::replace(&mut self.has_changed, false)
    }

    /// Jobs that have not ended, with the user ids of their owners where they are known.
    pub(super) fn running(&self) -> impl Iterator<Item = (&Identifier, Option<u32>)> {
        let running = self.jobs.iter().filter(|(handle, _)| !self.ended.contains(handle));
        running.map(|(handle, job)| {
            let learnt = self.owners.get(handle).copied();
            (&job.descriptor.job_id, job.descriptor.owner_uid.or(learnt))
        })
    }

    /// Records the owner of a job that was announced without one. A known owner is never replaced.
    pub(super) fn learn_owner(&mut self, job: JobHandle, uid: Option<u32>) {
        let is_unknown = self.jobs.get(&job).is_some_and(|job| job.descriptor.owner_uid.is_none());
        if let (true, Some(uid), Slot::Vacant(place)) = (is_unknown, uid, self.owners.entry(job)) {
            place.insert(uid);
            self.has_changed = true;
        }
    }

    /// Bounds the times of the jobs of a frame by their samples as well as by their events: the clock of the
    /// node may have been set between both.
    pub(super) fn bound_jobs(&mut self, accepted: &mut Accepted) {
        for samples in &accepted.samples {
            let Some((job, (first_us, last_us))) = samples.line.job.as_ref().zip(samples.span_us()) else {
                continue;
            };
            let started_us = job.descriptor.started_us;
            let known = self.sampled_us.entry(job.handle).or_insert((started_us, last_us));
            if first_us < known.0 {
                accepted.job_starts.push((Arc::clone(job), first_us));
            }
            *known = (known.0.min(first_us), known.1.max(last_us));
        }
        for (job, at_us) in &mut accepted.job_ends {
            let (_, last_us) = self.sampled_us.get(&job.handle).copied().unwrap_or((0, i64::MIN));
            *at_us = last_us.max(*at_us);
        }
    }

    /// The agent announces only entries that it still uses.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Idempotent.
    pub(super) fn add(&mut self, id: SessionId, entry: Entry, shared: &mut Shared) -> Result<(), Fault> {
        let bytes = cost(&entry);
        if self.bytes + bytes > limits::SESSION_DICTIONARY_BYTES - limits::SESSION_LINES_BYTES {
            return Err(Fault::Full);
        }
        let new = match entry {
            Entry::Session(descriptor) => self.add_session(id, descriptor)?,
            Entry::Metric(id, descriptor) => learn(
                &mut self.metrics,
                id.0,
                descriptor,
                |known, new| **known == *new,
                |descriptor| shared.metrics.share(descriptor),
            )?,
            Entry::Job(handle, descriptor) => self.add_job(handle, descriptor)?,
            Entry::Series(id, descriptor) => self.add_series(id.0, descriptor, shared)?,
            Entry::Shape(id, descriptor) => self.add_shape(id, descriptor)?,
            Entry::Function(id, function) => {
                let job = self.job(function.job)?;
                self.stacks.add_function(id.0, job, function)?
            }
            Entry::Stack(id, stack) => self.stacks.add_stack(id.0, stack)?,
        };
        if new {
            self.bytes += bytes;
        }
        Ok(())
    }

    fn add_session(&mut self, id: SessionId, descriptor: SessionDescriptor) -> Result<bool, Fault> {
        match &self.session {
            Some(known) if known.descriptor == descriptor => Ok(false),
            Some(_) => {
                Err(Fault::Contradiction("the agent changed the name of its node while it ran; restart it"))
            }
            None => {
                self.session = Some(Arc::new(SessionRecord { id, descriptor }));
                self.has_changed = true;
                Ok(true)
            }
        }
    }

    fn add_shape(&mut self, id: ShapeId, descriptor: ShapeDescriptor) -> Result<bool, Fault> {
        let columns = descriptor
            .series
            .iter()
            .map(|id| self.series.get(id.0).cloned().ok_or(Fault::Unknown("series")))
            .collect::<Result<Vec<_>, _>>()?;
        let job_of = |series: &Arc<SeriesRecord>| series.job.as_ref().map(|job| job.handle);
        let job = columns.first().and_then(job_of);
        if columns.iter().any(|series| job_of(series) != job) {
            return Err(Fault::Contradiction("inconsistent frame: a shape contains series of several jobs"));
        }
        let line = self.line(job, descriptor.source)?;
        learn(
            &mut self.shapes,
            id.0,
            Shape { line, inner_period: descriptor.inner_period, columns },
            is_same_shape,
            |new| new,
        )
    }

    /// Line of the ledger of one source.
    ///
    /// Fails if the session or the job is unknown, or there is no room for another line.
    pub(super) fn line(
        &mut self,
        job: Option<JobHandle>,
        source: Identifier,
    ) -> Result<Arc<LedgerLine>, Fault> {
        let session = Arc::clone(self.session()?);
        let of = job.map(|handle| self.job(handle)).transpose()?;
        let has_room = self.bytes + ENTRY_BYTES <= limits::SESSION_DICTIONARY_BYTES;
        match self.lines.entry((job, source)) {
            Slot::Occupied(known) => Ok(Arc::clone(known.get())),
            Slot::Vacant(_) if !has_room => Err(Fault::Full),
            Slot::Vacant(free) => {
                self.bytes += ENTRY_BYTES;
                let source = free.key().1.clone();
                Ok(Arc::clone(free.insert(Arc::new(LedgerLine {
                    session,
                    job: of,
                    source,
                    id: StoreId::none(),
                }))))
            }
        }
    }

    fn add_job(&mut self, handle: JobHandle, descriptor: JobDescriptor) -> Result<bool, Fault> {
        let session = Arc::clone(self.session()?);
        let owner_uid = descriptor.owner_uid;
        let is_new = match self.jobs.entry(handle) {
            Slot::Occupied(known) if is_same_job(&known.get().descriptor, &descriptor) => false,
            Slot::Occupied(_) => return Err(AGAIN),
            Slot::Vacant(free) => {
                free.insert(Arc::new(JobRecord { session, handle, descriptor, key: StoreId::none() }));
                true
            }
        };
        self.has_changed |= is_new;
        self.learn_owner(handle, owner_uid);
        Ok(is_new)
    }

    fn add_series(
        &mut self,
        id: u32,
        descriptor: SeriesDescriptor,
        shared: &mut Shared,
    ) -> Result<bool, Fault> {
        let session = Arc::clone(self.session()?);
        let metric = self.metric(descriptor.metric)?;
        let job = descriptor.job.map(|handle| self.job(handle)).transpose()?;
        let (metric, labels) = (Arc::clone(metric), shared.labels.share(descriptor.labels));
        let series = SeriesRecord { session, metric, job, labels, id: StoreId::none() };
        learn(&mut self.series, id, series, is_same_series, Arc::new)
    }

    pub(super) fn metric(&self, id: MetricId) -> Result<&Arc<MetricDescriptor>, Fault> {
        self.metrics.get(id.0).ok_or(Fault::Unknown("metric"))
    }

    pub(super) fn job(&self, handle: JobHandle) -> Result<Arc<JobRecord>, Fault> {
        self.jobs.get(&handle).cloned().ok_or(Fault::Unknown("job"))
    }

    /// Removes the series, shapes and call stacks of a job that has ended. The job itself is kept a little
    /// longer.
    pub(super) fn end_job(&mut self, handle: JobHandle) {
        let Some(job) = self.jobs.get(&handle).cloned() else { return };
        let is_its = |series: &Arc<SeriesRecord>| series.job.as_ref().is_some_and(|of| Arc::ptr_eq(of, &job));
        let mut freed = self.stacks.end_job(&job);
        self.shapes.retain(|shape| {
            let keep = !shape.columns.iter().any(is_its);
            freed += if keep { 0 } else { shape_cost(shape.columns.len()) };
            keep
        });
        self.series.retain(|series| {
            let keep = !is_its(series);
            freed += if keep { 0 } else { series_cost(&series.labels) };
            keep
        });
        if !self.ended.contains(&handle) {
            self.ended.push_back(handle);
            self.has_changed = true;
        }
        if self.ended.len() > ENDED_JOBS
            && let Some(oldest) = self.ended.pop_front()
            && let Some(job) = self.jobs.remove(&oldest)
        {
            let before = self.lines.len();
            self.lines.retain(|(job, _), _| *job != Some(oldest));
            self.owners.remove(&oldest);
            self.sampled_us.remove(&oldest);
            freed += job_cost(&job.descriptor) + ENTRY_BYTES * (before - self.lines.len());
        }
        self.bytes = self.bytes.saturating_sub(freed);
    }
}

fn is_same_shape(known: &Shape, new: &Shape) -> bool {
    Arc::ptr_eq(&known.line, &new.line)
        && known.inner_period == new.inner_period
        && known.columns.len() == new.columns.len()
        && known.columns.iter().zip(&new.columns).all(|(known, new)| Arc::ptr_eq(known, new))
}

fn is_same_series(known: &Arc<SeriesRecord>, new: &SeriesRecord) -> bool {
    let has_same_job = match (&known.job, &new.job) {
        (None, None) => true,
        (Some(known), Some(new)) => Arc::ptr_eq(known, new),
        (None, Some(_)) | (Some(_), None) => false,
    };
    has_same_job && Arc::ptr_eq(&known.metric, &new.metric) && known.labels == new.labels
}

/// An owner may be missing in one of the entries.
fn is_same_job(known: &JobDescriptor, new: &JobDescriptor) -> bool {
    let has_same_uid = known.owner_uid.zip(new.owner_uid).is_none_or(|(known, new)| known == new);
    let names = known.owner.as_ref().zip(new.owner.as_ref());
    let has_same_owner = has_same_uid && names.is_none_or(|(known, new)| known == new);
    let identity = |job: &JobDescriptor| (job.job_id.clone(), job.cluster.clone(), job.started_us);
    has_same_owner && identity(known) == identity(new)
}
