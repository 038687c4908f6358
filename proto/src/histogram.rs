//! Histograms of the samples of a window: counts of buckets, whose widths grow with the values.
//!
//! The bucket of a value below 32 is the value. Above, each power of two is divided into 16 buckets of the
//! same width, so that the middle of a bucket is within 3.125 % of each value in it.

pub use histogram::Histogram32 as Histogram;

/// Each power of two has 2 to this power of buckets.
const GROUPING_POWER: u8 = 4;

/// Bits of a value.
const VALUE_BITS: u8 = 64;

/// Number of buckets: one for each value below 32, then 16 for each power of two.
pub const BUCKETS: u16 = 976;

/// Largest difference between a value and the middle of its bucket, as a part of the value.
pub const ERROR: f64 = 1.0 / 32.0;

/// Makes an empty histogram, with the memory of all buckets.
pub fn empty() -> Option<Histogram> {
    Histogram::new(GROUPING_POWER, VALUE_BITS).ok()
}

/// Returns the buckets with samples, and their counts.
pub fn buckets(histogram: &Histogram) -> impl Iterator<Item = (u16, u32)> {
    (0..).zip(histogram.as_slice()).filter(|(_, count)| **count > 0).map(|(bucket, count)| (bucket, *count))
}

/// Returns the smallest value of a bucket.
pub fn least_of(bucket: u16) -> u64 {
    let divisions = 1 << GROUPING_POWER;
    let bucket = u64::from(bucket);
    match bucket / divisions {
        0 | 1 => bucket,
        power => (divisions + bucket % divisions) << (power - 1),
    }
}

/// Returns the middle of the bucket whose smallest value is `least`.
pub fn middle_of(least: f64) -> f64 {
    let divisions = f64::from(1 << GROUPING_POWER);
    if least < 2.0 * divisions {
        return least;
    }
    // The largest power of two that is not above it: a double without its digits.
    let power = f64::from_bits(least.to_bits() & (u64::MAX << (f64::MANTISSA_DIGITS - 1)));
    least + (power / divisions - 1.0) / 2.0
}

/// Returns the quantile of samples in buckets, which are sorted: the middle of the bucket that has it. None
/// without samples.
pub fn quantile(buckets: &[(f64, u64)], part: f64) -> Option<f64> {
    let total: u64 = buckets.iter().map(|(_, count)| count).sum();
    let wanted = crate::units::to_f64(total) * part;
    let mut below = 0;
    for (least, count) in buckets {
        below += count;
        if crate::units::to_f64(below) >= wanted && *count > 0 {
            return Some(middle_of(*least));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::to_f64;

    #[test]
    fn all_values_have_a_bucket() {
        let histogram = empty().unwrap();
        assert_eq!(histogram.as_slice().len(), usize::from(BUCKETS));
        assert_eq!(buckets(&histogram).next(), None);
        for value in [0, 1, 31, 32, 33, 34, u64::MAX] {
            let mut histogram = empty().unwrap();
            histogram.increment(value).unwrap();
            let (bucket, count) = buckets(&histogram).next().unwrap();
            assert!(count == 1 && least_of(bucket) <= value, "{value} in {bucket}");
            assert!(bucket == BUCKETS - 1 || least_of(bucket + 1) > value, "{value} in {bucket}");
        }
    }

    proptest! {
        /// Compares quantiles with those of the sorted values.
        #[test]
        fn quantiles_are_within_the_error(
            values in prop::collection::vec(prop_oneof![0..100_u64, 0..u64::MAX >> 12], 1..200),
            part in 0.01..1.0_f64,
        ) {
            let mut histogram = empty().unwrap();
            for value in &values {
                histogram.increment(*value).unwrap();
            }
            let found: Vec<(f64, u64)> = buckets(&histogram)
                .map(|(bucket, count)| (to_f64(least_of(bucket)), u64::from(count)))
                .collect();
            let mut values = values;
            values.sort_unstable();
            let wanted = to_f64(values.len() as u64) * part;
            let (expected, _) = values.iter().zip(1..).find(|(_, rank)| to_f64(*rank) >= wanted).unwrap();
            let expected = to_f64(*expected);
            let quantile = quantile(&found, part).unwrap();
            prop_assert!((quantile - expected).abs() <= expected * ERROR, "{quantile} is not {expected}");
            prop_assert!(found.iter().all(|(least, _)| middle_of(*least) >= *least));
        }
    }
}
