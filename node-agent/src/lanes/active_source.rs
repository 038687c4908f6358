//! A source under sampling: its groups of metrics, its tally and its cost.

use std::sync::Arc;

use polymeter_proto::batch::{Batch, Full, Instant, Job, Shape, ShapeIndex};
use polymeter_proto::ledger::Tally;
use polymeter_proto::period::Period;
use polymeter_proto::series::{Identifier, JobHandle};

use super::channels::UserValue;
use super::series_progress::{Counters, SeriesProgress};
use crate::clock;
use crate::sources::{Outcome, ReadBuffer, Reading, Slot, Source};

/// The place of a source in the sampler; reused when the source is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

/// Whose source it is, and what it is called, in tallies and status.
#[derive(Debug, Clone)]
pub struct SourceKey {
    /// The job; none for the node's own.
    pub job: Option<Arc<Job>>,
    /// The file's name, or `perf.software`.
    pub name: Identifier,
}

/// What the reads of a source have cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// How often it was read.
    pub reads: u64,
    /// How long the reads took together, in nanoseconds.
    pub total_ns: u64,
    /// How long the slowest took, in nanoseconds.
    pub most_ns: u64,
}

/// The metrics of one source that are sampled at the same period.
#[derive(Debug)]
pub struct Group {
    /// Their series.
    shape: Arc<Shape>,
    /// The slot of the reading that each column is.
    slots: Vec<u32>,
    /// Whether the columns are the first slots, in their order.
    is_in_order: bool,
    /// Where the shape stands in the batch with this number.
    in_batch: Option<(u64, ShapeIndex)>,
}

impl Group {
    /// A group whose columns are the given slots.
    pub fn new(shape: Arc<Shape>, slots: Vec<u32>) -> Self {
        let is_in_order = (0..).zip(&slots).all(|(column, slot)| column == *slot);
        Self { shape, slots, is_in_order, in_batch: None }
    }

    /// The period at which it is sampled.
    pub fn period(&self) -> Period {
        self.shape.period
    }

    fn columns(&self) -> u64 {
        self.slots.len() as u64
    }
}

/// A source that the sampler reads.
#[derive(Debug)]
pub struct ActiveSource {
    /// What it is called.
    pub key: Arc<SourceKey>,
    source: Source,
    reading: Reading,
    counters: Counters,
    pub(super) groups: Vec<Group>,
    /// The series of values that a user gives, each a group of its own without deadlines.
    given: Vec<Group>,
    pub(super) tally: Tally,
    pub(super) cost: Cost,
    /// The number of the tick at which `reading` was made, so that several groups share one read.
    read_at_tick: u64,
    time_us: i64,
    outcome: Outcome,
    /// Whether the manager has been told that the source changed, went or failed.
    pub(super) noticed: bool,
}

/// What a tick is: its number, and the time at which it began by both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tick {
    pub(super) number: u64,
    pub(super) began_ns: u64,
    pub(super) realtime_us: i64,
}

impl ActiveSource {
    /// A source that has not been read yet.
    pub fn new(key: Arc<SourceKey>, source: Source, groups: Vec<Group>) -> Self {
        let reading = Reading::absent(source.slots().len());
        Self {
            key,
            source,
            reading,
            counters: Counters::default(),
            groups,
            given: Vec::new(),
            tally: Tally::default(),
            cost: Cost::default(),
            read_at_tick: 0,
            time_us: 0,
            outcome: Outcome::Read,
            noticed: false,
        }
    }

    /// Lets its counters go on from what their series have come to, so that they never decrease.
    pub fn with_progress(self, progress: impl FnMut(&Slot) -> Arc<SeriesProgress>) -> Self {
        let counters = Counters::new(self.key.name.as_str(), self.source.slots(), progress);
        Self { counters, ..self }
    }

    /// Leaves behind what its counters have come to, for whatever gives their series next.
    pub(super) fn leave(&self) {
        self.counters.leave();
    }

    /// Takes over the tally and the cost of the source that this one replaces.
    pub(super) const fn go_on_from(&mut self, replaced: &Self) {
        self.tally = replaced.tally;
        self.cost = replaced.cost;
    }

    /// What is read, and what its values are.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Whether it is one of this job's.
    pub(super) fn is_of(&self, job: JobHandle) -> bool {
        self.key.job.as_ref().is_some_and(|of| of.handle == job)
    }

    /// The period of each group.
    pub fn periods(&self) -> impl Iterator<Item = Period> {
        self.groups.iter().map(Group::period)
    }

