//! A log-linear histogram: every power of two has the same number of buckets, with a relative error of at
//! most 1/32.

/// Bits after the highest one that select the bucket.
const SUB_BITS: u32 = 5;

/// Buckets for each power of two.
const SUB: u64 = 1 << SUB_BITS;

/// Buckets for all 64-bit values: 15 KiB.
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) << SUB_BITS;

/// Counts all 64-bit values, in constant memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    most: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, most: 0 }
    }
}

impl Histogram {
    /// Counts `value`. Does not allocate.
    #[inline]
    pub fn record(&mut self, value: u64) {
        if let Some(count) = self.counts.get_mut(bucket(value)) {
            *count += 1;
        }
        self.total += 1;
        self.most = self.most.max(value);
    }

    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.most = self.most.max(other.most);
    }

    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Largest value, or 0 if there is none.
    pub const fn most(&self) -> u64 {
        self.most
    }

    /// Quantile `part` (0 to 1) of all values: the upper end of its bucket, at most 1/32 above the exact
    /// value. 0 if there is no value.
    pub fn quantile(&self, part: f64) -> u64 {
        let wanted = (crate::table::to_f64(self.total) * part).max(1.0);
        let mut below = 0;
        for (index, count) in (0..).zip(&self.counts) {
            below += count;
            if *count > 0 && crate::table::to_f64(below) >= wanted {
                return upper_end(index).min(self.most);
            }
        }
        self.most
    }

    /// Indexes and counts of the buckets that are not empty, from which another process can rebuild the
    /// histogram.
    pub fn filled(&self) -> Vec<(usize, u64)> {
        self.counts.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect()
    }

    /// Creates a histogram from the buckets of [`Self::filled`] and the largest value. Ignores buckets whose
    /// index is out of range.
    pub fn from_filled(filled: &[(usize, u64)], most: u64) -> Self {
        let mut histogram = Self { most, ..Self::default() };
        for (index, count) in filled {
            if let Some(place) = histogram.counts.get_mut(*index) {
                *place += count;
                histogram.total += count;
            }
        }
        histogram
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a number of a bucket is below BUCKETS")]
const fn bucket(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - SUB_BITS;
    (shift as usize + 1) * SUB as usize + ((value >> shift) - SUB) as usize
}

/// Largest value of a bucket.
const fn upper_end(index: u64) -> u64 {
    let (octave, sub) = (index / SUB, index % SUB);
    if octave == 0 {
        return sub;
    }
    let shift = octave - 1;
    ((SUB + sub) << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_and_buckets_join() {
        let mut last_end = None;
        for index in 0..BUCKETS {
            let end = upper_end(index as u64);
            assert_eq!(bucket(end), index);
            if let Some(last) = last_end {
                assert_eq!(bucket(last + 1), index, "after {last}");
            }
            last_end = Some(end);
        }
        assert_eq!(last_end, Some(u64::MAX));
    }

    #[test]
    fn quantiles_are_within_a_bucket_of_the_truth() {
        let mut histogram = Histogram::default();
        (1..=100_000).for_each(|value| histogram.record(value));
        for (part, truth) in [(0.5, 50_000), (0.99, 99_000), (0.999_99, 99_999), (1.0, 100_000)] {
            let found = histogram.quantile(part);
            assert!((truth..=truth + truth / 32).contains(&found), "{part}: {found}");
        }
        assert_eq!(histogram.quantile(0.0), 1);
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }

    #[test]
    fn it_survives_the_way_through_text_and_sums_are_sums() {
        let (mut a, mut b) = (Histogram::default(), Histogram::default());
        [3, 3, 70, u64::MAX].into_iter().for_each(|value| a.record(value));
        [3, 1 << 40].into_iter().for_each(|value| b.record(value));
        assert_eq!(Histogram::from_filled(&a.filled(), a.most()), a);
        a.add(&b);
        assert_eq!((a.total(), a.most(), a.quantile(0.5)), (6, u64::MAX, 3));
        assert_eq!(Histogram::from_filled(&[(BUCKETS, 9)], 0).total(), 0);
    }
}
