//! Lists of GPUs, as schedulers write them. Pure.

use std::ops::RangeInclusive;

/// Parses an item of a list, `3` or `2-4`; `None` for a UUID.
pub(super) fn numbers_of(item: &str) -> Option<RangeInclusive<u32>> {
    let (first, last) = item.split_once('-').unwrap_or((item, item));
    Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
}
