//! Intervals of a job that are known from other collectors, and those that they know.

use std::ops::Range;

use super::node_state::OPEN;

/// Successive intervals without samples of a collector after which it is not awaited: it was killed, or no
/// longer has nodes of the job.
const MISSED_MAX: u32 = 3;

/// The same, after which it is forgotten.
const FORGOTTEN: u32 = 24;

#[derive(Debug)]
struct OtherCollector {
    id: String,
    /// Last interval whose samples are known.
    last: i64,
    missed: u32,
}

/// Other collectors with nodes of the job, a few.
#[derive(Debug, Default)]
pub(super) struct OtherParts {
    collectors: Vec<OtherCollector>,
    /// First interval that other collectors did not get; none before the first one.
    unshared: Option<i64>,
}

impl OtherParts {
    pub(super) const fn is_empty(&self) -> bool {
        self.collectors.is_empty()
    }

    /// Returns the intervals before `end` that other collectors did not get. The samples of older ones are
    /// gone.
    pub(super) fn take_shared(&mut self, end: i64) -> Range<i64> {
        let begin = self.unshared.unwrap_or(i64::MIN).max(end.saturating_sub(OPEN - 1));
        self.unshared = self.unshared.max(Some(end));
        begin..end
    }

    /// Records that the samples of a collector are known. Returns false if they were before.
    pub(super) fn take(&mut self, id: &str, number: i64) -> bool {
        let Some(known) = self.collectors.iter_mut().find(|known| known.id == id) else {
            self.collectors.push(OtherCollector { id: id.to_owned(), last: number, missed: 0 });
            return true;
        };
        let is_new = number > known.last;
        if is_new {
            (known.last, known.missed) = (number, 0);
        }
        is_new
    }

    /// Returns the collectors whose samples of an interval are known.
    pub(super) fn known(&self, number: i64) -> Vec<String> {
        let known = self.collectors.iter().filter(|known| known.last >= number);
        known.map(|known| known.id.clone()).collect()
    }

    /// Tells whether the samples of all collectors that are awaited are known.
    pub(super) fn are_known(&self, number: i64) -> bool {
        self.collectors.iter().all(|known| known.last >= number || known.missed >= MISSED_MAX)
    }

    /// Counts the collectors that had no samples of an interval in time.
    pub(super) fn compared(&mut self, number: i64) {
        for known in self.collectors.iter_mut().filter(|known| known.last < number) {
            known.missed = known.missed.saturating_add(1);
        }
        self.collectors.retain(|known| known.missed < FORGOTTEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_taken_once_and_each_interval_shared_once() {
        let mut others = OtherParts::default();
        assert!(others.take("a", 7) && !others.take("a", 7) && !others.take("a", 6) && others.take("b", 7));
        assert!(others.take("a", 9));
        assert_eq!(
            (others.known(7).len(), others.known(8), others.known(10)),
            (2, vec!["a".to_owned()], vec![])
        );
        assert_eq!(others.take_shared(100), 100 - (OPEN - 1)..100);
        assert!(others.take_shared(100).is_empty() && others.take_shared(90).is_empty());
        assert_eq!(others.take_shared(102), 100..102);
        assert_eq!(others.take_shared(200), 200 - (OPEN - 1)..200);
        assert!(others.take_shared(i64::MIN).is_empty());
    }

    #[test]
    fn a_collector_without_samples_is_awaited_for_three_intervals() {
        let mut others = OtherParts::default();
        assert!(others.are_known(1), "there are none");
        others.take("a", 1);
        others.take("b", 1);
        for number in 2..5 {
            others.take("a", number);
            assert!(!others.are_known(number));
            others.compared(number);
        }
        others.take("a", 5);
        assert!(others.are_known(5) && !others.are_known(6));
        others.take("b", 5);
        others.compared(5);
        assert!(!others.are_known(6), "it is back");
        (6..6 + i64::from(FORGOTTEN)).for_each(|number| others.compared(number));
        assert!(others.is_empty());
    }
}
