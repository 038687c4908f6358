//! Summaries of one window each, series by series: where a block has a single row, there are no former values
//! to tell differences from, and each byte counts.
//!
//! An item has a tag and the parts of a series that are not zero. The upper four bits of the tag say which
//! these are; the lower four by how many bits all of them are shifted, or that their bytes are swapped, as
//! those of doubles are, whose low bytes are zero. Without parts the tag stands for series of zeros, or for
//! series that repeat earlier ones.

use std::collections::HashMap;

use super::bytes::{Cursor, DecodeError, low_byte, put_varint};

/// Last value, then the parts of [`super::frame::CHANGES`].
pub(super) type Parts = [u64; 4];

/// Lower bits of a tag: of parts whose bytes are swapped, and of a repetition.
const SPECIAL: u8 = 15;

pub(super) fn put(out: &mut Vec<u8>, series: &[(Parts, bool)]) {
    let mut seen: HashMap<Parts, usize> = HashMap::new();
    let mut position = 0;
    while let Some((parts, is_double)) = series.get(position) {
        let rest = series.iter().skip(position);
        let len = if *parts == Parts::default() {
            let zeros = rest.take_while(|(parts, _)| *parts == Parts::default()).count();
            let zeros = zeros.min(usize::from(SPECIAL));
            out.push(low_byte(zeros as u64 - 1));
            zeros
        } else if let Some(at) = seen.get(parts) {
            let earlier = series.iter().skip(*at);
            let same = rest.zip(earlier).take_while(|((parts, _), (earlier, _))| parts == earlier).count();
            out.push(SPECIAL);
            put_varint(out, (position - at) as u64);
            put_varint(out, same as u64 - 1);
            same
        } else {
            put_item(out, *parts, *is_double);
            1
        };
        for (number, (parts, _)) in series.iter().enumerate().skip(position).take(len) {
            seen.insert(*parts, number);
        }
        position += len;
    }
}

fn put_item(out: &mut Vec<u8>, parts: Parts, is_double: bool) {
    let present = (0..).zip(parts).filter(|(_, part)| *part != 0).fold(0, |bits, (bit, _)| bits | 1 << bit);
    let all = parts.iter().fold(0, |all, part| all | part);
    let shift = if is_double { SPECIAL } else { low_byte(all.trailing_zeros().into()).min(SPECIAL - 1) };
    out.push(present << 4 | shift);
    for part in parts.into_iter().filter(|part| *part != 0) {
        put_varint(out, if is_double { part.swap_bytes() } else { part >> shift });
    }
}

/// Reads the parts of `count` series, a number that the caller has checked against its limit.
pub(super) fn get(cursor: &mut Cursor<'_>, count: usize) -> Result<Vec<Parts>, DecodeError> {
    const TOO_MANY: DecodeError = DecodeError::Contradiction("a run has more series than its block");
    let mut series: Vec<Parts> = Vec::new();
    while series.len() < count {
        let tag = cursor.byte()?;
        let (present, low) = (tag >> 4, tag & SPECIAL);
        let left = count - series.len();
        if present > 0 {
            series.push(get_item(cursor, present, low)?);
        } else if low < SPECIAL {
            let zeros = usize::from(low) + 1;
            if zeros > left {
                return Err(TOO_MANY);
            }
            series.resize(series.len() + zeros, Parts::default());
        } else {
            let distance = cursor.count("series back", count)?;
            let same = cursor.count("series to repeat", count)? + 1;
            if same > left {
                return Err(TOO_MANY);
            }
            let from = series.len().checked_sub(distance).filter(|_| distance > 0);
            let from = from.ok_or(DecodeError::Contradiction("a series repeats one before its block"))?;
            // A repetition may overlap its own output.
            for number in from..from + same {
                series.extend(series.get(number).copied());
            }
        }
    }
    Ok(series)
}

fn get_item(cursor: &mut Cursor<'_>, present: u8, low: u8) -> Result<Parts, DecodeError> {
    let mut parts = Parts::default();
    for (bit, part) in parts.iter_mut().enumerate() {
        if present >> bit & 1 == 1 {
            let value = cursor.varint()?;
            *part = if low == SPECIAL { value.swap_bytes() } else { value << low };
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(series: &[(Parts, bool)]) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, series);
        let mut cursor = Cursor::new(&out);
        let decoded = get(&mut cursor, series.len()).unwrap();
        assert!(cursor.is_empty());
        assert_eq!(decoded, series.iter().map(|(parts, _)| *parts).collect::<Vec<_>>());
        out
    }

    #[test]
    fn zeros_and_repetitions_take_few_bytes() {
        let zero = ([0; 4], false);
        assert_eq!(encoded(&[zero; 15]), [14]);
        assert_eq!(encoded(&[zero; 17]), [14, 1]);
        let pages = ([0x5000, 0x1000, 0, 0x3000], false);
        assert_eq!(encoded(&[pages]), [0b1011_1100, 5, 1, 3]);
        let counter = ([1001, 7, 0, 0], false);
        let half = [pages, zero, counter];
        let item = [0b0011_0000, 0xe9, 7, 7];
        assert_eq!(encoded(&half.repeat(5)), [&[0b1011_1100, 5, 1, 3, 0][..], &item, &[15, 3, 11]].concat());
        assert_eq!(encoded(&[([2.5_f64.to_bits(), 0, 0, 0], true)]), [0x1f, 0xc0, 0x08]);
    }

    #[test]
    fn contradictions_are_refused() {
        let refused = |bytes: &[u8], count: usize| get(&mut Cursor::new(bytes), count).unwrap_err();
        let too_many = DecodeError::Contradiction("a run has more series than its block");
        assert_eq!(refused(&[3], 3), too_many);
        assert_eq!(refused(&[0, 15, 1, 2], 3), too_many);
        let before = DecodeError::Contradiction("a series repeats one before its block");
        assert_eq!((refused(&[0, 15, 2, 0], 3), refused(&[0, 15, 0, 0], 3)), (before, before));
        assert_eq!(
            (refused(&[], 1), refused(&[0x30, 5], 1)),
            (DecodeError::Truncated, DecodeError::Truncated)
        );
    }

    fn any_series() -> impl Strategy<Value = Vec<(Parts, bool)>> {
        let part = prop_oneof![Just(0), 0_u64..3, any::<u64>(), (0_u64..1000).prop_map(|pages| pages * 4096)];
        prop::collection::vec((prop::array::uniform4(part), any::<bool>()), 0..80)
    }

    proptest! {
        #[test]
        fn summaries_round_trip(series in any_series()) {
            encoded(&series);
        }

        #[test]
        fn any_bytes_are_series_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            count in 0_usize..100,
        ) {
            if let Ok(series) = get(&mut Cursor::new(&bytes), count) {
                prop_assert_eq!(series.len(), count);
            }
        }
    }
}
