//! The schedule of deadlines: pure arithmetic on a grid, without a clock.
//!
//! Time here is grid time: nanoseconds that advance with the monotonic clock, set to the wall clock once at
//! the start. A deadline is a whole multiple of its period in grid time, so that all metrics of one period,
//! on all nodes with synchronized clocks, are due together, and periods that divide one another share their
//! wake-ups.

use polymeter_proto::period::Period;

/// Entries by period. `T` is the item that the caller gets back when it is due.
#[derive(Debug)]
pub struct Schedule<T> {
    periods: Vec<PeriodEntries<T>>,
}

#[derive(Debug)]
struct PeriodEntries<T> {
    period_ns: u64,
    next_ns: u64,
    entries: Vec<Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    item: T,
    /// First deadline that counts for it.
    since_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due<T> {
    pub item: T,
    /// Number on the grid of its period.
    pub deadline: u64,
    pub lateness_ns: u64,
    /// Earlier deadlines that passed since the last call: they are missed, and never made up for.
    pub missed: u64,
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self { periods: Vec::new() }
    }
}

impl<T: Copy + PartialEq> Schedule<T> {
    /// Adds `item`, due at each multiple of `period` after `now_ns`.
    pub fn insert(&mut self, item: T, period: Period, now_ns: u64) {
        let period_ns = period.as_nanos();
        let since_ns = (now_ns / period_ns + 1) * period_ns;
        let entry = Entry { item, since_ns };
        match self.periods.iter_mut().find(|of_period| of_period.period_ns == period_ns) {
            Some(of_period) => of_period.entries.push(entry),
            None => self.periods.push(PeriodEntries { period_ns, next_ns: since_ns, entries: vec![entry] }),
        }
    }

    /// Removes every entry for whose item `gone` is true.
    pub fn remove(&mut self, gone: impl Fn(&T) -> bool) {
        for of_period in &mut self.periods {
            of_period.entries.retain(|entry| !gone(&entry.item));
        }
        self.periods.retain(|of_period| !of_period.entries.is_empty());
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.periods.iter().map(|of_period| of_period.next_ns).min()
    }

    /// Appends to `due` all entries whose deadline is not after `now_ns`, and advances them to their next
    /// deadlines.
    ///
    /// An entry appears at most once: of several passed deadlines only the last is kept.
    pub fn take_due(&mut self, now_ns: u64, due: &mut Vec<Due<T>>) {
        for of_period in self.periods.iter_mut().filter(|of_period| of_period.next_ns <= now_ns) {
            let deadline = now_ns / of_period.period_ns;
            let deadline_ns = deadline * of_period.period_ns;
            let lateness_ns = now_ns - deadline_ns;
            for entry in of_period.entries.iter().filter(|entry| entry.since_ns <= deadline_ns) {
                let missed = (deadline_ns - entry.since_ns.max(of_period.next_ns)) / of_period.period_ns;
                due.push(Due { item: entry.item, deadline, lateness_ns, missed });
            }
            of_period.next_ns = deadline_ns + of_period.period_ns;
        }
    }

    pub fn len(&self) -> usize {
        self.periods.iter().map(|of_period| of_period.entries.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.periods.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn period(text: &str) -> Period {
        text.parse().unwrap()
    }

    fn take(schedule: &mut Schedule<char>, now_ns: u64) -> Vec<Due<char>> {
        let mut due = Vec::new();
        schedule.take_due(now_ns, &mut due);
        due
    }

    #[test]
    fn deadlines_lie_on_the_grid_of_their_period() {
        let mut schedule = Schedule::default();
        schedule.insert('a', period("10ms"), 123 * MS);
        assert_eq!(schedule.next_ns(), Some(130 * MS));
        assert!(take(&mut schedule, 130 * MS - 1).is_empty());
        assert_eq!(
            take(&mut schedule, 130 * MS + 5),
            [Due { item: 'a', deadline: 13, lateness_ns: 5, missed: 0 }]
        );
        assert_eq!(schedule.next_ns(), Some(140 * MS));
    }

    #[test]
    fn harmonic_periods_wake_together() {
        let mut schedule = Schedule::default();
        schedule.insert('a', period("1ms"), 0);
        schedule.insert('b', period("10ms"), 0);
        let wakes: Vec<usize> = (1..=10).map(|ms| take(&mut schedule, ms * MS).len()).collect();
        assert_eq!(wakes, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
    }

    #[test]
    fn missed_deadlines_are_counted_and_not_made_up_for() {
        let mut schedule = Schedule::default();
        schedule.insert('a', period("1ms"), 0);
        let due = take(&mut schedule, 5 * MS + 1);
        assert_eq!(due, [Due { item: 'a', deadline: 5, lateness_ns: 1, missed: 4 }]);
        assert!(take(&mut schedule, 5 * MS + 2).is_empty());
        assert_eq!(schedule.next_ns(), Some(6 * MS));
    }

    #[test]
    fn a_new_entry_has_missed_nothing_before() {
        let mut schedule = Schedule::default();
        schedule.insert('a', period("1ms"), 0);
        schedule.insert('b', period("1ms"), 7 * MS + 1);
        let due = take(&mut schedule, 9 * MS);
        assert_eq!(due.iter().map(|due| (due.item, due.missed)).collect::<Vec<_>>(), [('a', 8), ('b', 1)]);
        schedule.insert('c', period("1ms"), 9 * MS);
        assert!(take(&mut schedule, 9 * MS + 5).is_empty());
        assert_eq!(take(&mut schedule, 10 * MS).len(), 3);
    }

    #[test]
    fn a_change_does_not_move_other_entries() {
        let mut schedule = Schedule::default();
        schedule.insert('a', period("1ms"), 0);
        schedule.insert('b', period("1s"), 0);
        schedule.remove(|item| *item == 'b');
        schedule.insert('b', period("100us"), 500_000);
        assert_eq!(schedule.next_ns(), Some(600_000));
        schedule.remove(|item| *item == 'b');
        assert_eq!((schedule.next_ns(), schedule.len()), (Some(MS), 1));
        schedule.remove(|_| true);
        assert!(schedule.is_empty());
        assert_eq!(schedule.next_ns(), None);
    }

    proptest! {
        /// At any time, each deadline since the beginning was either taken once or missed once.
        #[test]
        fn every_deadline_is_taken_or_missed(steps in prop::collection::vec(1_u64..5_000_000, 1..200), period_us in 100_u64..5_000, start in 0_u64..1_000_000_000_000) {
            let mut schedule = Schedule::default();
            let period = Period::from_micros(period_us).unwrap();
            schedule.insert('a', period, start);
            let (mut now, mut kept, mut missed) = (start, 0, 0);
            for step in steps {
                now += step;
                for due in take(&mut schedule, now) {
                    kept += 1;
                    missed += due.missed;
                    prop_assert!(due.lateness_ns < period.as_nanos());
                    prop_assert_eq!(due.deadline * period.as_nanos() + due.lateness_ns, now);
                }
            }
            prop_assert_eq!(kept + missed, now / period.as_nanos() - start / period.as_nanos());
        }
    }
}
