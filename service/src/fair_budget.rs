//! A budget that refills with time, and that users share. Pure: the caller passes the time.

use std::collections::BTreeMap;
use std::time::Duration;

/// Uses that every user has, whatever the others do.
const GUARANTEED: f64 = 5.0;

/// Users with uses that have not refilled. Further ones wait.
const USERS: usize = 1024;

/// Uses of a budget. Each user may have used as much as is left, so that one alone gets half at once and the
/// whole rate in the long run; some uses are left to every other one. What refills goes to all users in equal
/// parts, so that the rate holds for all of them together.
#[derive(Debug)]
pub struct FairBudget<K> {
    per_second: f64,
    capacity: f64,
    /// Uses of each user that have not refilled yet.
    used: BTreeMap<K, f64>,
    updated_ns: u64,
}

impl<K: Ord> FairBudget<K> {
    pub const fn new(per_second: f64, capacity: f64) -> Self {
        Self { per_second, capacity, used: BTreeMap::new(), updated_ns: 0 }
    }

    fn refill(&mut self, now_ns: u64) {
        let elapsed = Duration::from_nanos(now_ns.saturating_sub(self.updated_ns));
        self.updated_ns = self.updated_ns.max(now_ns);
        let mut left = elapsed.as_secs_f64() * self.per_second;
        // Users with less than their part leave the rest of it to the others.
        while left > 0.0 && !self.used.is_empty() {
            let users: f64 = self.used.values().map(|_| 1.0).sum();
            let least = self.used.values().copied().fold(f64::INFINITY, f64::min);
            let part = least.min(left / users);
            left -= part * users;
            self.used.values_mut().for_each(|used| *used -= part);
            self.used.retain(|_, used| *used > f64::EPSILON);
            if part < least {
                return;
            }
        }
    }

    /// Takes one use and returns true, or returns false if the user has none left.
    pub fn try_take(&mut self, user: K, now_ns: u64) -> bool {
        self.refill(now_ns);
        let all: f64 = self.used.values().sum();
        let known = self.used.get(&user).copied();
        let own = known.unwrap_or_default();
        let is_bounded = known.is_some() || self.used.len() < USERS;
        if !is_bounded || own + 1.0 > GUARANTEED && all + own + 1.0 > self.capacity {
            return false;
        }
        self.used.insert(user, own + 1.0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn taken(budget: &mut FairBudget<u32>, user: u32, now_ns: u64) -> usize {
        (0..1000).take_while(|_| budget.try_take(user, now_ns)).count()
    }

    #[test]
    fn a_user_alone_has_half_at_once_and_the_whole_rate() {
        let mut budget = FairBudget::new(10.0, 200.0);
        assert_eq!(taken(&mut budget, 1, SECOND_NS), 100);
        let later: usize =
            (1..=100).map(|tenth| taken(&mut budget, 1, SECOND_NS + tenth * SECOND_NS / 10)).sum();
        assert!((99..=100).contains(&later), "{later} in 10 s");
        assert_eq!(taken(&mut budget, 1, 3_600 * SECOND_NS), 100);
        // A clock that goes back neither adds nor removes anything.
        assert_eq!(taken(&mut budget, 1, SECOND_NS), 0);
    }

    #[test]
    fn a_storm_of_users_leaves_some_to_every_other_one() {
        let mut budget = FairBudget::new(10.0, 200.0);
        let mut now_ns = SECOND_NS;
        for storming in [1, 2, 7, 50, 400] {
            let mut of_storm = 0;
            for second in 0..200 {
                now_ns += SECOND_NS;
                // All of them take what they can.
                of_storm += (0..storming).map(|user| taken(&mut budget, user, now_ns)).sum::<usize>();
                let is_taken = second % 40 != 7 || budget.try_take(1_000_000 + storming, now_ns);
                assert!(is_taken, "{storming} users storm");
            }
            let at_once = 200 + 5 * usize::try_from(storming).unwrap();
            assert!(of_storm <= at_once + 2_000, "{of_storm} uses of {storming} users in 200 s");
            now_ns += 3_600 * SECOND_NS;
        }
    }

    #[test]
    fn the_rate_is_shared_equally() {
        let mut budget = FairBudget::new(10.0, 200.0);
        let mut counts = [0; 4];
        for tick in 0..1000 {
            let now_ns = tick * SECOND_NS / 10;
            for (user, count) in (0..).zip(&mut counts) {
                *count += taken(&mut budget, user, now_ns);
            }
        }
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!((1_000..1_200).contains(&counts.iter().sum::<usize>()), "{counts:?}");
        assert!(most - least < 120, "{counts:?}");
    }

    #[test]
    fn memory_is_bounded_in_the_number_of_users() {
        let mut budget = FairBudget::new(10.0, 200.0);
        assert_eq!((0..100_000).filter(|user| budget.try_take(*user, SECOND_NS)).count(), USERS);
        assert_eq!(budget.used.len(), USERS);
        assert!(budget.try_take(7, SECOND_NS) && !budget.try_take(100_000, SECOND_NS));
        assert!(budget.try_take(100_000, 1_000 * SECOND_NS));
        assert_eq!(budget.used.len(), 1, "who used nothing for a while is forgotten");
    }
}
