//! Decodes frames.

use super::format::{
    Block, BlockHistogram, BlockWindows, CHANGES, CHECKSUM_BYTES, Frame, MAGIC, SECTION_BLOCK,
    SECTION_DICTIONARY, SECTION_EVENTS, SECTION_KEPT, SECTION_LEDGER, SECTION_LONE_BLOCK,
    SECTION_LONE_PARTIAL_BLOCK, SECTION_PARTIAL_BLOCK, SECTION_SHAPE_TALLIES, SECTION_STACKS, WINDOWS,
};
use super::ledger::{PackedEntry, get_shape_tallies, unpack};
use crate::series::{SessionId, ShapeId};
use crate::stacks::StackInterval;
use crate::window::PARTS;
use crate::wire::bytes::{Cursor, DecodeError, unzigzag};
use crate::wire::column::get_columns;
use crate::wire::{VERSION, envelope, summaries};
use crate::{histogram, limits};

pub(super) fn frame(bytes: &[u8]) -> Result<Frame, DecodeError> {
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
    let mut frame = Frame {
        session,
        sequence,
        dictionary: Vec::new(),
        blocks: Vec::new(),
        ledger: Vec::new(),
        shape_tallies: Vec::new(),
        events: Vec::new(),
        stacks: Vec::new(),
        is_kept: false,
    };
    let mut values_left = limits::FRAME_VALUES;
    while !cursor.is_empty() {
        match cursor.byte()? {
            SECTION_DICTIONARY => get_section(&mut cursor, &mut frame.dictionary)?,
            SECTION_LEDGER => {
                let mut packed: Vec<PackedEntry<'static>> = Vec::new();
                get_section(&mut cursor, &mut packed)?;
                unpack(&packed, &mut frame.ledger)?;
            }
            SECTION_SHAPE_TALLIES => get_shape_tallies(&mut cursor, &mut frame.shape_tallies)?,
            SECTION_EVENTS => get_section(&mut cursor, &mut frame.events)?,
            SECTION_STACKS => {
                get_section(&mut cursor, &mut frame.stacks)?;
                check_stacks(&frame.stacks)?;
            }
            SECTION_KEPT => frame.is_kept = true,
            kind => {
                if frame.blocks.len() == limits::FRAME_BLOCKS {
                    return Err(DecodeError::Contradiction("a frame has too many blocks"));
                }
                frame.blocks.push(get_block(&mut cursor, kind, base_us, &mut values_left)?);
            }
        }
    }
    Ok(frame)
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

fn check_stacks(intervals: &[StackInterval]) -> Result<(), DecodeError> {
    let counts = || intervals.iter().map(|interval| interval.counts.len());
    for (what, found, limit) in [
        ("counts of an interval of call stacks", counts().max().unwrap_or(0), limits::STACK_COUNTS),
        ("counts of call stacks in a frame", counts().sum(), limits::FRAME_STACK_COUNTS),
    ] {
        if found > limit {
            return Err(DecodeError::Limit { what, found: found as u64, limit: limit as u64 });
        }
    }
    Ok(())
}

fn get_block(
    cursor: &mut Cursor<'_>,
    kind: u8,
    base_us: i64,
    values_left: &mut usize,
) -> Result<Block, DecodeError> {
    let has_windows = kind & WINDOWS > 0;
    let (is_partial, is_lone) = match kind & !WINDOWS {
        SECTION_BLOCK => (false, false),
        SECTION_PARTIAL_BLOCK => (true, false),
        SECTION_LONE_BLOCK => (false, true),
        SECTION_LONE_PARTIAL_BLOCK => (true, true),
        _ => return Err(DecodeError::Tag { what: "kind of section", found: kind }),
    };
    let shape = cursor.number("number of a shape")?;
    let shape_columns = cursor.count("columns in a block", limits::BLOCK_COLUMNS)?;
    let columns = if is_partial { get_bitmap(cursor, shape_columns)? } else { (0..shape_columns).collect() };
    let ticks = if is_lone { 1 } else { cursor.count("ticks in a block", limits::BLOCK_TICKS)? };
    if ticks == 0 {
        return Err(DecodeError::Contradiction("a block has no ticks"));
    }
    // The times take as much memory as one more column.
    let parts = if has_windows { PARTS } else { 1 };
    let wanted = (parts * columns.len() + 1) * ticks;
    *values_left = values_left.checked_sub(wanted).ok_or(DecodeError::Limit {
        what: "values in a frame",
        found: (limits::FRAME_VALUES - *values_left + wanted) as u64,
        limit: limits::FRAME_VALUES as u64,
    })?;
    let times_us = get_times(cursor, ticks, base_us)?;
    if has_windows {
        let (values, windows) = get_windows(cursor, columns.len(), ticks, values_left)?;
        let windows = Some(windows);
        return Ok(Block { shape: ShapeId(shape), shape_columns, columns, times_us, values, windows });
    }
    let mut values = Vec::new();
    get_columns(cursor, columns.len(), ticks, &mut values)?;
    Ok(Block { shape: ShapeId(shape), shape_columns, columns, times_us, values, windows: None })
}

/// Reads the last values of windows of `series`, and their other parts.
fn get_windows(
    cursor: &mut Cursor<'_>,
    series: usize,
    ticks: usize,
    values_left: &mut usize,
) -> Result<(Vec<u64>, BlockWindows), DecodeError> {
    let head = cursor.varint()?;
    let (count, has_histograms) = (head >> 1, head & 1 == 1);
    let count_columns = if count == 0 { series } else { 0 };
    let (mut counts, parts) = if ticks == 1 {
        let mut counts = Vec::new();
        get_columns(cursor, count_columns, ticks, &mut counts)?;
        (counts, by_part(&summaries::get(cursor, series)?))
    } else {
        get_changes(cursor, series, count_columns, ticks)?
    };
    if count > 0 {
        counts = vec![count; series * ticks];
    }
    if let Some(most) = counts.iter().max().filter(|most| **most > limits::WINDOW_SAMPLES) {
        let limit = limits::WINDOW_SAMPLES;
        return Err(DecodeError::Limit { what: "samples in a window", found: *most, limit });
    }
    let histograms =
        if has_histograms { get_histograms(cursor, &counts, ticks, values_left)? } else { Vec::new() };
    let [values, max, min, sum] = parts;
    Ok((values, BlockWindows { counts, min, max, sum, histograms }))
}

/// Parts of windows: the last values, then those of [`CHANGES`], each series by series.
type WindowParts = [Vec<u64>; 1 + CHANGES.len()];

fn by_part(series: &[summaries::Parts]) -> WindowParts {
    let part = |number: usize| series.iter().filter_map(|parts| parts.get(number).copied()).collect();
    [0, 1, 2, 3].map(part)
}

/// Reads the counts of several windows, of so many columns, and the parts of all.
fn get_changes(
    cursor: &mut Cursor<'_>,
    series: usize,
    count_columns: usize,
    ticks: usize,
) -> Result<(Vec<u64>, WindowParts), DecodeError> {
    let changed = get_bitmap(cursor, series)?;
    let mut counts = Vec::new();
    get_columns(cursor, count_columns + series + CHANGES.len() * changed.len(), ticks, &mut counts)?;
    let mut columns = counts.split_off(count_columns * ticks).into_iter();
    let mut parts = [(); 1 + CHANGES.len()].map(|()| Vec::with_capacity(series * ticks));
    let mut changed = changed.into_iter().peekable();
    for position in 0..series {
        let has_changed = changed.next_if_eq(&position).is_some();
        for (number, part) in parts.iter_mut().enumerate() {
            if number == 0 || has_changed {
                part.extend(columns.by_ref().take(ticks));
            } else {
                part.resize(part.len() + ticks, 0);
            }
        }
    }
    Ok((counts, parts))
}

/// Reads the histograms of windows, whose numbers of samples `counts` has series by series. Each histogram
/// takes a value of the limit, and each of its buckets one.
fn get_histograms(
    cursor: &mut Cursor<'_>,
    counts: &[u64],
    ticks: usize,
    values_left: &mut usize,
) -> Result<Vec<BlockHistogram>, DecodeError> {
    let mut histograms = Vec::new();
    let series = counts.len() / ticks.max(1);
    let mut next_window = 0;
    for _ in 0..cursor.count("histograms in a block", counts.len())? {
        let window = next_window + cursor.count("windows before a histogram", counts.len())?;
        next_window = window + 1;
        let (tick, position) = (window / series.max(1), window % series.max(1));
        let samples = counts.get(position * ticks + tick).filter(|_| tick < ticks);
        let samples = samples.ok_or(DecodeError::Contradiction("a histogram has no window"))?;
        let counts = get_buckets(cursor, *samples)?;
        *values_left = values_left
            .checked_sub(counts.len() + 1)
            .ok_or(DecodeError::Contradiction("a frame has too many buckets"))?;
        histograms.push(BlockHistogram { tick, position, counts });
    }
    Ok(histograms)
}

fn get_buckets(cursor: &mut Cursor<'_>, samples: u64) -> Result<Vec<(u16, u64)>, DecodeError> {
    let mut counts = Vec::new();
    let (mut next, mut counted) = (0_u64, 0_u64);
    for _ in 0..cursor.count("buckets of a histogram", histogram::BUCKETS.into())? {
        let (bucket, count) = (next.saturating_add(cursor.varint()?), cursor.varint()?);
        next = bucket.saturating_add(1);
        counted = counted.saturating_add(count);
        let bucket = u16::try_from(bucket).ok().filter(|bucket| *bucket < histogram::BUCKETS);
        let bucket = bucket.ok_or(DecodeError::Contradiction("a histogram has a bucket beyond its last"))?;
        if count == 0 || counted > samples {
            return Err(DecodeError::Contradiction("a histogram has other samples than its window"));
        }
        counts.push((bucket, count));
    }
    Ok(counts)
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
