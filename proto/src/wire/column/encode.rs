//! Encodes columns.

use super::tag::{
    ARGUMENT_MAX, Coding, MODE_CONSTANT, MODE_COPY, MODE_LEVEL_PACKED, MODE_LEVEL_RUNS, MODE_PACKED,
    MODE_RUNS, MODE_XOR, MODE_ZERO, PACK, tag,
};
use crate::wire::bytes::{Appender, Sink, low_byte, put_varint, varint_len, zigzag};

/// Size of the hash table in which earlier columns of a block are found. A collision replaces the earlier
/// column, which costs only the chance to copy it.
const PLACES: usize = 1024;

/// Most bytes that a column of one value takes: its tag and the longest varint.
const LONE_BYTES: usize = 11;

/// Encodes the columns of one block, which must all have the same length. Keeps its buffers from block to
/// block.
#[derive(Debug)]
pub(crate) struct ColumnEncoder {
    differences: Vec<u64>,
    pending: Pending,
    /// Block and position of the last column, for each slot of the hash table.
    seen: Vec<(u32, u32)>,
    block: u32,
    position: usize,
}

impl Default for ColumnEncoder {
    fn default() -> Self {
        Self {
            differences: Vec::new(),
            pending: Pending::Nothing,
            seen: vec![(0, 0); PLACES],
            block: 0,
            position: 0,
        }
    }
}

/// Columns whose tag is not written yet, since the next column may extend the run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Pending {
    #[default]
    Nothing,
    Zeros(u8),
    Copies {
        distance: usize,
        count: u64,
    },
}

impl ColumnEncoder {
    /// Forgets the columns of earlier blocks.
    pub(crate) fn begin_block(&mut self) {
        // Entries of the hash table with another block number are ignored.
        self.block = self.block.wrapping_add(1);
        self.pending = Pending::Nothing;
        self.position = 0;
    }

    /// Appends the column at `position` of `columns`, which contains the block's columns in sequence.
    pub(crate) fn put(&mut self, out: &mut Vec<u8>, columns: &[u64], ticks: usize, coding: Coding) {
        let start = self.position * ticks;
        let column = columns.get(start..start + ticks).unwrap_or_default();
        let same_at = |position: usize| columns.get(position * ticks..(position + 1) * ticks) == Some(column);
        let hash = hash(column);
        if let Some(distance) = self.extended_distance(same_at) {
            self.put_copy(out, distance);
        } else if hash == 0 && column.iter().all(|value| *value == 0) {
            self.put_zero(out);
        } else if let Some(distance) = self.distance_to_same(hash, same_at) {
            self.put_copy(out, distance);
        } else {
            self.flush(out);
            put_column(out, column, coding, &mut self.differences);
        }
        self.position += 1;
    }

    /// Appends a block of one row, with the same result as [`Self::put`] for columns of one value, but one
    /// store for each item.
    pub(crate) fn put_row(&mut self, out: &mut Vec<u8>, row: &[u64], codings: impl Iterator<Item = Coding>) {
        self.begin_block();
        let mut out = Appender::new(out, row.len() * LONE_BYTES);
        for (value, coding) in row.iter().zip(codings) {
            let same_at = |position: usize| row.get(position) == Some(value);
            if let Some(distance) = self.extended_distance(same_at) {
                self.put_copy(&mut out, distance);
            } else if *value == 0 {
                self.put_zero(&mut out);
            } else if let Some(distance) = self.distance_to_same(hash(&[*value]), same_at) {
                self.put_copy(&mut out, distance);
            } else {
                self.flush(&mut out);
                put_lone(&mut out, *value, coding);
            }
            self.position += 1;
        }
        self.flush(&mut out);
    }

    /// Writes the pending run. Must be called after the last column of a block.
    pub(crate) fn flush(&mut self, out: &mut impl Sink) {
        match std::mem::take(&mut self.pending) {
            Pending::Nothing => {}
            Pending::Zeros(count) => out.byte(tag(MODE_ZERO, count - 1)),
            Pending::Copies { distance, count } => {
                match u8::try_from(distance) {
                    Ok(near) if near <= ARGUMENT_MAX => out.byte(tag(MODE_COPY, near)),
                    _ => {
                        out.byte(tag(MODE_COPY, 0));
                        out.varint(distance as u64);
                    }
                }
                out.varint(count - 1);
            }
        }
    }

