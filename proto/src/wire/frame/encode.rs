//! Encodes batches into frames.

use std::collections::HashMap;
use std::sync::Arc;

use super::format::{
    CHANGES, Extras, MAGIC, Oversized, SECTION_BLOCK, SECTION_DICTIONARY, SECTION_EVENTS, SECTION_KEPT,
    SECTION_LEDGER, SECTION_LONE_BLOCK, SECTION_LONE_PARTIAL_BLOCK, SECTION_PARTIAL_BLOCK,
    SECTION_SHAPE_TALLIES, SECTION_STACKS, WINDOWS,
};
use super::ledger::{pack, put_shape_tallies};
use super::rows::Rows;
use crate::batch::{Batch, Column, Instant, Shape};
use crate::ledger::{LedgerEntry, Tally};
use crate::limits;
use crate::series::{Kind, Number, SessionId, ShapeId};
use crate::window::COUNT_PART;
use crate::wire::bytes::{put_varint, zigzag};
use crate::wire::column::{Coding, ColumnEncoder};
use crate::wire::{VERSION, envelope, summaries};

/// Encodes batches into frames. Keeps its buffers between frames.
#[derive(Debug, Default)]
pub struct Encoder {
    columns: ColumnEncoder,
    by_shape: Vec<Vec<u32>>,
    absent_from: Vec<u32>,
    instants: Vec<Instant>,
    transposed: Vec<u64>,
    codings: Vec<Coding>,
    times: Vec<u64>,
    serialised: Vec<u8>,
}

impl Encoder {
    /// Appends the frame `sequence` of `session` with all of `batch` to `out`. Leaves `out` unchanged and
    /// returns [`Oversized`] if a collector would refuse the frame.
    pub fn encode(
        &mut self,
        out: &mut Vec<u8>,
        session: SessionId,
        sequence: u64,
        batch: &Batch,
        extras: Extras<'_>,
    ) -> Result<(), Oversized> {
        let Extras { dictionary, ledger, events, stacks, is_kept } = extras;
        let longest = dictionary.len().max(ledger.len()).max(events.len()).max(stacks.len());
        let counts: usize = stacks.iter().map(|interval| interval.counts.len()).sum();
        let has_long = stacks.iter().any(|interval| interval.counts.len() > limits::STACK_COUNTS);
        if longest > limits::SECTION_ENTRIES || counts > limits::FRAME_STACK_COUNTS || has_long {
            return Err(Oversized);
        }
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.push(VERSION);
        out.extend_from_slice(&session.0.to_le_bytes());
        put_varint(out, sequence);
        let base_us = batch.rows.first().map_or(0, |row| row.instant.time_us);
        put_varint(out, zigzag(base_us));
        self.put_section(out, SECTION_DICTIONARY, dictionary);
        if is_kept {
            out.push(SECTION_KEPT);
        }
        self.put_blocks(out, batch, base_us);
        let (of_shapes, named) = divide(ledger, &batch.shapes);
        if !of_shapes.is_empty() {
            out.push(SECTION_SHAPE_TALLIES);
            put_shape_tallies(out, &of_shapes);
        }
        self.put_section(out, SECTION_LEDGER, &pack(&named));
        self.put_section(out, SECTION_EVENTS, events);
        self.put_section(out, SECTION_STACKS, stacks);
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
        self.absent_from = rows.into_absent_from();
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
        let is_present = |column: usize| missing.iter().all(|(_, absent)| *absent as usize != column);
        let width = shape.columns.len();
        let lone = numbers.len() == 1;
        let kind = match (lone, missing.is_empty()) {
            (false, true) => SECTION_BLOCK,
            (false, false) => SECTION_PARTIAL_BLOCK,
            (true, true) => SECTION_LONE_BLOCK,
            (true, false) => SECTION_LONE_PARTIAL_BLOCK,
        };
        out.push(if shape.window.is_some() { kind | WINDOWS } else { kind });
        put_varint(out, u64::from(shape.id.0));
        put_varint(out, width as u64);
        if !missing.is_empty() {
            put_bitmap(out, width, is_present);
        }
        if !lone {
            put_varint(out, numbers.len() as u64);
        }
        self.instants.clear();
        self.instants.extend(numbers.iter().filter_map(|number| Some(rows.get(*number)?.instant)));
        self.put_times(out, shape.row_period().as_micros(), base_us);
        if lone && missing.is_empty() && shape.window.is_none() {
            // The values of one row are in the order of its columns.
            let codings = shape.columns.iter().map(|column| coding(0, column));
            self.columns.put_row(out, rows.values(*first, width), codings);
            return;
        }
        let present: Vec<usize> = (0..width).filter(|column| is_present(*column)).collect();
        if shape.window.is_some() {
            self.put_windows(out, rows, shape, numbers, &present);
        } else {
            self.put_columns(out, rows, shape, numbers, present.into_iter().map(|column| (0, column)));
        }
    }

