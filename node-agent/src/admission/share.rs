//! The shares of owners when there are more jobs than can be tracked: every owner has the same share, so that
//! thousands of cgroups of one owner displace no other's. Pure.

use std::collections::BTreeMap;

/// How many jobs of each owner fit into `room` if all owners have the same share. What an owner does not need
/// is divided among the others.
pub(super) fn shares<O: Ord + Clone>(wanted: &BTreeMap<O, usize>, room: usize) -> BTreeMap<O, usize> {
    let mut by_need: Vec<(&O, usize)> = wanted.iter().map(|(owner, jobs)| (owner, *jobs)).collect();
    by_need.sort_by_key(|(_, jobs)| *jobs);
    let (mut left, mut owners) = (room, by_need.len());
    let mut shares = BTreeMap::new();
    for (owner, jobs) in by_need {
        // Rounded up, so that no place stays free; the owner with the fewest jobs comes first.
        let share = jobs.min(left.div_ceil(owners.max(1)));
        left -= share.min(left);
        owners -= 1;
        shares.insert(owner.clone(), share);
    }
    shares
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate<O, J> {
    /// True if it is not tracked yet: a tracked job stays.
    pub(super) is_new: bool,
    pub(super) job: J,
    pub(super) owner: O,
}

pub(super) fn left_out<O: Ord + Clone, J: Ord>(mut candidates: Vec<Candidate<O, J>>, room: usize) -> Vec<J> {
    if candidates.len() <= room {
        return Vec::new();
    }
    let mut wanted: BTreeMap<O, usize> = BTreeMap::new();
    candidates.iter().for_each(|candidate| *wanted.entry(candidate.owner.clone()).or_default() += 1);
    let mut shares = shares(&wanted, room);
    candidates.sort();
    let mut left_out = Vec::new();
    for candidate in candidates {
        match shares.get_mut(&candidate.owner) {
            Some(share) if *share > 0 => *share -= 1,
            _ => left_out.push(candidate.job),
        }
    }
    left_out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidates(owners: &[(u32, usize)], tracked: usize) -> Vec<Candidate<u32, usize>> {
        let jobs = owners.iter().flat_map(|(owner, jobs)| std::iter::repeat_n(*owner, *jobs));
        jobs.enumerate().map(|(job, owner)| Candidate { is_new: job >= tracked, job, owner }).collect()
    }

    #[test]
    fn jobs_of_one_owner_take_no_place_of_another() {
        // One owner has 6,500 jobs, of which as many are tracked as there is room for; another owner's job
        // arrives later.
        let left_out = left_out(candidates(&[(1, 6_500), (2, 1)], 4_096), 4_096);
        assert!(!left_out.contains(&6_500), "the honest job");
        assert_eq!(left_out.len(), 6_501 - 4_096);
        assert!(left_out.contains(&4_095) && !left_out.contains(&4_094), "the newest of the other goes");
    }

    #[test]
    fn unused_shares_go_to_the_others() {
        let wanted = BTreeMap::from([("a", 2), ("b", 10), ("c", 90)]);
        assert_eq!(shares(&wanted, 30), BTreeMap::from([("a", 2), ("b", 10), ("c", 18)]));
        assert_eq!(shares(&wanted, 200), wanted);
        assert_eq!(shares(&wanted, 0), BTreeMap::from([("a", 0), ("b", 0), ("c", 0)]));
    }

    proptest! {
        #[test]
        fn shares_fill_the_room_and_are_fair(jobs in prop::collection::vec(0_usize..50, 0..12), room in 0_usize..300) {
            let wanted: BTreeMap<usize, usize> = jobs.iter().copied().enumerate().collect();
            let shares = shares(&wanted, room);
            let sum: usize = shares.values().sum();
            prop_assert_eq!(sum, room.min(jobs.iter().sum()));
            let most = shares.values().max().copied().unwrap_or_default();
            for (owner, share) in &shares {
                prop_assert!(*share <= wanted[owner]);
                prop_assert!(*share == wanted[owner] || *share + 1 >= most, "{shares:?} of {wanted:?}");
            }
        }
    }
}
