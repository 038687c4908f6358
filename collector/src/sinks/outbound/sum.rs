//! Time since which a counter counts: pure.
//!
//! When a counter began is not known. The first sample that is sent stands for it: the value at that time is
//! the base, and consumers add up the differences from there. After a smaller value the counter has begun anew
//! behind the sample before.

use super::request::Sample;

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Sum {
    /// Time since the epoch, and the last sample; none before the first one.
    begun: Option<(i64, Sample)>,
}

impl Sum {
    /// Splits the samples of a series, which are sorted by time, where the counter begins anew. Each part has
    /// the time since which it counts.
    pub(super) fn split<'a>(&mut self, samples: &'a [Sample]) -> Vec<(i64, &'a [Sample])> {
        let mut parts = Vec::new();
        for part in samples.chunk_by(|before, next| !is_less(*next, *before)) {
            let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
            let start_ms = match self.begun {
                None => first.0,
                Some((_, before)) if is_less(*first, before) => before.0,
                Some((start_ms, _)) => start_ms,
            };
            self.begun = Some((start_ms, *last));
            parts.push((start_ms, part));
        }
        parts
    }

    pub(super) fn start_ms(&self) -> Option<i64> {
        self.begun.map(|(start_ms, _)| start_ms)
    }
}

/// False for values that are not numbers.
fn is_less((_, one): Sample, (_, other): Sample) -> bool {
    f64::from_bits(one) < f64::from_bits(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[(i64, f64)]) -> Vec<Sample> {
        values.iter().map(|(ms, value)| (*ms, value.to_bits())).collect()
    }

    fn starts(sum: &mut Sum, values: &[(i64, f64)]) -> Vec<(i64, usize)> {
        sum.split(&samples(values)).iter().map(|(start_ms, part)| (*start_ms, part.len())).collect()
    }

    #[test]
    fn a_counter_begins_with_its_first_sample_and_after_each_decrease() {
        let mut sum = Sum::default();
        assert_eq!((starts(&mut sum, &[]), sum.start_ms()), (vec![], None));
        assert_eq!(starts(&mut sum, &[(5, 7.0), (6, 7.0), (7, 9.0)]), [(5, 3)]);
        assert_eq!(starts(&mut sum, &[(8, 9.0), (9, 3.0), (10, 4.0), (11, 0.0)]), [(5, 1), (8, 2), (10, 1)]);
        assert_eq!(starts(&mut sum, &[(12, 1.0)]), [(10, 1)]);
        assert_eq!(starts(&mut sum, &[(13, 0.5)]), [(12, 1)]);
        assert_eq!(sum.start_ms(), Some(12));
    }

    #[test]
    fn a_value_that_is_no_number_begins_nothing() {
        let mut sum = Sum::default();
        assert_eq!(starts(&mut sum, &[(1, 5.0), (2, f64::NAN), (3, 6.0)]), [(1, 3)]);
    }
}
