//! A segment of a ring: encoded samples of one job.

use std::sync::Arc;

use polymeter_proto::batch::{Batch, Instant, Shape, ShapeIndex};
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame::{Block, Encoder, Extras, Frame};

use super::requests::HeldSpan;

/// Number of samples by shape.
pub(super) type Counts = Vec<(Arc<Shape>, u64)>;

#[derive(Debug)]
pub(super) struct Segment {
    /// Form of a frame without dictionary.
    bytes: Box<[u8]>,
    counts: Counts,
    /// Times of the oldest and the newest sample, in microseconds since the epoch.
    pub(super) span_us: (i64, i64),
}

pub(super) fn counts_of(batch: &Batch) -> Counts {
    batch.shapes().iter().cloned().zip(batch.samples_by_shape()).filter(|(_, samples)| *samples > 0).collect()
}

impl Segment {
    /// None for a batch without samples, or one that no frame can hold.
    pub(super) fn encode(encoder: &mut Encoder, batch: &Batch) -> Option<Self> {
        let span_us = batch.span_us()?;
        let mut bytes = Vec::new();
        encoder.encode(&mut bytes, SessionId(0), 0, batch, Extras::default()).ok()?;
        Some(Self { bytes: bytes.into_boxed_slice(), counts: counts_of(batch), span_us })
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + self.counts.capacity() * size_of::<(Arc<Shape>, u64)>()
    }

    pub(super) fn counts(&self) -> &[(Arc<Shape>, u64)] {
        &self.counts
    }

    pub(super) fn samples(&self) -> u64 {
        self.counts.iter().map(|(_, samples)| samples).sum()
    }

    pub(super) fn held(&self) -> HeldSpan {
        let (first_us, last_us) = self.span_us;
        HeldSpan { first_us, last_us, samples: self.samples() }
    }

    pub(super) const fn overlaps(&self, begin_us: i64, end_us: i64) -> bool {
        self.span_us.0 <= end_us && self.span_us.1 >= begin_us
    }

    pub(super) const fn is_within(&self, begin_us: i64, end_us: i64) -> bool {
        self.span_us.0 >= begin_us && self.span_us.1 <= end_us
    }

    /// Rows of the segment, by shape.
    pub(super) fn rows(&self) -> Batch {
        let mut batch = Batch::default();
        // They were encoded by this process.
        let Ok(frame) = Frame::decode(&self.bytes) else { return batch };
        for block in &frame.blocks {
            if let Some((shape, _)) = self.counts.iter().find(|(shape, _)| shape.id == block.shape) {
                let index = batch.add_shape(shape);
                push_rows(&mut batch, index, shape, block);
            }
        }
        batch
    }
}

fn push_rows(batch: &mut Batch, index: ShapeIndex, shape: &Shape, block: &Block) {
    let period_us = shape.period.as_micros();
    let ticks = block.times_us.len();
    for (tick, time_us) in block.times_us.iter().enumerate() {
        let deadline = u64::try_from(*time_us).ok().map(|time_us| time_us / period_us);
        let mut present = block.columns.iter().enumerate().peekable();
        let values = (0..block.shape_columns).map(|column| {
            let (position, _) = present.next_if(|(_, of)| **of == column)?;
            block.values.get(position * ticks + tick).copied()
        });
        // A segment is smaller than a batch.
        batch.push(index, Instant { deadline, time_us: *time_us }, values).ok();
    }
}