    /// Appends the parts of windows. Of a series that changed in none of several windows, the last values are
    /// all.
    fn put_windows(
        &mut self,
        out: &mut Vec<u8>,
        rows: &Rows<'_>,
        shape: &Shape,
        numbers: &[u32],
        present: &[usize],
    ) {
        let values = |part: usize, column: usize| {
            let at = part * shape.columns.len() + column;
            numbers.iter().map(move |number| rows.value(*number, at))
        };
        let mut counts = present.iter().flat_map(|column| values(COUNT_PART, *column));
        let count = counts.next().unwrap_or_default();
        let are_equal = counts.all(|other| other == count);
        let count = if are_equal { count } else { 0 };
        let has_histograms = numbers.iter().any(|number| rows.histograms(*number).next().is_some());
        put_varint(out, count << 1 | u64::from(has_histograms));
        let counts = present.iter().filter(|_| !are_equal).map(|column| (COUNT_PART, *column));
        if let [number] = numbers {
            self.put_columns(out, rows, shape, numbers, counts);
            put_summaries(out, rows, shape, *number, present);
        } else {
            self.put_changes(out, rows, shape, numbers, present, counts);
        }
        if has_histograms {
            put_histograms(out, rows, numbers, present);
        }
    }

    fn put_changes(
        &mut self,
        out: &mut Vec<u8>,
        rows: &Rows<'_>,
        shape: &Shape,
        numbers: &[u32],
        present: &[usize],
        counts: impl Iterator<Item = (usize, usize)>,
    ) {
        let has_changed: Vec<bool> = present
            .iter()
            .map(|column| {
                let at = |part: usize| part * shape.columns.len() + *column;
                CHANGES.iter().any(|part| numbers.iter().any(|number| rows.value(*number, at(*part)) != 0))
            })
            .collect();
        put_bitmap(out, present.len(), |position| has_changed.get(position).copied().unwrap_or_default());
        let parts = present.iter().zip(&has_changed).flat_map(|(column, has_changed)| {
            let changes = CHANGES.iter().filter(|_| *has_changed);
            std::iter::once(&0).chain(changes).map(|part| (*part, *column))
        });
        self.put_columns(out, rows, shape, numbers, counts.chain(parts));
    }

