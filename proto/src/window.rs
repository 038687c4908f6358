//! Windows: a row for each window instead of one for each sample in it.
//!
//! A row has five parts with a value for each series: last value, count, smallest and largest value, and sum.
//! For a counter, smallest and largest are rates, and there is no sum. The parts are packed so that those of
//! a series that did not change are zeros, and those of one whose values are near the last one take few bytes.

use crate::series::{Kind, MetricDescriptor, Number};

/// Parts of a row, of which each has a value for each series, in the order of [`Summary`].
pub const PARTS: usize = 5;

/// Position of the part with the counts.
pub const COUNT_PART: usize = 1;

/// Position of the part with the smallest values.
pub const MIN_PART: usize = 2;

/// Position of the part with the largest values.
pub const MAX_PART: usize = 3;

/// Position of the part with the sums.
pub const SUM_PART: usize = 4;

/// Bits of a double that a packed rate does without: 10 binary digits behind the first remain. Times of reads
/// have microseconds, so that the rate between two samples of 1 ms is not known better than to a thousandth.
const RATE_SHIFT: u32 = 42;

/// Samples of one series in one window. Values are bits of the number of the metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    pub last: u64,
    /// 0 for a series that was absent in the whole window.
    pub count: u64,
    /// Smallest value; of a counter the smallest rate per second, bits of a double: NaN without a rate.
    pub min: u64,
    /// Largest value or rate.
    pub max: u64,
    /// Sum of the values, of integers modulo 2^64; 0 of a counter.
    pub sum: u64,
}

/// What a window tells beside the last value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowValues {
    pub count: u64,
    pub min: f64,
    pub max: f64,
    /// 0 for a counter.
    pub sum: f64,
}

impl Summary {
    /// Packs the parts of a series, in their order.
    pub const fn pack(self, metric: &MetricDescriptor) -> [u64; PARTS] {
        let Self { last, count, min, max, sum } = self;
        let (min, max, sum) = match (metric.kind, metric.number) {
            (Kind::Counter, _) => {
                let least = pack_rate(min);
                (least, pack_rate(max).wrapping_sub(least), 0)
            }
            (Kind::Gauge, Number::Float) => (last ^ min, last ^ max, sum ^ times(count, last)),
            // None of them is negative, so that the zero bits of pages remain.
            (Kind::Gauge, Number::Unsigned | Number::Signed) => {
                (last.wrapping_sub(min), max.wrapping_sub(last), sum.wrapping_sub(count.wrapping_mul(min)))
            }
        };
        [last, count, min, max, sum]
    }

    /// Unpacks the parts of a series.
    #[expect(clippy::cast_precision_loss, reason = "the stores keep doubles, as documented")]
    pub fn unpack(packed: [u64; PARTS], metric: &MetricDescriptor) -> WindowValues {
        let [last, count, min, max, sum] = packed;
        let number = metric.number;
        match (metric.kind, number) {
            (Kind::Counter, _) => {
                let most = min.wrapping_add(max);
                WindowValues { count, min: unpack_rate(min), max: unpack_rate(most), sum: 0.0 }
            }
            (Kind::Gauge, Number::Float) => {
                let [min, max, sum] = [last ^ min, last ^ max, sum ^ times(count, last)].map(f64::from_bits);
                WindowValues { count, min, max, sum }
            }
            (Kind::Gauge, Number::Unsigned | Number::Signed) => {
                let min = number.to_f64(last.wrapping_sub(min));
                let max = number.to_f64(last.wrapping_add(max));
                WindowValues { count, min, max, sum: (count as f64).mul_add(min, sum as f64) }
            }
        }
    }
}

impl WindowValues {
    /// True if the values may be those of samples of a metric whose last one is `last`.
    pub fn is_possible(&self, metric: &MetricDescriptor, last: f64) -> bool {
        let Self { count, min, max, sum } = *self;
        match metric.kind {
            // A single sample has no rate, unless another window precedes.
            Kind::Counter if min.is_nan() && max.is_nan() => count == 1,
            Kind::Counter => count > 0 && 0.0 <= min && min <= max && max.is_finite(),
            Kind::Gauge => count > 0 && min <= last && last <= max && !sum.is_nan(),
        }
    }

    /// True for the single sample of a counter without a rate: there is nothing but its value.
    pub const fn is_raw(&self) -> bool {
        self.count == 1 && self.min.is_nan()
    }
}

/// Bits of the sum of `count` doubles with the bits `value`.
#[expect(clippy::cast_precision_loss, reason = "a window has fewer samples than 2^53")]
const fn times(count: u64, value: u64) -> u64 {
    (count as f64 * f64::from_bits(value)).to_bits()
}

