//! Mixing function of SplitMix64.

/// Difference of successive arguments with which [`mix`] is SplitMix64.
pub(crate) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A number that differs unpredictably for each argument. Different arguments have different results.
pub(crate) const fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(STEP);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)))
}
