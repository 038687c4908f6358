//! Decodes columns.

use super::tag::{
    MODE_CONSTANT, MODE_COPY, MODE_LEVEL_PACKED, MODE_LEVEL_RUNS, MODE_RUNS, MODE_XOR, MODE_ZERO, PACK,
};
use crate::wire::bytes::{Cursor, DecodeError, unzigzag};

/// Appends `columns` columns of `ticks` values each to `values`, whose numbers the caller has checked against
/// their limits.
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
                // A copy may overlap its own output, so that a run of copies repeats.
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
