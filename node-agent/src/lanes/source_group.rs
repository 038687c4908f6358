//! The parts of a source under sampling: its name, its groups of metrics, its cost, its call stacks, and
//! values that users supply.

use std::sync::Arc;

use polymeter_proto::batch::{Batch, Job, Shape, ShapeIndex};
use polymeter_proto::period::Period;
use polymeter_proto::series::Identifier;

use crate::sources::StackProfile;

/// Index of a source in the sampler; reused when the source is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

/// Target and the name of a source, in tallies and status.
#[derive(Debug, Clone)]
pub struct SourceKey {
    /// None for the node's own.
    pub job: Option<Arc<Job>>,
    /// `v2/cpu.stat`, `perf/0`.
    pub name: Identifier,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCost {
    /// How many reads there were.
    pub reads: u64,
    /// Time of all reads, in nanoseconds; in the slow lane the CPU time.
    pub total_ns: u64,
    /// Time of the slowest read, in nanoseconds.
    pub max_ns: u64,
}

impl ReadCost {
    pub(crate) fn add_read(&mut self, took_ns: u64) {
        self.reads += 1;
        self.total_ns += took_ns;
        self.max_ns = self.max_ns.max(took_ns);
    }
}

/// Metrics of one source that are sampled at the same period.
#[derive(Debug)]
pub struct Group {
    pub(crate) shape: Arc<Shape>,
    /// Slot of each column in the reading.
    pub(crate) slots: Vec<u32>,
    /// True if the columns are the first slots, in their order.
    pub(crate) is_in_order: bool,
    /// Period of the plan: shorter than that of the shape, which is that of the reads, for a source that
    /// samples by itself between the reads.
    pub(crate) sampled: Period,
    /// Index of the shape in the batch with the given number.
    in_batch: Option<(u64, ShapeIndex)>,
    /// When its last value came from the slow lane, on the monotonic clock, in nanoseconds.
    pub(super) recorded_ns: u64,
}

impl Group {
    /// Creates a group whose columns are the given slots.
    pub fn new(shape: Arc<Shape>, slots: Vec<u32>) -> Self {
        let is_in_order = (0..).zip(&slots).all(|(column, slot)| column == *slot);
        let sampled = shape.period;
        Self { shape, slots, is_in_order, sampled, in_batch: None, recorded_ns: 0 }
    }

    pub(crate) fn sampled_at(self, sampled: Period) -> Self {
        Self { sampled, ..self }
    }

    /// Period at which it is read.
    pub fn period(&self) -> Period {
        self.shape.period
    }

    pub(crate) fn columns(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Index of its shape in the batch with the number `batch_number`; adds the shape if necessary.
    pub(crate) fn index_in(&mut self, batch: &mut Batch, batch_number: u64) -> ShapeIndex {
        let index = match self.in_batch {
            Some((number, index)) if number == batch_number => index,
            _ => batch.add_shape(&self.shape),
        };
        self.in_batch = Some((batch_number, index));
        index
    }
}

/// Call stacks of one job during an interval.
#[derive(Debug, Clone)]
pub struct StackRecord {
    /// Shape with the job and the metric.
    pub shape: Arc<Shape>,
    pub profile: Box<StackProfile>,
}

/// Values that a user supplied together, one of each series of a shape.
#[derive(Debug)]
pub struct UserValue {
    /// Source that counts the values.
    pub source: SourceId,
    /// Their series.
    pub shape: Arc<Shape>,
    /// When they were supplied, in microseconds since the epoch.
    pub time_us: i64,
    pub bits: Vec<u64>,
}
