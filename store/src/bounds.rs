//! Ranges of values that every store can hold. Pure.

/// Latest time that is stored, 2100. A later time from an agent is wrong, and must not make a transaction
/// fail.
pub(crate) const LATEST_US: i64 = 4_102_444_800 * 1_000_000;

/// Limits a time that an agent reported, in microseconds since the epoch, to the range of every store.
pub(crate) fn stored_us(time_us: i64) -> i64 {
    time_us.clamp(0, LATEST_US)
}

/// Limits a count that an agent reported to the range of every store.
pub(crate) fn stored_count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_times_are_bounded() {
        assert_eq!(stored_us(i64::MIN), 0);
        assert_eq!(stored_us(1_700_000_000_000_000), 1_700_000_000_000_000);
        assert!(stored_us(i64::MAX).checked_mul(1000).is_some());
        assert_eq!(stored_count(u64::MAX), i64::MAX);
    }
}