    /// Reads the source, unless another group has done so at this tick. `now_ns` is the time, and becomes the time
    /// after the read: one clock reading serves as the end of one window and the beginning of the next.
    pub(super) fn read(&mut self, text: &mut ReadBuffer, tick: Tick, now_ns: &mut u64) -> Outcome {
        if self.read_at_tick == tick.number {
            return self.outcome;
        }
        let began_ns = *now_ns;
        self.outcome = self.source.read(text, &mut self.reading);
        if matches!(self.outcome, Outcome::Gone | Outcome::Failed(_)) {
            self.reading.clear();
        } else {
            self.counters.raise(&mut self.reading);
        }
        *now_ns = clock::monotonic_ns();
        let took_ns = now_ns.saturating_sub(began_ns);
        self.cost.reads += 1;
        self.cost.total_ns += took_ns;
        self.cost.most_ns = self.cost.most_ns.max(took_ns);
        self.read_at_tick = tick.number;
        let since_us = began_ns.saturating_sub(tick.began_ns) / 1_000;
        self.time_us = tick.realtime_us.saturating_add_unsigned(since_us);
        self.outcome
    }

    /// Puts the values of one group into the batch with the number `batch_number`, and says how many were present.
    pub(super) fn record(
        &mut self,
        group: usize,
        deadline: Option<u64>,
        batch: &mut Batch,
        batch_number: u64,
    ) -> Result<u64, Full> {
        let Some(group) = self.groups.get_mut(group) else { return Ok(0) };
        let index = match group.in_batch {
            Some((number, index)) if number == batch_number => index,
            _ => batch.add_shape(&group.shape),
        };
        group.in_batch = Some((batch_number, index));
        let instant = Instant { deadline, time_us: self.time_us };
        // Nearly always one group is all of a source, and nothing is absent.
        if group.is_in_order
            && let Some(bits) = self.reading.whole().filter(|bits| bits.len() == group.slots.len())
            && !bits.is_empty()
        {
            return batch.push_whole(index, instant, bits);
        }
        let value = |slot: &u32| self.reading.get(*slot);
        if group.slots.iter().all(|slot| value(slot).is_none()) {
            return Ok(0);
        }
        batch.push(index, instant, group.slots.iter().map(value))
    }

    /// Puts a value that a user gave into the batch with the number `batch_number`.
    pub(super) fn record_given(
        &mut self,
        pushed: &UserValue,
        batch: &mut Batch,
        batch_number: u64,
    ) -> Result<u64, Full> {
        let known = self.given.iter().position(|group| group.shape.id == pushed.shape.id);
        let position = known.unwrap_or_else(|| {
            self.given.push(Group::new(Arc::clone(&pushed.shape), Vec::new()));
            self.given.len() - 1
        });
        let Some(group) = self.given.get_mut(position) else { return Ok(0) };
        let index = match group.in_batch {
            Some((number, index)) if number == batch_number => index,
            _ => batch.add_shape(&group.shape),
        };
        group.in_batch = Some((batch_number, index));
        let instant = Instant { deadline: None, time_us: pushed.time_us };
        batch.push(index, instant, std::iter::once(Some(pushed.bits)))
    }

    /// Counts a value that a user gave: it was due when it came.
    pub(super) const fn count_given(&mut self, recorded: Result<u64, Full>) -> Tally {
        let dropped = if recorded.is_ok() { 0 } else { 1 };
        let counted = Tally { due: 1, taken: 1, late: 0, missed: 0, absent: 0, dropped };
        self.tally.add(&counted);
        counted
    }

    /// How many values of one group its last reading has.
    fn present(&self, group: &Group) -> u64 {
        group.slots.iter().filter(|slot| self.reading.get(**slot).is_some()).count() as u64
    }

    /// Counts what became of the samples of one group at one deadline, and returns just that.
    pub(super) fn count(
        &mut self,
        group: usize,
        missed: u64,
        late: bool,
        recorded: Result<u64, Full>,
    ) -> Tally {
        let Some(group) = self.groups.get(group) else { return Tally::default() };
        let columns = group.columns();
        let present = recorded.unwrap_or_else(|Full| self.present(group));
        let counted = Tally {
            due: columns * (missed + 1),
            missed: columns * missed,
            taken: present,
            absent: columns - present,
            late: if late { present } else { 0 },
            dropped: if recorded.is_ok() { 0 } else { present },
        };
        self.tally.add(&counted);
        counted
    }
}
