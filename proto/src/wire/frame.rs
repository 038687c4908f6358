//! A frame: the encoded samples of one flush. Exactly one ZeroMQ message.

use std::sync::Arc;

use super::bytes::{Cursor, DecodeError, put_varint, unzigzag, zigzag};
use super::column::{Coding, ColumnEncoder, get_columns};
use super::dictionary::Entry;
use super::{VERSION, envelope};
use crate::batch::{Batch, Column, Instant, Row, Shape};
use crate::ledger::{Event, LedgerEntry};
use crate::limits;
use crate::series::{Number, SessionId, ShapeId};

/// The first bytes of a frame.
pub const MAGIC: [u8; 3] = *b"PLM";

const SECTION_DICTIONARY: u8 = 1;
const SECTION_BLOCK: u8 = 2;
const SECTION_LEDGER: u8 = 3;
const SECTION_EVENTS: u8 = 4;
const SECTION_PARTIAL_BLOCK: u8 = 5;
/// The two kinds of block with a single row: at long periods every block has one row, and each byte counts.
const SECTION_LONE_BLOCK: u8 = 6;
const SECTION_LONE_PARTIAL_BLOCK: u8 = 7;

const CHECKSUM_BYTES: usize = 4;

/// A decoded frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The session that it belongs to.
    pub session: SessionId,
    /// Its number in that session; the first is 1.
    pub sequence: u64,
    /// Dictionary entries that its content needs and that were not announced before.
    pub dictionary: Vec<Entry>,
    /// The samples.
    pub blocks: Vec<Block>,
    /// Tallies of the samples that were due.
    pub ledger: Vec<LedgerEntry>,
    /// Events.
    pub events: Vec<Event>,
}

/// The samples of one shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The id of the shape.
    pub shape: ShapeId,
    /// The number of columns of the shape.
    pub shape_columns: usize,
    /// The positions of the present columns in the shape; the others were absent.
    pub columns: Vec<usize>,
    /// The times of the samples, in microseconds since the epoch.
    pub times_us: Vec<i64>,
    /// The bits of the values, column by column, `times_us.len()` for each.
    pub values: Vec<u64>,
}

impl Block {
    /// Returns the position of each present column in the shape, with its values.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[u64])> {
        self.columns.iter().copied().zip(self.values.chunks_exact(self.times_us.len().max(1)))
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

    /// Returns the number of its samples.
    pub fn samples(&self) -> usize {
        self.blocks.iter().map(|block| block.values.len()).sum()
    }

    /// Decodes a frame. Takes time and memory proportional to the length of the bytes and at most to
    /// [`limits::FRAME_VALUES`].
    ///
    /// # Errors
    /// Returns an error if the bytes are not exactly one undamaged frame of this version within its limits.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > limits::FRAME_BYTES {
            return Err(DecodeError::Limit {
                what: "bytes in a frame",
                found: bytes.len() as u64,
                limit: limits::FRAME_BYTES as u64,
            });
        }
        let mut cursor = Cursor::new(bytes);
        if cursor.array()? != MAGIC {
            return Err(DecodeError::Magic);
        }
        match cursor.byte()? {
            VERSION => {}
            found => return Err(DecodeError::Version { found }),
        }
        let (body, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(DecodeError::Truncated)?;
        if crc32fast::hash(body) != u32::from_le_bytes(*checksum) {
            return Err(DecodeError::Checksum);
        }
        let mut cursor = Cursor::new(body);
        cursor.take(MAGIC.len() + 1)?;
        let session = SessionId(u64::from_le_bytes(cursor.array()?));
        let sequence = cursor.varint()?;
        let base_us = unzigzag(cursor.varint()?);
        let mut frame = Self {
            session,
            sequence,
            dictionary: Vec::new(),
            blocks: Vec::new(),
            ledger: Vec::new(),
            events: Vec::new(),
        };
        let mut values_left = limits::FRAME_VALUES;
        while !cursor.is_empty() {
            match cursor.byte()? {
                SECTION_DICTIONARY => get_section(&mut cursor, &mut frame.dictionary)?,
                SECTION_LEDGER => get_section(&mut cursor, &mut frame.ledger)?,
                SECTION_EVENTS => get_section(&mut cursor, &mut frame.events)?,
                kind @ (SECTION_BLOCK
                | SECTION_PARTIAL_BLOCK
                | SECTION_LONE_BLOCK
                | SECTION_LONE_PARTIAL_BLOCK) => {
                    if frame.blocks.len() == limits::FRAME_BLOCKS {
                        return Err(DecodeError::Contradiction("a frame has too many blocks"));
                    }
                    frame.blocks.push(get_block(&mut cursor, kind, base_us, &mut values_left)?);
                }
                found => return Err(DecodeError::Tag { what: "kind of section", found }),
            }
        }
        Ok(frame)
    }
}