    /// Returns the distance to an earlier column in the hash table that `same_at` finds equal, and adds this
    /// column.
    fn distance_to_same(&mut self, hash: u64, same_at: impl Fn(usize) -> bool) -> Option<usize> {
        let place = self.seen.get_mut(usize::try_from(hash >> (64 - PLACES.ilog2())).ok()?)?;
        let position = u32::try_from(self.position).unwrap_or(u32::MAX);
        let (block, seen_at) = std::mem::replace(place, (self.block, position));
        let seen_at = seen_at as usize;
        let before = block == self.block && seen_at < self.position;
        (before && same_at(seen_at)).then(|| self.position - seen_at)
    }

    /// Returns the distance of the pending copies, if the next column extends them. That costs nothing, so it
    /// is tried first, also for zeros.
    fn extended_distance(&self, same_at: impl Fn(usize) -> bool) -> Option<usize> {
        let Pending::Copies { distance, .. } = self.pending else { return None };
        let position = self.position.checked_sub(distance)?;
        same_at(position).then_some(distance)
    }

    fn put_zero(&mut self, out: &mut impl Sink) {
        self.pending = match self.pending {
            Pending::Zeros(count) if count <= ARGUMENT_MAX => Pending::Zeros(count + 1),
            Pending::Nothing | Pending::Zeros(_) | Pending::Copies { .. } => {
                self.flush(out);
                Pending::Zeros(1)
            }
        };
    }

    fn put_copy(&mut self, out: &mut impl Sink, distance: usize) {
        self.pending = match self.pending {
            Pending::Copies { distance: pending, count } if pending == distance => {
                Pending::Copies { distance, count: count + 1 }
            }
            Pending::Nothing | Pending::Zeros(_) | Pending::Copies { .. } => {
                self.flush(out);
                Pending::Copies { distance, count: 1 }
            }
        };
    }
}

/// Returns a fast hash, which is zero for a column of zeros. It only avoids most comparisons.
fn hash(column: &[u64]) -> u64 {
    column.iter().fold(0, |hash, value| (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23))
}

/// Appends a column of one value, as a constant.
fn put_lone(out: &mut Appender<'_>, value: u64, coding: Coding) {
    if coding == Coding::Xor {
        out.byte(tag(MODE_XOR, 0));
        out.word(value, size_of::<u64>());
    } else {
        let shift = low_byte(u64::from(value.trailing_zeros())).min(ARGUMENT_MAX);
        out.byte(tag(MODE_CONSTANT, shift));
        out.varint(value >> shift);
    }
}

fn put_column(out: &mut Vec<u8>, column: &[u64], coding: Coding, differences: &mut Vec<u64>) {
    let Some((&first, rest)) = column.split_first() else { return };
    if coding == Coding::Xor {
        put_xor(out, first, rest);
        return;
    }
    differences.clear();
    let mut all = first;
    match coding {
        Coding::Level => differences.extend(rest.iter().map(|value| value.wrapping_sub(first))),
        Coding::Difference | Coding::Xor => {
            let pairs = column.iter().zip(rest);
            differences.extend(pairs.map(|(before, value)| value.wrapping_sub(*before)));
        }
    }
    let changes = differences.iter().fold(0, |all, difference| all | difference);
    all |= changes;
    let shift = low_byte(u64::from(all.trailing_zeros())).min(ARGUMENT_MAX);
    if changes == 0 {
        out.push(tag(MODE_CONSTANT, shift));
        put_varint(out, first >> shift);
        return;
    }
    // An arithmetic shift keeps the sign of a difference. The bits that are shifted out are zero.
    for difference in differences.iter_mut() {
        *difference = (difference.cast_signed() >> shift).cast_unsigned();
    }
    let packed = packed_len(differences);
    let runs = runs_len(differences);
    let level = coding == Coding::Level;
    let mode = match (runs <= packed, level) {
        (true, false) => MODE_RUNS,
        (true, true) => MODE_LEVEL_RUNS,
        (false, false) => MODE_PACKED,
        (false, true) => MODE_LEVEL_PACKED,
    };
    out.push(tag(mode, shift));
    put_varint(out, first >> shift);
    if runs <= packed { put_runs(out, differences) } else { put_packed(out, differences) }
}

