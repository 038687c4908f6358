//! Column codec: the values of one series over the ticks of a block, and the sequence of columns of a
//! block.
//!
//! A column consists of 64-bit values, of which successive ones are similar. The properties of cgroup
//! counters that are used for compression, the most effective first: most columns do not change, many are
//! zero, the `total_` lines of memory.stat repeat the plain ones, memory grows by whole pages (their low bits
//! are zero), and the noise of a clock is far smaller than its value. `docs/reference/protocol.md` describes
//! the bytes.

mod decode;
mod encode;
mod tag;

pub(crate) use decode::get_columns;
pub(crate) use encode::ColumnEncoder;
pub(crate) use tag::Coding;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::bytes::{Cursor, DecodeError};
    use super::tag::{MODE_COPY, MODE_PACKED, MODE_RUNS, MODE_ZERO, tag};
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
    fn constant_columns_take_a_few_bytes() {
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
    fn low_zero_bits_of_pages_take_no_bytes() {
        let pages: Vec<u64> = (0..100).map(|tick| 4096 * (1 << 20) + tick * tick * 4096).collect();
        assert!(round_trip(&pages, 100, Coding::Difference) < 120);
    }

    #[test]
    fn clock_noise_is_packed() {
        let (mut state, mut at) = (1_u64, 0);
        let clock: Vec<u64> = (0..1000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                at += 1_000_000 + (state >> 54);
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
    fn refuses_contradictions() {
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
        fn values_round_trip((ticks, columns) in any_columns(), coding in prop_oneof![Just(Coding::Difference), Just(Coding::Level), Just(Coding::Xor)]) {
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
