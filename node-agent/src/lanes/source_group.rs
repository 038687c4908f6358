//! The parts of a source under sampling: its name, its groups of metrics, its cost, its call stacks, and
//! values that users supply.

use std::sync::Arc;

use polymeter_proto::batch::{Batch, Job, Shape, ShapeIndex};
use polymeter_proto::period::Period;
use polymeter_proto::series::Identifier;

use super::window::Window;
use crate::sources::StackProfile;

/// Index of a source in the sampler; reused when the source is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

#[derive(Debug, Clone)]
pub struct SourceKey {
    /// None for the node's own.
    pub job: Option<Arc<Job>>,
    /// Name such as `v2/cpu.stat` or `perf/0`.
    pub name: Identifier,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCost {
    pub reads: u64,
    /// CPU time in the slow lane.
    pub total_ns: u64,
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
    pub(crate) slots: Vec<u32>,
    /// True if the columns are the first slots, in their order.
    pub(crate) is_in_order: bool,
    /// Period of the plan: shorter than that of the shape, which is that of the reads, for a source that
    /// samples by itself between the reads.
    pub(crate) sampled: Period,
    /// True if its values go to the ring, and not to the collector.
    pub(crate) is_ring: bool,
    /// Number of a batch, and the index of the shape in it.
    in_batch: Option<(u64, ShapeIndex)>,
    /// None if each sample is a row.
    pub(super) window: Option<Box<Window>>,
    /// Time at which its last value came from the slow lane, on the monotonic clock.
    pub(super) recorded_ns: u64,
}

impl Group {
    pub fn new(shape: Arc<Shape>, slots: Vec<u32>) -> Self {
        let is_in_order = (0..).zip(&slots).all(|(column, slot)| column == *slot);
        let (sampled, window) = (shape.period, Window::of(&shape));
        Self { shape, slots, is_in_order, sampled, is_ring: false, in_batch: None, window, recorded_ns: 0 }
    }

    pub(crate) fn sampled_at(self, sampled: Period) -> Self {
        Self { sampled, ..self }
    }

    /// Gives windows of the metrics that `is_wanted` histograms.
    #[must_use]
    pub fn with_histograms(mut self, is_wanted: impl Fn(&str) -> bool) -> Self {
        if let Some(window) = &mut self.window {
            window.add_histograms(&self.shape, is_wanted);
        }
        self
    }

    pub(crate) fn into_ring(self) -> Self {
        Self { is_ring: true, ..self }
    }

    /// Period of its samples.
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

    /// Number of samples in its open window.
    pub(super) fn open_samples(&self) -> u64 {
        self.window.as_ref().map_or(0, |window| window.samples())
    }

    /// Lets the rates of its counters begin at the last values of a former group of the same source.
    pub(super) fn continue_from(&mut self, former: &Self) {
        if let Some((window, of_former)) = self.window.as_mut().zip(former.window.as_ref()) {
            let slot = |column: usize| self.slots.get(column);
            window.continue_from(of_former, |column| former.slots.binary_search(slot(column)?).ok());
        }
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
    pub source: SourceId,
    pub shape: Arc<Shape>,
    /// Time at which they were supplied, in microseconds since the epoch.
    pub time_us: i64,
    pub bits: Vec<u64>,
}
