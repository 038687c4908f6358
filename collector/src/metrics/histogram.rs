//! How often something took how long.

use std::time::Duration;

use super::Number;

/// The bounds of the buckets in milliseconds: from a commit to memory to a store that is away.
pub(super) const BOUNDS_MS: [u64; 14] =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000];

/// Counts durations by size.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// For each bound, those that are no longer and do not belong to an earlier one.
    buckets: [Number; BOUNDS_MS.len()],
    longer: Number,
    sum_us: Number,
}

impl Histogram {
    /// Counts one.
    pub(crate) fn note(&self, duration: Duration) {
        let fits = |bound: &&u64| duration <= Duration::from_millis(**bound);
        let at = BOUNDS_MS.iter().position(|bound| fits(&bound));
        at.and_then(|at| self.buckets.get(at)).unwrap_or(&self.longer).add(1);
        self.sum_us.add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    /// For each bound, how many were no longer; and how many there were.
    pub(super) fn cumulated(&self) -> (Vec<(u64, u64)>, u64) {
        let mut count = 0;
        let mut up_to = |number: &Number| {
            count += number.get();
            count
        };
        let buckets =
            BOUNDS_MS.iter().zip(&self.buckets).map(|(bound, number)| (*bound, up_to(number))).collect();
        (buckets, up_to(&self.longer))
    }

    /// All of them together, in microseconds.
    pub(super) fn sum_us(&self) -> u64 {
        self.sum_us.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_in_its_bucket_and_in_all_above() {
        let histogram = Histogram::default();
        for ms in [0, 1, 3, 60_000, 60_001] {
            histogram.note(Duration::from_millis(ms));
        }
        let (buckets, count) = histogram.cumulated();
        assert_eq!(buckets[..3], [(1, 2), (2, 2), (5, 3)]);
        assert_eq!((buckets.last(), count), (Some(&(60_000, 4)), 5));
        assert_eq!(histogram.sum_us(), 120_005_000);
    }
}