    /// Appends columns, each a part of the values and the column of a shape.
    fn put_columns(
        &mut self,
        out: &mut Vec<u8>,
        rows: &Rows<'_>,
        shape: &Shape,
        numbers: &[u32],
        columns: impl Iterator<Item = (usize, usize)>,
    ) {
        let width = shape.columns.len();
        self.transposed.clear();
        self.codings.clear();
        for (part, column) in columns {
            let at = part * width + column;
            self.transposed.extend(numbers.iter().map(|number| rows.value(*number, at)));
            self.codings.extend(shape.columns.get(column).map(|column| coding(part, column)));
        }
        if numbers.len() == 1 {
            self.columns.put_row(out, &self.transposed, self.codings.iter().copied());
            return;
        }
        self.columns.begin_block();
        for coding in &self.codings {
            self.columns.put(out, &self.transposed, numbers.len(), *coding);
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
                self.put_single(
                    out,
                    instants
                        .iter()
                        .map(|instant| instant.time_us.wrapping_sub(first.time_us).cast_unsigned()),
                    Coding::Difference,
                );
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
                self.put_single(
                    out,
                    instants.iter().map(|instant| {
                        instant.time_us.wrapping_sub(grid_us(instant).unwrap_or_default()).cast_unsigned()
                    }),
                    Coding::Level,
                );
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

/// Divides tallies into those of the sources of `shapes`, and others.
fn divide<'a>(
    ledger: &'a [LedgerEntry],
    shapes: &[Arc<Shape>],
) -> (Vec<(ShapeId, Tally)>, Vec<&'a LedgerEntry>) {
    let (mut of_shapes, mut named) = (Vec::new(), Vec::new());
    if ledger.is_empty() {
        return (of_shapes, named);
    }
    // Of several shapes of a source the first is named.
    let by_source: HashMap<_, ShapeId> = shapes
        .iter()
        .rev()
        .map(|shape| ((shape.job.as_ref().map(|job| job.handle), &shape.source), shape.id))
        .collect();
    for entry in ledger {
        match by_source.get(&(entry.job, &entry.source)) {
            Some(shape) => of_shapes.push((*shape, entry.tally)),
            None => named.push(entry),
        }
    }
    (of_shapes, named)
}

/// Appends the row of a single window.
fn put_summaries(out: &mut Vec<u8>, rows: &Rows<'_>, shape: &Shape, number: u32, present: &[usize]) {
    let [most, least, sum] = CHANGES;
    let series: Vec<_> = present
        .iter()
        .filter_map(|position| {
            let value = |part: usize| rows.value(number, part * shape.columns.len() + *position);
            let column = shape.columns.get(*position)?;
            let is_double = column.metric.1.number == Number::Float && column.metric.1.kind == Kind::Gauge;
            Some(([0, most, least, sum].map(value), is_double))
        })
        .collect();
    summaries::put(out, &series);
}

/// Appends the histograms of windows, row by row: for each the number of windows since the one before, then
/// its buckets in the same way, and their counts.
fn put_histograms(out: &mut Vec<u8>, rows: &Rows<'_>, numbers: &[u32], present: &[usize]) {
    let all = || {
        numbers.iter().zip(0..).flat_map(|(number, tick)| rows.histograms(*number).map(move |of| (tick, of)))
    };
    put_varint(out, all().count() as u64);
    let mut next_window = 0;
    for (tick, (histogram, buckets)) in all() {
        let position = present.partition_point(|column| *column < histogram.column as usize);
        let window = tick * present.len() + position;
        put_varint(out, (window - next_window) as u64);
        put_varint(out, buckets.len() as u64);
        next_window = window + 1;
        let mut next_bucket = 0;
        for (bucket, count) in buckets {
            put_varint(out, u64::from(*bucket - next_bucket));
            put_varint(out, u64::from(*count));
            next_bucket = bucket + 1;
        }
    }
}

/// Packed parts of windows are integers whatever the number of the metric is, but for the last value.
const fn coding(part: usize, column: &Column) -> Coding {
    match (column.metric.1.number, part) {
        (Number::Float, 0) => Coding::Xor,
        (Number::Unsigned | Number::Signed | Number::Float, _) => Coding::Difference,
    }
}

fn put_bitmap(out: &mut Vec<u8>, width: usize, is_set: impl Fn(usize) -> bool) {
    for first in (0..width).step_by(8) {
        out.push(
            (0..8)
                .filter(|bit| first + bit < width && is_set(first + bit))
                .fold(0, |byte, bit| byte | 1 << bit),
        );
    }
}
