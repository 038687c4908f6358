//! Lists of GPUs, as schedulers write them. Pure.

use std::ops::RangeInclusive;

/// Returns the numbers that an item of a list stands for: `3`, or `2-4`; none if it is a UUID.
pub(super) fn numbers_of(item: &str) -> Option<RangeInclusive<u32>> {
    let (first, last) = item.split_once('-').unwrap_or((item, item));
    Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
}
