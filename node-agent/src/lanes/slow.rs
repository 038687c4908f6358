//! Deadlines of a source of the slow lane. Pure: the reading thread is elsewhere.
//!
//! A read is requested at a deadline and finishes some time later, or never. Meanwhile deadlines pass. Of the
//! deadlines of a group only the last waits for the values; the others are missed, and counted when they
//! pass. So each deadline of a source that hangs is counted, as for a delayed source of the fast lane.

use std::sync::Arc;

use super::source_group::Group;

/// How long a read under way may take until it is reported as hanging, if a deadline has passed meanwhile.
const HUNG_NS: u64 = 1_000_000_000;

/// A group that waits for the values of the read under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) group: usize,
    /// Last of its deadlines that has passed; none for a reading out of schedule.
    pub(super) deadline: Option<Deadline>,
}

#[derive(Debug, Default)]
pub(super) struct SlowReads {
    requested_ns: Option<u64>,
    waiting: Vec<Waiting>,
    /// True if all groups are to be read out of schedule once the read under way has finished.
    is_wanted_again: bool,
    /// True from the report of a hanging read until the read has finished.
    is_hung: bool,
    /// Groups that wait for the read after the one that has finished.
    postponed: Vec<Waiting>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deadline {
    /// Number on the grid of its period.
    pub(super) number: u64,
    pub(super) at_ns: u64,
    /// How many deadlines before it passed unnoticed.
    pub(super) missed_before: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Passed {
    /// How many earlier deadlines are missed.
    pub(super) missed: u64,
    pub(super) must_request: bool,
    /// True if the read under way is to be reported as hanging.
    pub(super) is_newly_hung: bool,
}

/// Time at which a value of a finished read is dated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dated {
    /// Time on the monotonic clock.
    pub(super) at_ns: u64,
    /// Time from the deadline to that.
    pub(super) lateness_ns: u64,
}

impl SlowReads {
    /// Makes room for the deadlines of `groups` groups, so that none of the calls below allocates.
    pub(super) fn reserve(&mut self, groups: usize) {
        self.waiting.reserve((2 * groups).saturating_sub(self.waiting.len()));
        self.postponed.reserve((2 * groups).saturating_sub(self.postponed.len()));
    }

    pub(super) const fn is_busy(&self) -> bool {
        self.requested_ns.is_some()
    }

    pub(super) const fn is_hung(&self) -> bool {
        self.is_hung
    }

    /// Records that a deadline of a group has passed. A reading out of schedule that the group waits for is
    /// that of the deadline, too: a read gives each series one value.
    pub(super) fn deadline(&mut self, group: usize, deadline: Deadline, now_ns: u64) -> Passed {
        let outlasted = match self.waiting.iter_mut().find(|waiting| waiting.group == group) {
            Some(waiting) => waiting.deadline.replace(deadline).is_some(),
            None => {
                self.waiting.push(Waiting { group, deadline: Some(deadline) });
                false
            }
        };
        let under_way_ns = self.requested_ns.map_or(0, |requested_ns| now_ns.saturating_sub(requested_ns));
        let is_newly_hung = outlasted && under_way_ns >= HUNG_NS && !self.is_hung;
        self.is_hung |= is_newly_hung;
        let must_request = self.begin(now_ns);
        Passed { missed: deadline.missed_before + u64::from(outlasted), must_request, is_newly_hung }
    }

    /// Requests a reading of all of `groups` groups out of schedule. Returns true if a read must be
    /// requested.
    pub(super) fn read_now(&mut self, groups: usize, now_ns: u64) -> bool {
        if self.is_busy() {
            self.is_wanted_again = groups > 0;
            return false;
        }
        self.waiting.extend((0..groups).map(|group| Waiting { group, deadline: None }));
        groups > 0 && self.begin(now_ns)
    }

    fn begin(&mut self, now_ns: u64) -> bool {
        let is_idle = self.requested_ns.is_none();
        if is_idle {
            self.requested_ns = Some(now_ns);
        }
        is_idle
    }

    /// Records that the read under way has finished. Returns true if it was reported as hanging.
    pub(super) fn finish(&mut self) -> bool {
        self.requested_ns = None;
        std::mem::take(&mut self.is_hung)
    }

    /// True once.
    pub(super) fn take_wanted_again(&mut self) -> bool {
        std::mem::take(&mut self.is_wanted_again)
    }

    pub(super) fn waiting_groups(&self) -> impl Iterator<Item = usize> {
        self.waiting.iter().map(|waiting| waiting.group)
    }

    /// Lets a group wait for the next read.
    pub(super) fn postpone(&mut self, waiting: Waiting) {
        self.postponed.push(waiting);
    }

    /// Begins the read for which groups were postponed. Returns true if there are any.
    pub(super) fn begin_postponed(&mut self, now_ns: u64) -> bool {
        self.waiting.append(&mut self.postponed);
        !self.waiting.is_empty() && self.begin(now_ns)
    }