/// Returns true if a zigzagged difference fits a token, which has 63 bits for it.
const fn fits_token(difference: u64) -> bool {
    zigzag(difference.cast_signed()) <= u64::MAX >> 1
}

fn runs_len(differences: &[u64]) -> usize {
    let mut len = 0;
    let mut zeros = 0_u64;
    for &difference in differences {
        if difference == 0 {
            zeros += 1;
            continue;
        }
        if !fits_token(difference) {
            return usize::MAX;
        }
        if zeros > 0 {
            len += varint_len((zeros - 1) << 1);
            zeros = 0;
        }
        len += varint_len(zigzag(difference.cast_signed()) << 1);
    }
    if zeros > 0 { len + varint_len((zeros - 1) << 1) } else { len }
}

fn put_runs(out: &mut Vec<u8>, differences: &[u64]) {
    let mut zeros = 0_u64;
    for &difference in differences {
        if difference == 0 {
            zeros += 1;
            continue;
        }
        if zeros > 0 {
            put_varint(out, (zeros - 1) << 1);
            zeros = 0;
        }
        put_varint(out, (zigzag(difference.cast_signed()) << 1) | 1);
    }
    if zeros > 0 {
        put_varint(out, (zeros - 1) << 1);
    }
}

/// Returns the smallest difference of a pack, and the number of bits that the others need above it.
fn frame_of_reference(pack: &[u64]) -> (i64, u32) {
    let signed = || pack.iter().map(|difference| difference.cast_signed());
    let (least, most) = (signed().min().unwrap_or(0), signed().max().unwrap_or(0));
    (least, 64 - most.wrapping_sub(least).cast_unsigned().leading_zeros())
}

fn packed_len(differences: &[u64]) -> usize {
    differences
        .chunks(PACK)
        .map(|pack| {
            let (least, width) = frame_of_reference(pack);
            varint_len(zigzag(least)) + 1 + (pack.len() * width as usize).div_ceil(8)
        })
        .sum()
}

fn put_packed(out: &mut Vec<u8>, differences: &[u64]) {
    for pack in differences.chunks(PACK) {
        let (least, width) = frame_of_reference(pack);
        put_varint(out, zigzag(least));
        out.push(low_byte(u64::from(width)));
        if width == 0 {
            continue;
        }
        // 128 bits hold the at most 7 remaining and 64 new ones.
        let (mut bits, mut held) = (0_u128, 0_u32);
        for difference in pack {
            bits |= u128::from(difference.wrapping_sub(least.cast_unsigned())) << held;
            held += width;
            while held >= 8 {
                out.push((bits & 0xff) as u8);
                bits >>= 8;
                held -= 8;
            }
        }
        if held > 0 {
            out.push((bits & 0xff) as u8);
        }
    }
}

fn put_xor(out: &mut Vec<u8>, first: u64, rest: &[u64]) {
    out.push(tag(MODE_XOR, 0));
    out.extend_from_slice(&first.to_le_bytes());
    let mut before = first;
    let mut zeros = 0_u64;
    for &value in rest {
        let change = value ^ before;
        before = value;
        if change == 0 {
            zeros += 1;
            continue;
        }
        put_xor_zeros(out, &mut zeros);
        // The low bytes of a double with few digits are zero: with the bytes swapped, the varint omits them.
        put_varint(out, change.swap_bytes());
    }
    put_xor_zeros(out, &mut zeros);
}

fn put_xor_zeros(out: &mut Vec<u8>, zeros: &mut u64) {
    if *zeros > 0 {
        out.push(0);
        put_varint(out, *zeros - 1);
        *zeros = 0;
    }
}
