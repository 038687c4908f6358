//! Sets of ids as ranges: the series of a job on a node have consecutive ids.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Set of ids: ranges in ascending order, each with its first and its last id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IdRanges(Vec<(i64, i64)>);

impl IdRanges {
    /// Returns the ranges as they were read.
    pub fn ranges(&self) -> &[(i64, i64)] {
        &self.0
    }

    /// Returns the number of ids; none if it is above `limit`, or if the ranges are not in ascending order.
    pub fn count_within(&self, limit: u64) -> Option<u64> {
        let (mut count, mut previous) = (0_u64, None);
        for &(first, last) in &self.0 {
            if first > last || previous.is_some_and(|previous| previous >= first) {
                return None;
            }
            count = count.checked_add(last.abs_diff(first)).and_then(|count| count.checked_add(1))?;
            if count > limit {
                return None;
            }
            previous = Some(last);
        }
        Some(count)
    }

    pub fn ids(&self) -> impl Iterator<Item = i64> {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.0.as_slice(), other.0.as_slice());
        let mut both = Vec::new();
        while let (Some(&(first, last)), Some(&(other_first, other_last))) = (left.first(), right.first()) {
            let common = (first.max(other_first), last.min(other_last));
            if common.0 <= common.1 {
                both.push(common);
            }
            // The range that ends first has no further ids in common with the other set.
            if last < other_last {
                left = left.split_first().map_or(&[], |(_, rest)| rest);
            } else {
                right = right.split_first().map_or(&[], |(_, rest)| rest);
            }
        }
        Self(both)
    }

    /// Divides the set into parts of at most `ids` ids and `ranges` ranges each, in ascending order.
    pub fn parts(&self, ids: u64, ranges: usize) -> Vec<Self> {
        let (mut parts, mut part, mut count) = (Vec::new(), Vec::new(), 0);
        for &(mut first, last) in &self.0 {
            loop {
                if part.len() >= ranges.max(1) || count >= ids.max(1) {
                    parts.push(Self(std::mem::take(&mut part)));
                    count = 0;
                }
                let room = i64::try_from(ids.max(1) - count - 1).unwrap_or(i64::MAX);
                let end = first.saturating_add(room).min(last);
                part.push((first, end));
                count += end.abs_diff(first) + 1;
                if end == last {
                    break;
                }
                first = end + 1;
            }
        }
        if !part.is_empty() {
            parts.push(Self(part));
        }
        parts
    }
}

impl FromIterator<i64> for IdRanges {
    fn from_iter<T: IntoIterator<Item = i64>>(ids: T) -> Self {
        let sorted: BTreeSet<i64> = ids.into_iter().collect();
        let mut ranges: Vec<(i64, i64)> = Vec::new();
        for id in sorted {
            match ranges.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(id) => *last = id,
                Some(_) | None => ranges.push((id, id)),
            }
        }
        Self(ranges)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(ids: impl IntoIterator<Item = i64>) -> IdRanges {
        ids.into_iter().collect()
    }

    #[test]
    fn consecutive_ids_are_one_range() {
        let set = ids([7, 3, 4, 5, 9, 4]);
        assert_eq!(set.ranges(), [(3, 5), (7, 7), (9, 9)]);
        assert_eq!(set.count_within(5), Some(5));
        assert_eq!(set.count_within(4), None);
        assert_eq!(ids([i64::MAX, i64::MAX - 1]).ranges(), [(i64::MAX - 1, i64::MAX)]);
    }

    #[test]
    fn ranges_that_are_too_large_or_out_of_order_have_no_count() {
        for ranges in [vec![(i64::MIN, i64::MAX)], vec![(2, 1)], vec![(1, 4), (4, 5)], vec![(5, 6), (1, 2)]] {
            assert_eq!(IdRanges(ranges).count_within(u64::MAX), None);
        }
        assert_eq!(IdRanges(vec![(0, i64::MAX)]).count_within(1000), None);
    }

    proptest! {
        #[test]
        fn sets_of_ranges_are_sets(
            one in proptest::collection::btree_set(-40_i64..40, 0..40),
            other in proptest::collection::btree_set(-40_i64..40, 0..40),
            (most_ids, most_ranges) in (1_u64..9, 1_usize..5),
        ) {
            let (set, others) = (ids(one.clone()), ids(other.clone()));
            prop_assert_eq!(set.ids().collect::<Vec<_>>(), one.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(set.count_within(u64::MAX), Some(one.len() as u64));
            let both: Vec<i64> = one.intersection(&other).copied().collect();
            prop_assert_eq!(set.intersection(&others).ids().collect::<Vec<_>>(), both);
            let parts = set.parts(most_ids, most_ranges);
            for part in &parts {
                prop_assert!(!part.is_empty() && part.ranges().len() <= most_ranges);
                prop_assert!(part.count_within(most_ids).is_some());
            }
            prop_assert_eq!(parts.iter().flat_map(IdRanges::ids).collect::<Vec<_>>(), set.ids().collect::<Vec<_>>());
        }
    }
}
