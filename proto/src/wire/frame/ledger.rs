//! Form of ledger entries in frames. Sources of a job often have the same periods, hence the same counts, and
//! similar names: an entry tells what differs from the one before it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::ledger::{LedgerEntry, Tally};
use crate::limits;
use crate::series::{Identifier, JobHandle, ShapeId};
use crate::wire::bytes::{Cursor, DecodeError, put_varint, unzigzag, zigzag};

const COUNTS: usize = 7;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PackedEntry<'a> {
    job: Option<JobHandle>,
    /// Bytes that its source's name shares with the name before.
    shared: u32,
    rest: Cow<'a, str>,
    /// A bit for each count that differs from what is expected.
    differing: u8,
    differences: Vec<i64>,
}

pub(super) fn pack<'a>(entries: &[&'a LedgerEntry]) -> Vec<PackedEntry<'a>> {
    let befores = std::iter::once(None).chain(entries.iter().copied().map(Some));
    befores.zip(entries.iter().copied()).map(|(before, entry)| pack_one(before, entry)).collect()
}

fn pack_one<'a>(before: Option<&LedgerEntry>, entry: &'a LedgerEntry) -> PackedEntry<'a> {
    let name = entry.source.as_str();
    let shared = before.map_or(0, |before| shared_bytes(before.source.as_str(), name));
    let (mut differing, mut differences) = (0, Vec::new());
    let expected = before.map_or([0; COUNTS], |before| counts(&before.tally));
    for (position, (count, expected)) in counts(&entry.tally).into_iter().zip(expected).enumerate() {
        if count != expected {
            differing |= 1 << position;
            differences.push(count.wrapping_sub(expected).cast_signed());
        }
    }
    let rest = Cow::Borrowed(name.get(shared..).unwrap_or_default());
    // A name is shorter than 4 GiB.
    let shared = u32::try_from(shared).unwrap_or_default();
    PackedEntry { job: entry.job, shared, rest, differing, differences }
}

