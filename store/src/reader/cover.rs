//! Choice of a few ranges of ids that contain all wanted ones. Pure.
//!
//! A range is read in the order of an index, or of compressed batches, and is compared many ids at a time. A
//! list of ids makes the database compare row by row, or sort all samples of the job.

use polymeter_proto::read::IdRanges;

/// Ranges at most: each is a statement of its own.
const RANGES_MAX: usize = 8;

/// Returns ranges in ascending order that contain all wanted ids, and at most half as many others; none if
/// that takes too many ranges.
pub(super) fn cover(wanted: &IdRanges) -> Option<Vec<(i64, i64)>> {
    let ranges = wanted.ranges();
    let (first, last) = (ranges.first()?.0, ranges.last()?.1);
    let count = wanted.count_within(u64::MAX)?;
    let limit = count.saturating_add(count / 2);
    // The number of ids between a range and the next, and the position of the latter.
    let pairs = ranges.iter().zip(ranges.iter().skip(1));
    let widths = pairs.map(|(before, next)| before.1.abs_diff(next.0).saturating_sub(1));
    let mut gaps: Vec<(u64, usize)> = widths.zip(1..).collect();
    gaps.sort_unstable_by(|one, other| other.cmp(one));
    let mut covered = first.abs_diff(last).saturating_add(1);
    let mut begins = vec![0];
    for (gap, position) in gaps {
        if covered <= limit || begins.len() >= RANGES_MAX {
            break;
        }
        covered = covered.saturating_sub(gap);
        begins.push(position);
    }
    if covered > limit {
        return None;
    }
    begins.sort_unstable();
    let ends = begins.iter().skip(1).copied().chain([ranges.len()]);
    begins
        .iter()
        .zip(ends)
        .map(|(begin, end)| {
            let part = ranges.get(*begin..end)?;
            Some((part.first()?.0, part.last()?.1))
        })
        .collect()
}

/// Ids in ascending order, each of which is looked up in a set.
#[derive(Debug)]
pub(super) struct Ascending<'a>(&'a [(i64, i64)]);

impl<'a> Ascending<'a> {
    pub(super) fn new(set: &'a IdRanges) -> Self {
        Self(set.ranges())
    }

    /// Returns true if the set contains `id`, which is not below the previous one.
    pub(super) fn contains(&mut self, id: i64) -> bool {
        while let Some(((_, last), rest)) = self.0.split_first() {
            if id <= *last {
                break;
            }
            self.0 = rest;
        }
        self.0.first().is_some_and(|(first, _)| *first <= id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: impl IntoIterator<Item = i64>) -> IdRanges {
        ids.into_iter().collect()
    }

    #[test]
    fn series_of_a_job_on_many_nodes_are_few_ranges() {
        assert_eq!(cover(&set([])), None);
        assert_eq!(cover(&set(5..65)), Some(vec![(5, 64)]));
        // A block of 60 series on each node, and between them blocks of 4 of the nodes.
        let wide = set((0..1000).flat_map(|node| node * 64..node * 64 + 60));
        assert_eq!(cover(&wide), Some(vec![(0, 999 * 64 + 59)]));
        // A second part of the job registered much later.
        let late = set((0..60).chain(1_000_000..1_000_060));
        assert_eq!(cover(&late), Some(vec![(0, 59), (1_000_000, 1_000_059)]));
        assert_eq!(cover(&set([i64::MIN, i64::MAX])), Some(vec![(i64::MIN, i64::MIN), (i64::MAX, i64::MAX)]));
    }

    #[test]
    fn scattered_ids_are_a_list() {
        // One metric of many nodes.
        assert_eq!(cover(&set((0..1000).map(|node| node * 60))), None);
        let few = cover(&set((0..8).map(|node| node * 60))).unwrap();
        assert_eq!(few, (0..8).map(|node| (node * 60, node * 60)).collect::<Vec<_>>());
    }

    #[test]
    fn ascending_ids_are_looked_up() {
        let set = set([1, 2, 3, 7, 9]);
        let mut ascending = Ascending::new(&set);
        let found: Vec<i64> = (0..12).flat_map(|id| [id, id]).filter(|id| ascending.contains(*id)).collect();
        assert_eq!(found, [1, 1, 2, 2, 3, 3, 7, 7, 9, 9]);
    }
}