    pub(super) const fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the next group that waits for the values.
    pub(super) fn next_waiting(&mut self) -> Option<Waiting> {
        self.waiting.pop()
    }
}

impl Waiting {
    /// Dates a value by the beginning of its read or, if the deadline has passed meanwhile, by the end: the
    /// exact time within the read is unknown.
    pub(super) fn dated(&self, began_ns: u64, ended_ns: u64) -> Dated {
        let Some(deadline) = self.deadline else { return Dated { at_ns: began_ns, lateness_ns: 0 } };
        let at_ns = if deadline.at_ns > began_ns { ended_ns } else { began_ns };
        Dated { at_ns, lateness_ns: at_ns.saturating_sub(deadline.at_ns) }
    }
}

/// Groups of a former plan that wait for a read under way.
pub(super) fn with_retired(groups: Vec<Group>, retired: Vec<Group>, reads: &mut SlowReads) -> Vec<Group> {
    // They move behind the groups of the new plan.
    reads.waiting.iter_mut().for_each(|waiting| waiting.group += groups.len());
    reads.reserve(groups.len() + retired.len());
    groups.into_iter().chain(retired).collect()
}

/// Signal of finished reads, which the sources of the slow lane share.
pub(super) type Finished = Arc<crate::sources::reader_thread::FinishedReads>;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: u64 = 1_000_000_000;

    /// Deadline with this number of a period of one second.
    const fn at(number: u64) -> Deadline {
        Deadline { number, at_ns: number * S, missed_before: 0 }
    }

    fn passed(reads: &mut SlowReads, number: u64) -> (u64, bool, bool) {
        let passed = reads.deadline(0, at(number), number * S);
        (passed.missed, passed.must_request, passed.is_newly_hung)
    }

    #[test]
    fn deadlines_during_a_read_are_missed_but_for_the_last() {
        let mut reads = SlowReads::default();
        let requested = Passed { missed: 0, must_request: true, is_newly_hung: false };
        assert_eq!(reads.deadline(0, at(1), S), requested);
        assert_eq!(passed(&mut reads, 2), (1, false, true));
        assert_eq!(passed(&mut reads, 3), (1, false, false), "it is reported once");
        assert!(reads.is_hung() && reads.finish());
        let waiting = reads.next_waiting().unwrap();
        assert_eq!(waiting, Waiting { group: 0, deadline: Some(at(3)) });
        assert_eq!(waiting.dated(S, 3 * S + 5), Dated { at_ns: 3 * S + 5, lateness_ns: 5 });
        assert_eq!(reads.next_waiting(), None);
        assert_eq!(passed(&mut reads, 4), (0, true, false), "the next deadline requests a read");
    }

    #[test]
    fn a_read_within_its_period_is_dated_by_its_beginning() {
        let waiting = Waiting { group: 0, deadline: Some(at(1)) };
        assert_eq!(waiting.dated(S + 7, S + 9), Dated { at_ns: S + 7, lateness_ns: 7 });
        let out_of_turn = Waiting { group: 0, deadline: None };
        assert_eq!(out_of_turn.dated(S, S + 9), Dated { at_ns: S, lateness_ns: 0 });
    }

    #[test]
    fn a_reading_out_of_turn_follows_the_one_under_way() {
        let mut reads = SlowReads::default();
        assert!(reads.read_now(2, 0));
        assert!(!reads.read_now(2, 1));
        assert!(!reads.finish());
        assert_eq!(std::iter::from_fn(|| reads.next_waiting()).count(), 2);
        assert!(reads.take_wanted_again() && !reads.take_wanted_again());
        assert!(reads.read_now(2, 2));
    }

    #[test]
    fn a_deadline_takes_over_a_reading_out_of_turn() {
        let mut reads = SlowReads::default();
        assert!(reads.read_now(2, 0));
        let passed = reads.deadline(1, at(1), S);
        assert_eq!(passed, Passed { missed: 0, must_request: false, is_newly_hung: false });
        reads.finish();
        let waiting: Vec<Waiting> = std::iter::from_fn(|| reads.next_waiting()).collect();
        let expected = [Waiting { group: 1, deadline: Some(at(1)) }, Waiting { group: 0, deadline: None }];
        assert_eq!(waiting, expected);
    }

    proptest! {
        /// Each deadline of each group is either missed once or waits for the values of one read.
        #[test]
        fn every_deadline_is_missed_or_waits(steps in prop::collection::vec((0_usize..3, any::<bool>()), 1..200)) {
            let mut reads = SlowReads::default();
            let (mut passed, mut missed, mut recorded) = (0_u64, 0_u64, 0_u64);
            for (number, (group, finishes)) in (1..).zip(steps) {
                let busy = reads.is_busy();
                let result = reads.deadline(group, Deadline { number, at_ns: number, missed_before: 0 }, number);
                passed += 1;
                missed += result.missed;
                prop_assert_eq!(result.must_request, !busy);
                if finishes {
                    reads.finish();
                    recorded += std::iter::from_fn(|| reads.next_waiting()).count() as u64;
                }
            }
            let waiting = std::iter::from_fn(|| reads.next_waiting()).count() as u64;
            prop_assert_eq!(missed + recorded + waiting, passed);
        }
    }
}