/// Appends entries that follow those in `into`.
pub(super) fn unpack(packed: &[PackedEntry<'_>], into: &mut Vec<LedgerEntry>) -> Result<(), DecodeError> {
    let count = into.len() + packed.len();
    if count > limits::SECTION_ENTRIES {
        let (found, limit) = (count as u64, limits::SECTION_ENTRIES as u64);
        return Err(DecodeError::Limit { what: "entries in a section", found, limit });
    }
    for entry in packed {
        let unpacked = unpack_one(into.last(), entry).ok_or(DecodeError::Serialised)?;
        into.push(unpacked);
    }
    Ok(())
}

/// None for an entry that contradicts itself, or the one before it.
fn unpack_one(before: Option<&LedgerEntry>, packed: &PackedEntry<'_>) -> Option<LedgerEntry> {
    let shared = usize::try_from(packed.shared).ok()?;
    let name = before.map_or("", |before| before.source.as_str()).get(..shared)?;
    let source = Identifier::from_wire(format!("{name}{}", packed.rest));
    let mut counts = before.map_or([0; COUNTS], |before| counts(&before.tally));
    let mut differences = packed.differences.iter();
    for (position, count) in counts.iter_mut().enumerate() {
        if packed.differing >> position & 1 == 1 {
            *count = count.wrapping_add_signed(*differences.next()?);
        }
    }
    let is_whole = packed.differing >> COUNTS == 0 && differences.next().is_none();
    is_whole.then(|| LedgerEntry { job: packed.job, source, tally: tally(counts) })
}

/// Appends tallies of shapes. Each has the greatest common divisor of its counts, then what differs from the
/// divided counts of the one before it: sources that share their deadlines have a count for each of their
/// columns.
pub(super) fn put_shape_tallies(out: &mut Vec<u8>, tallies: &[(ShapeId, Tally)]) {
    put_varint(out, tallies.len() as u64);
    let mut before = [0; COUNTS];
    for (shape, tally) in tallies {
        let counts = counts(tally);
        let divisor = counts.into_iter().fold(0, greatest_common_divisor).max(1);
        let divided = counts.map(|count| count / divisor);
        let changed = || (0..COUNTS).zip(before).zip(divided).filter(|((_, before), now)| before != now);
        put_varint(out, u64::from(shape.0));
        put_varint(out, divisor);
        out.push(changed().fold(0, |bits, ((position, _), _)| bits | 1 << position));
        changed()
            .for_each(|((_, before), now)| put_varint(out, zigzag(now.wrapping_sub(before).cast_signed())));
        before = divided;
    }
}

pub(super) fn get_shape_tallies(
    cursor: &mut Cursor<'_>,
    into: &mut Vec<(ShapeId, Tally)>,
) -> Result<(), DecodeError> {
    let count = cursor.count("tallies of shapes", limits::SECTION_ENTRIES.saturating_sub(into.len()))?;
    let mut divided = [0_u64; COUNTS];
    for _ in 0..count {
        let shape = cursor.number("number of a shape")?;
        let divisor = cursor.varint()?;
        let changed = cursor.byte()?;
        if changed >> COUNTS > 0 {
            return Err(DecodeError::Tag { what: "set of counts", found: changed });
        }
        for (position, count) in divided.iter_mut().enumerate() {
            if changed >> position & 1 == 1 {
                *count = count.wrapping_add_signed(unzigzag(cursor.varint()?));
            }
        }
        into.push((ShapeId(shape), tally(divided.map(|count| count.wrapping_mul(divisor)))));
    }
    Ok(())
}

const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Counts in their order on the wire. Samples that were taken follow from the first three, unless they are
/// being read: only what is left of them is told.
const fn counts(tally: &Tally) -> [u64; COUNTS] {
    let Tally { due, taken, late, missed, absent, dropped, not_kept } = *tally;
    [
        due,
        missed,
        absent,
        due.wrapping_sub(missed).wrapping_sub(absent).wrapping_sub(taken),
        late,
        dropped,
        not_kept,
    ]
}

const fn tally(counts: [u64; COUNTS]) -> Tally {
    let [due, missed, absent, left, late, dropped, not_kept] = counts;
    let taken = due.wrapping_sub(missed).wrapping_sub(absent).wrapping_sub(left);
    Tally { due, taken, late, missed, absent, dropped, not_kept }
}

/// Length of the longest common beginning of whole characters.
fn shared_bytes(before: &str, name: &str) -> usize {
    let pairs = before.chars().zip(name.chars());
    pairs.take_while(|(a, b)| a == b).map(|(of, _)| of.len_utf8()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(job: Option<u32>, source: &str, tally: Tally) -> LedgerEntry {
        LedgerEntry { job: job.map(JobHandle), source: source.try_into().unwrap(), tally }
    }

    fn entries() -> Vec<LedgerEntry> {
        let tally = Tally { due: 70_000, taken: 69_990, late: 3, missed: 8, absent: 2, ..Tally::default() };
        vec![
            entry(None, "stat", tally),
            entry(Some(1), "memory.état", tally),
            entry(Some(1), "memory.être", Tally { due: 9, missed: u64::MAX, not_kept: 4, ..tally }),
            entry(Some(1), "memory", Tally { taken: 0, ..tally }),
            entry(Some(2), "ring memory", Tally { dropped: u64::MAX, ..Tally::default() }),
        ]
    }

    #[test]
    fn what_was_packed_is_unpacked() {
        let entries = entries();
        let mut unpacked = Vec::new();
        // In two sections.
        let mut packed = pack(&entries.iter().collect::<Vec<_>>());
        let second = packed.split_off(2);
        unpack(&packed, &mut unpacked).unwrap();
        unpack(&second, &mut unpacked).unwrap();
        assert_eq!(unpacked, entries);
        assert_eq!((&*packed[1].rest, second[0].shared, &*second[0].rest), ("memory.état", 7, "être"));
    }

    #[test]
    fn equal_tallies_take_no_bytes() {
        let tally = Tally { due: 3_000_000, taken: 2_999_000, missed: 1_000, late: 77, ..Tally::default() };
        let entries = [entry(Some(1), "cpu.stat", tally), entry(Some(1), "cpu.pressure", tally)];
        let packed = pack(&entries.iter().collect::<Vec<_>>());
        assert_eq!(packed[0].differences, [3_000_000, 1_000, 77]);
        assert_eq!((packed[1].differing, packed[1].differences.len(), &*packed[1].rest), (0, 0, "pressure"));
    }

    #[test]
    fn tallies_of_shapes_share_the_counts_of_their_columns() {
        let of = |columns: u64| Tally {
            due: 13_896 * columns,
            taken: 13_512 * columns,
            late: 1_248 * columns,
            missed: 384 * columns,
            ..Tally::default()
        };
        let mut tallies: Vec<_> =
            [(0, 2), (1, 1), (300, 40)].map(|(id, columns)| (ShapeId(id), of(columns))).into();
        let bytes = |tallies: &[(ShapeId, Tally)]| {
            let mut out = Vec::new();
            put_shape_tallies(&mut out, tallies);
            out
        };
        let alike = bytes(&tallies);
        assert_eq!(alike.len(), 1 + (1 + 1 + 1 + 2 + 1 + 1) + (1 + 1 + 1) + (2 + 2 + 1));
        tallies.push((ShapeId(u32::MAX), Tally { absent: 7, not_kept: u64::MAX, ..of(1) }));
        tallies.push((ShapeId(5), Tally::default()));
        let bytes = bytes(&tallies);
        let mut found = Vec::new();
        get_shape_tallies(&mut Cursor::new(&bytes), &mut found).unwrap();
        assert_eq!(found, tallies);
        for end in 0..bytes.len() {
            assert!(get_shape_tallies(&mut Cursor::new(&bytes[..end]), &mut Vec::new()).is_err());
        }
        assert!(get_shape_tallies(&mut Cursor::new(&[1, 0, 1, 0x80]), &mut Vec::new()).is_err());
    }

    #[test]
    fn contradictions_are_refused() {
        let before = entries();
        let refused = |change: fn(&mut PackedEntry<'_>)| {
            let mut packed = pack(&before.iter().collect::<Vec<_>>());
            change(packed.last_mut().unwrap());
            unpack(&packed, &mut Vec::new()).is_err()
        };
        assert!(!refused(|_| {}));
        assert!(refused(|packed| packed.shared = 99));
        assert!(refused(|packed| packed.differing = 0x80));
        assert!(refused(|packed| packed.differing |= 1 << 6));
        assert!(refused(|packed| packed.differences.push(1)));
        let mut characters = pack(&[&before[0], &before[1]]);
        characters.push(PackedEntry {
            job: None,
            shared: 8,
            rest: "".into(),
            differing: 0,
            differences: vec![],
        });
        assert!(unpack(&characters, &mut Vec::new()).is_err());
    }
}
