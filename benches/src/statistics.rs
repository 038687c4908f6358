//! Means with 95 % intervals, and a reproducible random order.

pub use polymeter_analysis::statistics::Estimate;

/// Median, of an even number of values the upper one; NaN without values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A pseudo-random number generator with a seed: splitmix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        // The high bits of the product are close to uniform for bounds far below 2^64.
        ((self.bits() as u128 * bound as u128) >> 64) as u64
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for left in (1..items.len()).rev() {
            let other = usize::try_from(self.below(left as u64 + 1)).unwrap_or(left);
            items.swap(left, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_a_permutation_and_follows_from_the_seed() {
        assert_eq!(shuffled(7), shuffled(7));
        assert_ne!(shuffled(7), shuffled(8));
        let mut sorted = shuffled(7);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
        // The first output for seed 0, as published by the authors of splitmix64.
        assert_eq!(Random::new(0).bits(), 0xe220_a839_7b1d_cdaf);
    }

    fn shuffled(seed: u64) -> Vec<u32> {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(seed).shuffle(&mut items);
        items
    }
}
