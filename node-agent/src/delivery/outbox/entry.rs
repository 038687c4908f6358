//! Entries of the outbox, and the types of its inputs and outputs.

use polymeter_proto::wire::message::{SkipReason, ToCollector};

use super::super::frame_summary::{FrameSummary, LostSamples};
use crate::lanes::EventRecord;

/// Weight of a note in the window: about the size of its message on the wire.
const NOTE_BYTES: usize = 64;

/// Frames that will never be stored.
#[derive(Debug, Default)]
pub struct Dropped {
    pub samples: u64,
    /// A later frame repeats them: readers of the data need them.
    pub events: Vec<EventRecord>,
    /// Their tallies must be repeated, too.
    pub frames: Vec<u64>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    pub frames: u64,
    /// Segments that are not needed any more.
    pub segments: Vec<u64>,
}

#[derive(Debug)]
pub enum Restored {
    Frame(u64, Vec<u8>, FrameSummary, Vec<EventRecord>),
    Skipped(u64, u64, LostSamples, SkipReason),
}

impl Restored {
    pub(super) const fn first(&self) -> u64 {
        match self {
            Self::Frame(first, ..) | Self::Skipped(first, ..) => *first,
        }
    }

    pub(super) const fn last(&self) -> u64 {
        match self {
            Self::Frame(last, ..) | Self::Skipped(_, last, ..) => *last,
        }
    }
}

#[derive(Debug)]
pub(super) enum What {
    Frame {
        bytes: Vec<u8>,
        summary: FrameSummary,
        events: Vec<EventRecord>,
    },
    Skipped {
        losses: LostSamples,
        reason: SkipReason,
    },
    /// All of the entry's segment is only on the disk.
    Spilled,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) first: u64,
    pub(super) last: u64,
    /// Segment that holds the entry on the disk as well.
    pub(super) segment: Option<u64>,
    pub(super) what: What,
}

impl Entry {
    /// True if it is to be written to the spool when the outbox is full or the agent ends. A note on frames
    /// that were acknowledged before is not: it may begin with the number of an existing segment, whose name
    /// it would take, and the next process writes it anew if the collector asks for these frames.
    pub(super) const fn is_worth_keeping(&self) -> bool {
        !matches!(self.what, What::Skipped { reason: SkipReason::AlreadyAcknowledged, .. })
    }

    /// True for a note that counts no losses, which may be extended even if it was sent. A note on the disk
    /// may not.
    pub(super) fn may_grow(&self) -> bool {
        match &self.what {
            What::Skipped { losses, reason: SkipReason::AlreadyAcknowledged } => {
                self.segment.is_none() && losses.is_empty()
            }
            What::Skipped { .. } | What::Frame { .. } | What::Spilled => false,
        }
    }

    pub(super) const fn weight(&self) -> usize {
        match &self.what {
            What::Frame { bytes, .. } => bytes.len(),
            What::Skipped { .. } => NOTE_BYTES,
            What::Spilled => 0,
        }
    }

    /// Bytes in memory that are not on the disk as well.
    pub(super) const fn own_bytes(&self) -> usize {
        if self.segment.is_none() { self.bytes() } else { 0 }
    }

    pub(super) const fn bytes(&self) -> usize {
        match &self.what {
            What::Frame { bytes, .. } => bytes.len(),
            What::Skipped { .. } | What::Spilled => 0,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Outgoing<'a> {
    Frame(&'a [u8]),
    Note(ToCollector),
    /// Segment that must be read back before anything is sent.
    Segment(u64),
}

/// Entries to be written to the disk next, the oldest first.
#[derive(Debug)]
pub struct Spill<'a> {
    pub first: u64,
    /// Segment that ends just before it, which may be continued.
    pub continues: Option<u64>,
    pub entries: usize,
    pub records: Vec<Outgoing<'a>>,
}
