//! What the outbox holds, takes and gives.

use polymeter_proto::wire::message::{SkipReason, ToCollector};

use super::super::frame_summary::{FrameSummary, LostSamples};
use crate::lanes::EventRecord;

/// What a note weighs against the window: about what its message takes on the wire.
const NOTE_BYTES: usize = 64;

/// What will never be stored.
#[derive(Debug, Default)]
pub struct Dropped {
    /// Samples, which are counted.
    pub samples: u64,
    /// Events, which go into a later frame: whoever reads the data must know them.
    pub events: Vec<EventRecord>,
    /// The frames. What else was in them must be told again, too.
    pub frames: Vec<u64>,
}

/// What an acknowledgement has set free.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// How many frames that were in memory.
    pub frames: u64,
    /// Segments of which nothing is wanted any more.
    pub segments: Vec<u64>,
}

/// Something that was read back from a segment.
#[derive(Debug)]
pub enum Restored {
    /// A frame: its number, its bytes, and what is in it: samples, events.
    Frame(u64, Vec<u8>, FrameSummary, Vec<EventRecord>),
    /// A note: the first and the last of the frames that will never come, what was in them, and why.
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

/// What is in one place of the outbox.
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
    /// All of the entry's segment lies on the disk.
    Spilled,
}

/// One place of the outbox.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) first: u64,
    pub(super) last: u64,
    /// The segment on the disk that has it, too.
    pub(super) segment: Option<u64>,
    pub(super) what: What,
}

impl Entry {
    /// Whether it belongs on the disk where memory has no room for it, or the agent ends. A note that frames were acknowledged
    /// once does not: it may begin with the number of a segment that is there, whose name it would take, and the next life
    /// writes it anew when it is asked for them.
    pub(super) const fn is_worth_keeping(&self) -> bool {
        !matches!(self.what, What::Skipped { reason: SkipReason::AlreadyAcknowledged, .. })
    }

    /// What it weighs against the window.
    pub(super) const fn weight(&self) -> usize {
        match &self.what {
            What::Frame { bytes, .. } => bytes.len(),
            What::Skipped { .. } => NOTE_BYTES,
            What::Spilled => 0,
        }
    }

    /// What it takes of memory, and is not on the disk.
    pub(super) const fn own_bytes(&self) -> usize {
        if self.segment.is_none() { self.bytes() } else { 0 }
    }

    /// What it takes of memory.
    pub(super) const fn bytes(&self) -> usize {
        match &self.what {
            What::Frame { bytes, .. } => bytes.len(),
            What::Skipped { .. } | What::Spilled => 0,
        }
    }
}

/// What is to be sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Outgoing<'a> {
    /// A frame's bytes.
    Frame(&'a [u8]),
    /// A note about frames that went.
    Note(ToCollector),
    /// Nothing yet: this segment must be read back first.
    Segment(u64),
}

/// What is to be written to the disk next: entries of the sequence, the oldest first.
#[derive(Debug)]
pub struct Spill<'a> {
    /// The number of the first.
    pub first: u64,
    /// The segment that ends just before it, which may be continued.
    pub continues: Option<u64>,
    /// How many entries they are.
    pub entries: usize,
    /// What is to be written.
    pub records: Vec<Outgoing<'a>>,
}
