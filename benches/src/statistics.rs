//! Means with 95 % intervals, and a reproducible random order.

pub use polymeter_analysis::statistics::Estimate;

/// Median, of an even number of values the upper one; NaN without values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The exact 95 % interval of a probability (Clopper and Pearson), of which `hits` of `runs` are known.
pub fn binomial_interval(hits: u32, runs: u32) -> (f64, f64) {
    const TAIL: f64 = 0.025;
    // As many as `hits` or fewer are less and less probable with a larger probability.
    let most = if hits < runs { solve(|p| at_most(hits, runs, p) > TAIL) } else { 1.0 };
    let least = if hits > 0 { solve(|p| at_most(hits - 1, runs, p) > 1.0 - TAIL) } else { 0.0 };
    (least, most)
}

/// The probability of at most `hits` of `runs`, but not of all, each with the probability `p`.
fn at_most(hits: u32, runs: u32, p: f64) -> f64 {
    if p > 0.5 {
        // The first of the terms below would be too small for a number.
        return 1.0 - at_most(runs - hits - 1, runs, 1.0 - p);
    }
    let odds = p / (1.0 - p);
    let (mut of_one, mut sum) = ((1.0 - p).powf(f64::from(runs)), 0.0);
    for number in 0..=hits {
        sum += of_one;
        of_one *= odds * f64::from(runs - number) / f64::from(number + 1);
    }
    sum
}

/// The number between 0 and 1 up to which `is_below` is true.
fn solve(is_below: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if is_below(middle) { low = middle } else { high = middle }
    }
    low
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

    /// Compares with quantiles of the beta distribution, by numerical integration of its density.
    #[test]
    fn a_share_has_the_interval_of_beta_quantiles() {
        for (hits, runs, least, most) in [
            (0, 5, 0.0, 0.521_824),
            (5, 6, 0.358_765, 0.995_789),
            (6, 6, 0.540_742, 1.0),
            (34, 36, 0.813_363, 0.993_200),
            (285, 300, 0.918_873, 0.971_749),
            (999, 1000, 0.994_441, 0.999_975),
        ] {
            let found = binomial_interval(hits, runs);
            let is_near = (found.0 - least).abs() < 2e-6 && (found.1 - most).abs() < 2e-6;
            assert!(is_near, "{hits} of {runs}: {found:?}");
        }
    }

    fn shuffled(seed: u64) -> Vec<u32> {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(seed).shuffle(&mut items);
        items
    }
}