fn get_section<T: serde::de::DeserializeOwned>(
    cursor: &mut Cursor<'_>,
    into: &mut Vec<T>,
) -> Result<(), DecodeError> {
    let len = cursor.count("bytes in a section", limits::MESSAGE_BYTES)?;
    let mut entries: Vec<T> = envelope::get(cursor.take(len)?)?;
    let count = into.len() + entries.len();
    if count > limits::SECTION_ENTRIES {
        return Err(DecodeError::Limit {
            what: "entries in a section",
            found: count as u64,
            limit: limits::SECTION_ENTRIES as u64,
        });
    }
    into.append(&mut entries);
    Ok(())
}

fn get_block(
    cursor: &mut Cursor<'_>,
    kind: u8,
    base_us: i64,
    values_left: &mut usize,
) -> Result<Block, DecodeError> {
    let shape = cursor.varint()?;
    let shape = u32::try_from(shape).map_err(|_too_large| DecodeError::Limit {
        what: "as the number of a shape",
        found: shape,
        limit: u64::from(u32::MAX),
    })?;
    let shape_columns = cursor.count("columns in a block", limits::BLOCK_COLUMNS)?;
    let partial = matches!(kind, SECTION_PARTIAL_BLOCK | SECTION_LONE_PARTIAL_BLOCK);
    let lone = matches!(kind, SECTION_LONE_BLOCK | SECTION_LONE_PARTIAL_BLOCK);
    let columns = if partial { get_bitmap(cursor, shape_columns)? } else { (0..shape_columns).collect() };
    let ticks = if lone { 1 } else { cursor.count("ticks in a block", limits::BLOCK_TICKS)? };
    if ticks == 0 {
        return Err(DecodeError::Contradiction("a block has no ticks"));
    }
    // The times take as much memory as one more column.
    let wanted = (columns.len() + 1) * ticks;
    *values_left = values_left.checked_sub(wanted).ok_or(DecodeError::Limit {
        what: "values in a frame",
        found: (limits::FRAME_VALUES - *values_left + wanted) as u64,
        limit: limits::FRAME_VALUES as u64,
    })?;
    let times_us = get_times(cursor, ticks, base_us)?;
    let mut values = Vec::new();
    get_columns(cursor, columns.len(), ticks, &mut values)?;
    Ok(Block { shape: ShapeId(shape), shape_columns, columns, times_us, values })
}

fn get_bitmap(cursor: &mut Cursor<'_>, columns: usize) -> Result<Vec<usize>, DecodeError> {
    let bitmap = cursor.take(columns.div_ceil(8))?;
    let bits = bitmap.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
    Ok(bits.take(columns).enumerate().filter_map(|(column, present)| present.then_some(column)).collect())
}