/// Rounds a rate, the bits of a double that is not negative, to the nearest that can be packed.
const fn pack_rate(bits: u64) -> u64 {
    bits.saturating_add(1 << (RATE_SHIFT - 1)) >> RATE_SHIFT
}

const fn unpack_rate(packed: u64) -> f64 {
    f64::from_bits(packed << RATE_SHIFT)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::name::MetricName;
    use crate::series::Unit;

    fn metric(kind: Kind, number: Number) -> MetricDescriptor {
        MetricDescriptor { name: MetricName::new("test.metric").unwrap(), unit: Unit::Count, kind, number }
    }

    fn unpacked(summary: Summary, metric: &MetricDescriptor) -> WindowValues {
        Summary::unpack(summary.pack(metric), metric)
    }

    #[test]
    fn a_series_that_did_not_change_packs_to_zeros() {
        let last = 4096_u64;
        let constant = Summary { last, count: 1000, min: last, max: last, sum: 1000 * last };
        assert_eq!(constant.pack(&metric(Kind::Gauge, Number::Unsigned))[2..], [0; 3]);
        let float = Summary {
            last: 2.5_f64.to_bits(),
            count: 4,
            min: 2.5_f64.to_bits(),
            max: 2.5_f64.to_bits(),
            sum: 10_f64.to_bits(),
        };
        assert_eq!(float.pack(&metric(Kind::Gauge, Number::Float))[2..], [0; 3]);
        let still = Summary { last, count: 1000, min: 0, max: 0, sum: 0 };
        assert_eq!(still.pack(&metric(Kind::Counter, Number::Unsigned))[2..], [0; 3]);
    }

    #[test]
    fn rates_keep_three_digits() {
        let counter = metric(Kind::Counter, Number::Unsigned);
        for rate in [0.0, 1e-9, 0.125, 1.0 / 3.0, 3000.0, 999_983.0, 1.234_567e12] {
            let bits = f64::to_bits(rate);
            let found = unpacked(Summary { last: 0, count: 2, min: bits, max: bits, sum: 0 }, &counter);
            assert!((found.min - rate).abs() <= rate / 2048.0, "{rate}: {found:?}");
            assert!(found.is_possible(&counter, 0.0));
        }
        let nan = f64::NAN.to_bits();
        let alone = unpacked(Summary { last: 5, count: 1, min: nan, max: nan, sum: 0 }, &counter);
        assert!(alone.is_raw() && alone.is_possible(&counter, 5.0));
        assert!(!WindowValues { count: 2, ..alone }.is_possible(&counter, 5.0));
    }

    #[test]
    fn impossible_values_are_told() {
        let gauge = metric(Kind::Gauge, Number::Float);
        let possible = WindowValues { count: 2, min: 1.0, max: 3.0, sum: 4.0 };
        assert!(possible.is_possible(&gauge, 3.0));
        for impossible in [
            WindowValues { count: 0, ..possible },
            WindowValues { min: 4.0, ..possible },
            WindowValues { max: 2.0, ..possible },
            WindowValues { sum: f64::NAN, ..possible },
            WindowValues { min: f64::NAN, ..possible },
        ] {
            assert!(!impossible.is_possible(&gauge, 3.0), "{impossible:?}");
        }
        assert!(!possible.is_possible(&gauge, f64::NAN));
    }

    proptest! {
        #[test]
        fn integers_come_back_exactly(values in prop::collection::vec(-(1_i64 << 40)..1 << 40, 1..50), is_signed: bool) {
            let values: Vec<i64> = if is_signed { values } else { values.iter().map(|value| value.abs()).collect() };
            let gauge = metric(Kind::Gauge, if is_signed { Number::Signed } else { Number::Unsigned });
            let (min, max) = (values.iter().min().unwrap(), values.iter().max().unwrap());
            let sum: i64 = values.iter().sum();
            let summary = Summary {
                last: values.last().unwrap().cast_unsigned(),
                count: values.len() as u64,
                min: min.cast_unsigned(),
                max: max.cast_unsigned(),
                sum: sum.cast_unsigned(),
            };
            let found = unpacked(summary, &gauge);
            #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
            let expected = [*min as f64, *max as f64, sum as f64];
            prop_assert_eq!([found.min, found.max, found.sum], expected);
            prop_assert!(found.is_possible(&gauge, gauge.number.to_f64(summary.last)));
        }

        #[test]
        fn any_parts_are_values(packed: [u64; PARTS], kind in prop_oneof![Just(Kind::Gauge), Just(Kind::Counter)], number in prop_oneof![Just(Number::Unsigned), Just(Number::Signed), Just(Number::Float)]) {
            let metric = metric(kind, number);
            let values = Summary::unpack(packed, &metric);
            if values.is_possible(&metric, number.to_f64(packed[0])) && !values.is_raw() {
                prop_assert!(values.min <= values.max && values.count > 0);
            }
        }
    }
}
