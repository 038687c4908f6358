//! The column codec: one series over the ticks of a block, and the columns of a block after one another.
//!
//! A column is 64-bit values of which nothing is assumed but that neighbours in time resemble each other. What makes
//! the counters of cgroups small, in the order of what it gives: most columns do not change, many are zero, the
//! `total_` lines of memory.stat repeat the plain ones, memory grows by whole pages (their low bits are zero), and the
//! noise of a clock is far smaller than its value. `docs/protocol.md` has the bytes.

use super::bytes::{Appender, Cursor, DecodeError, Sink, low_byte, put_varint, unzigzag, varint_len, zigzag};

const MODE_ZERO: u8 = 0;
const MODE_CONSTANT: u8 = 1;
const MODE_COPY: u8 = 2;
const MODE_RUNS: u8 = 3;
const MODE_PACKED: u8 = 4;
const MODE_XOR: u8 = 5;
/// As `RUNS` and `PACKED`, but against the first value and not the one before: for values that jump about a level.
const MODE_LEVEL_RUNS: u8 = 6;
const MODE_LEVEL_PACKED: u8 = 7;

/// A tag is three bits of mode and five of argument.
const ARGUMENT_MAX: u8 = 31;

/// Differences that are packed with one width. Small enough that an outlier spoils little, large enough that the two
/// bytes of its header do not count.
const PACK: usize = 128;

/// Places in which columns are remembered by their hashes, to find the one that a column repeats. Two that fall into one
/// place only cost the copy of the earlier.
const PLACES: usize = 1024;

/// The most bytes that a column of one value takes: its tag and the longest varint.
const LONE_BYTES: usize = 11;

/// What a column's values are, which decides how they are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Integers that continue: a counter, a gauge of memory. Differences to the value before.
    Difference,
    /// Integers about a level: the lateness of ticks. Differences to the first value.
    Level,
    /// Bits of doubles. Exclusive or with the value before.
    Xor,
}

/// Encodes the columns of one block, which must all have the same length. Keeps its buffers from block to block.
#[derive(Debug)]
pub(crate) struct ColumnEncoder {
    differences: Vec<u64>,
    pending: Pending,
    /// The last column that fell into each place, and the block in which that was.
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

/// Columns whose tag is not written yet, because the next may lengthen the run.
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
    /// Forgets the columns of the block before.
    pub(crate) fn begin_block(&mut self) {
        // What was seen in another block is forgotten by this alone.
        self.block = self.block.wrapping_add(1);
        self.pending = Pending::Nothing;
        self.position = 0;
    }

    /// Appends the column at `position` of `columns`, which holds the block's columns one after the other.
    pub(crate) fn put(&mut self, out: &mut Vec<u8>, columns: &[u64], ticks: usize, coding: Coding) {
        let start = self.position * ticks;
        let column = columns.get(start..start + ticks).unwrap_or_default();
        let hash = hash(column);
        if hash == 0 && column.iter().all(|value| *value == 0) {
            self.put_zero(out);
        } else if let Some(distance) = self.distance_to_same(hash, |position| {
            columns.get(position * ticks..(position + 1) * ticks) == Some(column)
        }) {
            self.put_copy(out, distance);
        } else {
            self.flush(out);
            put_column(out, column, coding, &mut self.differences);
        }
        self.position += 1;
    }

    /// Appends a whole block of one row: what [`Self::put`] does with columns of one value, in a third of the time.
    pub(crate) fn put_row(&mut self, out: &mut Vec<u8>, row: &[u64], codings: impl Iterator<Item = Coding>) {
        self.begin_block();
        let mut out = Appender::new(out, row.len() * LONE_BYTES);
        for (value, coding) in row.iter().zip(codings) {
            if *value == 0 {
                self.put_zero(&mut out);
            } else if let Some(distance) =
                self.distance_to_same(hash(&[*value]), |position| row.get(position) == Some(value))
            {
                self.put_copy(&mut out, distance);
            } else {
                self.flush(&mut out);
                put_lone(&mut out, *value, coding);
            }
            self.position += 1;
        }
        self.flush(&mut out);
    }

    /// Writes what is pending. Must follow the last column of a block.
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