/// Reads the times of a block: one time for a single tick; deadlines and latenesses for a block on the grid;
/// otherwise differences.
fn get_times(cursor: &mut Cursor<'_>, ticks: usize, base_us: i64) -> Result<Vec<i64>, DecodeError> {
    let anchor_us = base_us.wrapping_add(unzigzag(cursor.varint()?));
    if ticks == 1 {
        return Ok(vec![anchor_us]);
    }
    let period_us = cursor.varint()?;
    if period_us == 0 {
        let mut offsets = Vec::new();
        get_columns(cursor, 1, ticks, &mut offsets)?;
        return Ok(offsets.iter().map(|offset| anchor_us.wrapping_add(offset.cast_signed())).collect());
    }
    let (mut gaps, mut offsets) = (Vec::new(), Vec::new());
    get_columns(cursor, 1, ticks - 1, &mut gaps)?;
    get_columns(cursor, 1, ticks, &mut offsets)?;
    let mut deadline_us = anchor_us;
    let mut times_us = Vec::with_capacity(ticks);
    for (offset, gap) in offsets.iter().zip(std::iter::once(&0).chain(&gaps)) {
        deadline_us = deadline_us.wrapping_add(gap.wrapping_mul(period_us).cast_signed());
        times_us.push(deadline_us.wrapping_add(offset.cast_signed()));
    }
    Ok(times_us)
}

/// The content of a frame besides the samples.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extras<'a> {
    /// Dictionary entries that the samples or events need.
    pub dictionary: &'a [Entry],
    /// Tallies.
    pub ledger: &'a [LedgerEntry],
    /// Events.
    pub events: &'a [Event],
}

/// The error for a frame that would exceed [`limits::FRAME_BYTES`], or have more than
/// [`limits::SECTION_ENTRIES`] of a kind: it must be divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oversized;

/// Encodes batches into frames. The buffers are kept between frames.
#[derive(Debug, Default)]
pub struct Encoder {
    columns: ColumnEncoder,
    /// The numbers of the rows of each shape.
    by_shape: Vec<Vec<u32>>,
    absent_from: Vec<u32>,
    instants: Vec<Instant>,
    transposed: Vec<u64>,
    times: Vec<u64>,
    serialised: Vec<u8>,
}

impl Encoder {
    /// Appends the frame `sequence` of `session` with all of `batch` to `out`.
    ///
    /// # Errors
    /// Returns [`Oversized`] if a collector would refuse the frame; `out` is unchanged then.
    pub fn encode(
        &mut self,
        out: &mut Vec<u8>,
        session: SessionId,
        sequence: u64,
        batch: &Batch,
        extras: Extras<'_>,
    ) -> Result<(), Oversized> {
        let longest = extras.dictionary.len().max(extras.ledger.len()).max(extras.events.len());
        if longest > limits::SECTION_ENTRIES {
            return Err(Oversized);
        }
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.push(VERSION);
        out.extend_from_slice(&session.0.to_le_bytes());
        put_varint(out, sequence);
        let base_us = batch.rows.first().map_or(0, |row| row.instant.time_us);
        put_varint(out, zigzag(base_us));
        self.put_section(out, SECTION_DICTIONARY, extras.dictionary);
        self.put_blocks(out, batch, base_us);
        self.put_section(out, SECTION_LEDGER, extras.ledger);
        self.put_section(out, SECTION_EVENTS, extras.events);
        let checksum = crc32fast::hash(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&checksum.to_le_bytes());
        if out.len() - start > limits::FRAME_BYTES {
            out.truncate(start);
            return Err(Oversized);
        }
        Ok(())
    }

    /// Appends sections with all `entries`. A list that does not fit [`limits::MESSAGE_BYTES`] is halved
    /// until its parts do.
    fn put_section<T: serde::Serialize>(&mut self, out: &mut Vec<u8>, kind: u8, entries: &[T]) {
        // The maximum number of entries that are serialised at once, so that the buffer stays small.
        const CHUNK: usize = 1024;
        // A decoder may count an integer of one byte as eight bytes.
        const SECTION_BYTES: usize = limits::MESSAGE_BYTES / 8;
        if entries.is_empty() {
            return;
        }
        self.serialised.clear();
        if entries.len() <= CHUNK {
            envelope::put(&mut self.serialised, &entries);
        }
        if entries.len() > CHUNK || (self.serialised.len() > SECTION_BYTES && entries.len() > 1) {
            let (first, second) = entries.split_at(entries.len() / 2);
            self.put_section(out, kind, first);
            self.put_section(out, kind, second);
            return;
        }
        out.push(kind);
        put_varint(out, self.serialised.len() as u64);
        out.extend_from_slice(&self.serialised);
    }

