//! Format of frames: its constants, and the decoded form.

use crate::ledger::{Event, LedgerEntry, Tally};
use crate::series::{SessionId, ShapeId};
use crate::stacks::StackInterval;
use crate::window::{MAX_PART, MIN_PART, SUM_PART};
use crate::wire::VERSION;
use crate::wire::bytes::Cursor;
use crate::wire::dictionary::Entry;

pub const MAGIC: [u8; 3] = *b"PLM";

pub(super) const SECTION_DICTIONARY: u8 = 1;
pub(super) const SECTION_BLOCK: u8 = 2;
pub(super) const SECTION_LEDGER: u8 = 3;
pub(super) const SECTION_EVENTS: u8 = 4;
pub(super) const SECTION_PARTIAL_BLOCK: u8 = 5;
/// Two kinds of block with a single row: at long periods every block has one row, and each byte counts.
pub(super) const SECTION_LONE_BLOCK: u8 = 6;
pub(super) const SECTION_LONE_PARTIAL_BLOCK: u8 = 7;

pub(super) const SECTION_STACKS: u8 = 8;
/// Without content: all blocks of the frame are samples that a ring kept.
pub(super) const SECTION_KEPT: u8 = 9;

/// Tallies of the sources of shapes, which need no names.
pub(super) const SECTION_SHAPE_TALLIES: u8 = 10;

/// Added to the kind of a block whose rows summarise windows.
pub(super) const WINDOWS: u8 = 16;

/// Parts that are zeros of a series that did not change. The largest value stands first: of most counters the
/// others are zeros, which take a byte together.
pub(super) const CHANGES: [usize; 3] = [MAX_PART, MIN_PART, SUM_PART];

pub(super) const CHECKSUM_BYTES: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub session: SessionId,
    /// The first frame of a session has 1.
    pub sequence: u64,
    /// Dictionary entries that its content needs and that were not announced before.
    pub dictionary: Vec<Entry>,
    pub blocks: Vec<Block>,
    /// Tallies of the samples that were due.
    pub ledger: Vec<LedgerEntry>,
    /// The same for the sources of shapes.
    pub shape_tallies: Vec<(ShapeId, Tally)>,
    pub events: Vec<Event>,
    pub stacks: Vec<StackInterval>,
    /// True if a ring kept the samples of the blocks.
    pub is_kept: bool,
}

/// Samples of one shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub shape: ShapeId,
    pub shape_columns: usize,
    /// Positions of the present columns in the shape; the others were absent.
    pub columns: Vec<usize>,
    /// Microseconds since the epoch.
    pub times_us: Vec<i64>,
    /// Bits of the values, column by column, `times_us.len()` for each; of windows the last values.
    pub values: Vec<u64>,
    /// Set if its rows summarise windows.
    pub windows: Option<BlockWindows>,
}

/// What windows tell beside the last values, as [`crate::window::Summary::pack`] has it. Each is parallel to
/// the values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockWindows {
    /// Each at most [`crate::limits::WINDOW_SAMPLES`].
    pub counts: Vec<u64>,
    pub min: Vec<u64>,
    pub max: Vec<u64>,
    pub sum: Vec<u64>,
    pub histograms: Vec<BlockHistogram>,
}

/// Histogram of the samples of one window, of a counter of its rates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockHistogram {
    pub tick: usize,
    /// Position among the present columns.
    pub position: usize,
    /// Buckets with samples, in their order, and their counts.
    pub counts: Vec<(u16, u64)>,
}

impl Block {
    /// Returns the position of each present column in the shape, with its values.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[u64])> {
        self.columns.iter().copied().zip(self.values.chunks_exact(self.times_us.len().max(1)))
    }

    /// Returns the number of samples, those in windows included.
    pub fn samples(&self) -> u64 {
        match &self.windows {
            None => self.values.len() as u64,
            Some(windows) => windows.counts.iter().sum(),
        }
    }
}

impl Frame {
    /// Returns the session and the sequence number in the first bytes of a frame. The rest is not checked,
    /// and may be damaged.
    pub fn peek(bytes: &[u8]) -> Option<(SessionId, u64)> {
        let mut cursor = Cursor::new(bytes);
        let known = cursor.array().ok()? == MAGIC && cursor.byte().ok()? == VERSION;
        let session = SessionId(u64::from_le_bytes(cursor.array().ok()?));
        let sequence = cursor.varint().ok()?;
        known.then_some((session, sequence))
    }

    /// Returns the number of samples, those in windows included, without those of call stacks.
    pub fn samples(&self) -> u64 {
        self.blocks.iter().map(Block::samples).sum()
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Extras<'a> {
    pub dictionary: &'a [Entry],
    pub ledger: &'a [LedgerEntry],
    pub events: &'a [Event],
    pub stacks: &'a [StackInterval],
    /// True if a ring kept the samples of the batch.
    pub is_kept: bool,
}

/// Error of a frame that must be divided: it would exceed [`crate::limits::FRAME_BYTES`], or have more than
/// [`crate::limits::SECTION_ENTRIES`] of a kind or [`crate::limits::FRAME_STACK_COUNTS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the frame exceeds a limit; divide its contents among several frames")]
pub struct Oversized;