    /// How far back a column with this hash stands that is the same, if one does; and remembers this one.
    fn distance_to_same(&mut self, hash: u64, same_at: impl Fn(usize) -> bool) -> Option<usize> {
        let place = self.seen.get_mut(usize::try_from(hash >> (64 - PLACES.ilog2())).ok()?)?;
        let position = u32::try_from(self.position).unwrap_or(u32::MAX);
        let (block, seen_at) = std::mem::replace(place, (self.block, position));
        let seen_at = seen_at as usize;
        // The pending run first: to lengthen it costs nothing.
        if let Pending::Copies { distance, .. } = self.pending
            && let Some(position) = self.position.checked_sub(distance)
            && same_at(position)
        {
            return Some(distance);
        }
        let before = block == self.block && seen_at < self.position;
        (before && same_at(seen_at)).then(|| self.position - seen_at)
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

/// A hash that is zero for a column of zeros, and cheap: it is only there to skip most comparisons.
fn hash(column: &[u64]) -> u64 {
    column.iter().fold(0, |hash, value| (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23))
}

const fn tag(mode: u8, argument: u8) -> u8 {
    mode | (argument << 3)
}

/// A column of one value, which is a constant.
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
    // An arithmetic shift keeps the sign of a difference; what it shifts out is zero.
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

/// A zigzagged difference in a token has one bit less than 64.
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

/// The least difference of a pack, and how many bits the others need above it.
fn frame_of_reference(pack: &[u64]) -> (i64, u32) {
    let signed = || pack.iter().map(|difference| difference.cast_signed());
    let (least, most) = (signed().min().unwrap_or(0), signed().max().unwrap_or(0));
    (least, 64 - most.wrapping_sub(least).cast_unsigned().leading_zeros())
}

fn packed_len(differences: &[u64]) -> usize {
    let pack_len = |pack: &[u64]| {
        let (least, width) = frame_of_reference(pack);
        varint_len(zigzag(least)) + 1 + (pack.len() * width as usize).div_ceil(8)
    };
    differences.chunks(PACK).map(pack_len).sum()
}

fn put_packed(out: &mut Vec<u8>, differences: &[u64]) {
    for pack in differences.chunks(PACK) {
        let (least, width) = frame_of_reference(pack);
        put_varint(out, zigzag(least));
        out.push(low_byte(u64::from(width)));
        if width == 0 {
            continue;
        }
        // 128 bits hold the at most 7 left over and 64 new ones.
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
        // The low bytes of a double with few digits are zero: swapped, they cost nothing.
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

/// Appends `columns` columns of `ticks` values each to `values`.
///
/// The caller has checked `columns` and `ticks` against their limits; no more than their product is ever appended.
pub(crate) fn get_columns(
    cursor: &mut Cursor<'_>,
    columns: usize,
    ticks: usize,
    values: &mut Vec<u64>,
) -> Result<(), DecodeError> {
    let base = values.len();
    let end = base + columns * ticks;
    while values.len() < end {
        let byte = cursor.byte()?;
        let (mode, argument) = (byte & 7, byte >> 3);
        let left = (end - values.len()) / ticks;
        match mode {
            MODE_ZERO => {
                let count = usize::from(argument) + 1;
                check_run(count, left)?;
                values.resize(values.len() + count * ticks, 0);
            }
            MODE_COPY => {
                let distance = match argument {
                    0 => cursor.count("columns back", columns)?,
                    near => usize::from(near),
                };
                let count = cursor.count("columns to copy", columns)? + 1;
                check_run(count, left)?;
                if distance == 0 || distance * ticks > values.len() - base {
                    return Err(DecodeError::Contradiction("a column copies from before its block"));
                }
                // Copies may overlap what they append, so that a run of them repeats.
                for _ in 0..count {
                    let at = values.len() - distance * ticks;
                    values.extend_from_within(at..at + ticks);
                }
            }
            _ => get_column(cursor, mode, argument, ticks, values)?,
        }
    }
    Ok(())
}

const fn check_run(count: usize, left: usize) -> Result<(), DecodeError> {
    if count > left {
        Err(DecodeError::Contradiction("a run has more columns than its block"))
    } else {
        Ok(())
    }
}

fn get_column(
    cursor: &mut Cursor<'_>,
    mode: u8,
    shift: u8,
    ticks: usize,
    values: &mut Vec<u64>,
) -> Result<(), DecodeError> {
    if mode == MODE_XOR {
        return get_xor(cursor, ticks, values);
    }
    let first = cursor.varint()? << shift;
    values.push(first);
    let rest = ticks - 1;
    let mut before = first;
    let mut append = |difference: u64| {
        let difference = difference << shift;
        let value = match mode {
            MODE_LEVEL_RUNS | MODE_LEVEL_PACKED => first.wrapping_add(difference),
            _ => before.wrapping_add(difference),
        };
        before = value;
        values.push(value);
    };
    match mode {
        MODE_CONSTANT => (0..rest).for_each(|_| append(0)),
        MODE_RUNS | MODE_LEVEL_RUNS => get_runs(cursor, rest, append)?,
        _ => get_packed(cursor, rest, append)?,
    }
    Ok(())
}

fn get_runs(cursor: &mut Cursor<'_>, ticks: usize, mut append: impl FnMut(u64)) -> Result<(), DecodeError> {
    let mut left = ticks as u64;
    while left > 0 {
        let token = cursor.varint()?;
        if token & 1 == 1 {
            append(unzigzag(token >> 1).cast_unsigned());
            left -= 1;
        } else {
            let run = (token >> 1) + 1;
            left =
                left.checked_sub(run).ok_or(DecodeError::Contradiction("a run is longer than its column"))?;
            (0..run).for_each(|_| append(0));
        }
    }
    Ok(())
}

fn get_packed(cursor: &mut Cursor<'_>, ticks: usize, mut append: impl FnMut(u64)) -> Result<(), DecodeError> {
    let mut left = ticks;
    while left > 0 {
        let pack = left.min(PACK);
        left -= pack;
        let least = unzigzag(cursor.varint()?).cast_unsigned();
        let width = cursor.byte()?;
        if width > 64 {
            return Err(DecodeError::Tag { what: "width of a pack", found: width });
        }
        let width = u32::from(width);
        let mut bytes = cursor.take((pack * width as usize).div_ceil(8))?.iter();
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        let (mut bits, mut held) = (0_u128, 0_u32);
        for _ in 0..pack {
            while held < width {
                bits |= u128::from(*bytes.next().ok_or(DecodeError::Truncated)?) << held;
                held += 8;
            }
            #[expect(clippy::cast_possible_truncation, reason = "the mask leaves the bits of one difference")]
            let difference = bits as u64 & mask;
            bits >>= width;
            held -= width;
            append(difference.wrapping_add(least));
        }
    }
    Ok(())
}

fn get_xor(cursor: &mut Cursor<'_>, ticks: usize, values: &mut Vec<u64>) -> Result<(), DecodeError> {
    let mut value = u64::from_le_bytes(cursor.array()?);
    values.push(value);
    let mut left = ticks as u64 - 1;
    while left > 0 {
        let change = cursor.varint()?;
        let run = if change == 0 { cursor.varint()?.saturating_add(1) } else { 1 };
        left = left.checked_sub(run).ok_or(DecodeError::Contradiction("a run is longer than its column"))?;
        value ^= change.swap_bytes();
        (0..run).for_each(|_| values.push(value));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(columns: &[u64], ticks: usize, coding: Coding) -> Vec<u8> {
        let mut encoder = ColumnEncoder::default();
        let mut bytes = Vec::new();
        encoder.begin_block();
        for _ in 0..columns.len() / ticks {
            encoder.put(&mut bytes, columns, ticks, coding);
        }
        encoder.flush(&mut bytes);
        if ticks == 1 {
            let mut row = Vec::new();
            encoder.put_row(&mut row, columns, std::iter::repeat(coding));
            assert_eq!(row, bytes, "a row at once, and column by column");
        }
        bytes
    }

    fn round_trip(columns: &[u64], ticks: usize, coding: Coding) -> usize {
        let bytes = encode(columns, ticks, coding);
        let mut decoded = Vec::new();
        let mut cursor = Cursor::new(&bytes);
        get_columns(&mut cursor, columns.len() / ticks, ticks, &mut decoded).unwrap();
        assert!(cursor.is_empty());
        assert_eq!(decoded, columns);
        bytes.len()
    }

    #[test]
    fn what_does_not_change_costs_next_to_nothing() {
        assert_eq!(round_trip(&[0; 32_000], 1000, Coding::Difference), 1, "32 columns of zeros");
        assert_eq!(round_trip(&[4096; 1000], 1000, Coding::Difference), 2, "a constant page");
        let columns: Vec<u64> = (0..10).flat_map(|c| vec![c % 5 + 1_000_003; 100]).collect();
        assert_eq!(
            round_trip(&columns, 100, Coding::Difference),
            5 * 4 + 2,
            "five columns, and the same five once more"
        );
    }

    #[test]
    fn memory_that_grows_by_pages_pays_for_pages_only() {
        let pages: Vec<u64> = (0..100).map(|tick| 4096 * (1 << 20) + tick * tick * 4096).collect();
        assert!(round_trip(&pages, 100, Coding::Difference) < 120);
    }

    #[test]
    fn noise_of_a_clock_is_packed() {
        let mut state = 1_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 54
        };
        let mut at = 0;
        let clock: Vec<u64> = (0..1000)
            .map(|_| {
                at += 1_000_000 + noise();
                at
            })
            .collect();
        assert!(
            round_trip(&clock, 1000, Coding::Difference) < 1350,
            "10 bits a value, against 3 bytes as varints"
        );
    }

    #[test]
    fn extremes_survive_every_coding() {
        let extremes = [
            0,
            u64::MAX,
            0,
            i64::MIN.cast_unsigned(),
            i64::MAX.cast_unsigned(),
            1,
            f64::NAN.to_bits(),
            (-0.0_f64).to_bits(),
        ];
        for coding in [Coding::Difference, Coding::Level, Coding::Xor] {
            round_trip(&extremes, 8, coding);
            round_trip(&extremes, 1, coding);
            round_trip(&extremes, 2, coding);
        }
    }

    #[test]
    fn lies_are_refused() {
        let get = |bytes: &[u8], columns, ticks| {
            get_columns(&mut Cursor::new(bytes), columns, ticks, &mut Vec::new())
        };
        assert_eq!(
            get(&[tag(MODE_ZERO, 3)], 3, 1),
            Err(DecodeError::Contradiction("a run has more columns than its block"))
        );
        assert_eq!(
            get(&[tag(MODE_COPY, 1), 0], 1, 1),
            Err(DecodeError::Contradiction("a column copies from before its block"))
        );
        assert_eq!(
            get(&[tag(MODE_COPY, 0), 0, 0], 1, 1),
            Err(DecodeError::Contradiction("a column copies from before its block"))
        );
        assert_eq!(
            get(&[tag(MODE_RUNS, 0), 1, 20], 1, 4),
            Err(DecodeError::Contradiction("a run is longer than its column"))
        );
        assert_eq!(
            get(&[tag(MODE_PACKED, 0), 1, 0, 65], 1, 4),
            Err(DecodeError::Tag { what: "width of a pack", found: 65 })
        );
        assert_eq!(get(&[], 1, 1), Err(DecodeError::Truncated));
    }

    fn any_columns() -> impl Strategy<Value = (usize, Vec<u64>)> {
        let value = prop_oneof![
            Just(0),
            Just(u64::MAX),
            0_u64..10,
            any::<u64>(),
            (0_u64..1000).prop_map(|pages| pages * 4096)
        ];
        (1_usize..300, 1_usize..6).prop_flat_map(move |(ticks, columns)| {
            (Just(ticks), prop::collection::vec(value.clone(), ticks * columns))
        })
    }

    proptest! {
        #[test]
        fn all_values_round_trip((ticks, columns) in any_columns(), coding in prop_oneof![Just(Coding::Difference), Just(Coding::Level), Just(Coding::Xor)]) {
            round_trip(&columns, ticks, coding);
        }

        #[test]
        fn any_bytes_are_a_value_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), columns in 1_usize..20, ticks in 1_usize..100) {
            let mut values = Vec::new();
            if get_columns(&mut Cursor::new(&bytes), columns, ticks, &mut values).is_ok() {
                prop_assert_eq!(values.len(), columns * ticks);
            } else {
                prop_assert!(values.len() <= columns * ticks);
            }
        }
    }
}