    fn put_blocks(&mut self, out: &mut Vec<u8>, batch: &Batch, base_us: i64) {
        let mut by_shape = std::mem::take(&mut self.by_shape);
        if by_shape.len() < batch.shapes.len() {
            by_shape.resize_with(batch.shapes.len(), Vec::new);
        }
        let rows = Rows::new(batch, std::mem::take(&mut self.absent_from));
        for (number, row) in (0..).zip(&batch.rows) {
            if let Some(numbers) = by_shape.get_mut(row.shape as usize) {
                numbers.push(number);
            }
        }
        for (shape, numbers) in batch.shapes.iter().zip(&mut by_shape) {
            for alike in numbers.chunk_by(|a, b| rows.are_alike(*a, *b)) {
                self.put_block(out, &rows, shape, alike, base_us);
            }
            numbers.clear();
        }
        self.absent_from = rows.absent_from;
        self.by_shape = by_shape;
    }

    /// Appends a block of rows that have the same shape and absent columns, and are all on the grid or all
    /// outside of it.
    fn put_block(
        &mut self,
        out: &mut Vec<u8>,
        rows: &Rows<'_>,
        shape: &Arc<Shape>,
        numbers: &[u32],
        base_us: i64,
    ) {
        let Some(first) = numbers.first() else { return };
        let missing = rows.absent_columns(*first);
        let is_missing = |column: usize| missing.iter().any(|(_, absent)| *absent as usize == column);
        let width = shape.columns.len();
        let lone = numbers.len() == 1;
        out.push(match (lone, missing.is_empty()) {
            (false, true) => SECTION_BLOCK,
            (false, false) => SECTION_PARTIAL_BLOCK,
            (true, true) => SECTION_LONE_BLOCK,
            (true, false) => SECTION_LONE_PARTIAL_BLOCK,
        });
        put_varint(out, u64::from(shape.id.0));
        put_varint(out, width as u64);
        if !missing.is_empty() {
            put_bitmap(out, width, is_missing);
        }
        if !lone {
            put_varint(out, numbers.len() as u64);
        }
        self.instants.clear();
        self.instants.extend(numbers.iter().filter_map(|number| Some(rows.get(*number)?.instant)));
        self.put_times(out, shape.period.as_micros(), base_us);
        if lone && missing.is_empty() {
            // The values of one row are in the order of its columns.
            self.columns.put_row(out, rows.values(*first, width), shape.columns.iter().map(coding));
            return;
        }
        let present = || shape.columns.iter().enumerate().filter(|(column, _)| !is_missing(*column));
        self.transposed.clear();
        for (column, _) in present() {
            self.transposed.extend(numbers.iter().map(|number| rows.value(*number, column)));
        }
        if lone {
            self.columns.put_row(out, &self.transposed, present().map(|(_, column)| coding(column)));
            return;
        }
        self.columns.begin_block();
        for (_, column) in present() {
            self.columns.put(out, &self.transposed, numbers.len(), coding(column));
        }
        self.columns.flush(out);
    }

    fn put_times(&mut self, out: &mut Vec<u8>, period_us: u64, base_us: i64) {
        let instants = std::mem::take(&mut self.instants);
        let grid_us = |instant: &Instant| {
            instant.deadline.map(|deadline| deadline.wrapping_mul(period_us).cast_signed())
        };
        match instants.split_first().map(|(first, rest)| (first, rest, grid_us(first))) {
            None => {}
            Some((first, [], _)) => put_varint(out, zigzag(first.time_us.wrapping_sub(base_us))),
            Some((first, _, None)) => {
                put_varint(out, zigzag(first.time_us.wrapping_sub(base_us)));
                put_varint(out, 0);
                let offset = |instant: &Instant| instant.time_us.wrapping_sub(first.time_us).cast_unsigned();
                self.put_single(out, instants.iter().map(offset), Coding::Difference);
            }
            Some((_, rest, Some(anchor_us))) => {
                put_varint(out, zigzag(anchor_us.wrapping_sub(base_us)));
                put_varint(out, period_us);
                let deadline = |instant: &Instant| instant.deadline.unwrap_or_default();
                let gaps = instants
                    .iter()
                    .zip(rest)
                    .map(|(before, after)| deadline(after).wrapping_sub(deadline(before)));
                self.put_single(out, gaps, Coding::Level);
                let offset = |instant: &Instant| {
                    instant.time_us.wrapping_sub(grid_us(instant).unwrap_or_default()).cast_unsigned()
                };
                self.put_single(out, instants.iter().map(offset), Coding::Level);
            }
        }
        self.instants = instants;
    }

    fn put_single(&mut self, out: &mut Vec<u8>, values: impl Iterator<Item = u64>, coding: Coding) {
        self.times.clear();
        self.times.extend(values);
        self.columns.begin_block();
        self.columns.put(out, &self.times, self.times.len(), coding);
        self.columns.flush(out);
    }
}

/// The rows of a batch, with the absent columns of each.
struct Rows<'a> {
    batch: &'a Batch,
    /// For each row, the index of its first absent column in the batch's list; one more at the end.
    absent_from: Vec<u32>,
}

impl<'a> Rows<'a> {
    fn new(batch: &'a Batch, mut absent_from: Vec<u32>) -> Self {
        absent_from.clear();
        let mut at = 0;
        for number in 0..=batch.rows.len() {
            while batch.absent.get(at).is_some_and(|(row, _)| (*row as usize) < number) {
                at += 1;
            }
            absent_from.push(u32::try_from(at).unwrap_or(u32::MAX));
        }
        Self { batch, absent_from }
    }

    fn get(&self, number: u32) -> Option<&'a Row> {
        self.batch.rows.get(number as usize)
    }

    fn values(&self, number: u32, width: usize) -> &'a [u64] {
        let at = self.get(number).map_or(0, |row| row.values_at as usize);
        self.batch.values.get(at..at + width).unwrap_or_default()
    }

    fn value(&self, number: u32, column: usize) -> u64 {
        let value = self.get(number).and_then(|row| self.batch.values.get(row.values_at as usize + column));
        value.copied().unwrap_or_default()
    }

    fn absent_columns(&self, number: u32) -> &'a [(u32, u32)] {
        let at = |row: usize| self.absent_from.get(row).map_or(0, |at| *at as usize);
        self.batch.absent.get(at(number as usize)..at(number as usize + 1)).unwrap_or_default()
    }

    fn are_alike(&self, a: u32, b: u32) -> bool {
        let on_grid = |number| self.get(number).is_some_and(|row| row.instant.deadline.is_some());
        let columns = |number| self.absent_columns(number).iter().map(|(_, column)| *column);
        on_grid(a) == on_grid(b) && columns(a).eq(columns(b))
    }
}

/// Returns the coding of a series.
const fn coding(column: &Column) -> Coding {
    match column.metric.1.number {
        Number::Unsigned | Number::Signed => Coding::Difference,
        Number::Float => Coding::Xor,
    }
}

fn put_bitmap(out: &mut Vec<u8>, width: usize, is_missing: impl Fn(usize) -> bool) {
    for first in (0..width).step_by(8) {
        let present = |bit: &usize| first + bit < width && !is_missing(first + bit);
        out.push((0..8).filter(present).fold(0, |byte, bit| byte | 1 << bit));
    }
}
