//! Reopening of a target's sources: because files have changed, and for metrics that are missing.

use super::SourceSet;
use super::reopening_state::Reopening;

/// Shortest time between a change and the reopening of a target's sources, so that a device that is added and
/// removed all the time costs little.
const AFTER_NS: u64 = 2_000_000_000;

/// Longest time until another attempt to open what cannot be read: each attempt opens all files of the
/// target.
const RETRY_MAX_NS: u64 = 600_000_000_000;

impl SourceSet {
    pub(crate) fn reopen_later(&mut self, now_ns: u64) {
        self.reopening.schedule(now_ns.saturating_add(AFTER_NS));
    }

    /// Schedules the reopening of the sources at the next opportunity, with those of the step or task of a
    /// changed file.
    pub(crate) fn reopen_soon(&mut self, step: Option<&str>, now_ns: u64) {
        if let Some(open) = step.and_then(|step| self.steps.get_mut(step)) {
            open.is_stale = true;
        }
        self.reopening.schedule(now_ns);
    }

    /// True if metrics are missing that another attempt may find.
    fn awaits_retry(&self) -> bool {
        let Reopening { may_recover, lost, .. } = &self.reopening;
        *may_recover || !lost.is_empty() || self.steps.values().any(|open| open.may_recover)
    }

    /// True for a missing metric that another attempt may find.
    pub(crate) fn may_find(&self, metric: &str) -> bool {
        self.awaits_retry() && self.unavailable.iter().any(|(missing, _)| missing == metric)
    }

    /// True once if the sources must be opened anew now.
    pub(crate) fn take_reopen_due(&mut self, now_ns: u64) -> bool {
        if !self.awaits_retry() {
            self.reopening.attempts = 0;
        } else if self.reopening.at_ns.is_none() {
            let doublings = self.reopening.attempts.min(u64::BITS / 4);
            let wait_ns = (AFTER_NS << doublings).min(RETRY_MAX_NS);
            self.reopening.attempts += 1;
            self.reopening.schedule(now_ns.saturating_add(wait_ns));
        }
        let is_due = self.reopening.at_ns.take_if(|at_ns| *at_ns <= now_ns).is_some();
        if is_due {
            for open in self.steps.values_mut() {
                open.is_stale |= open.may_recover;
            }
        }
        is_due
    }

    pub(crate) const fn cancel_reopen(&mut self) {
        self.reopening.at_ns = None;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn pairs<T: FromIterator<(String, String)>>(of: &[(&str, &str)]) -> T {
        of.iter().map(|(metric, reason)| ((*metric).to_owned(), (*reason).to_owned())).collect()
    }

    fn names(of: &[&str]) -> BTreeSet<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn metrics_that_get_lost_are_reported_once_and_tried_ever_more_rarely() {
        let mut set = SourceSet::default();
        // `b` never was there, `c` lacks one of its devices.
        let all = pairs(&[("a", "unreadable"), ("b", "no file"), ("c", "one of two is unreadable")]);
        let new = set.reopening.note_missing(&all, &names(&["a", "c"]), &names(&["c"]));
        assert_eq!(new, pairs::<Vec<_>>(&[("a", "unreadable"), ("c", "one of two is unreadable")]));
        let mut tried_ns = Vec::new();
        for now_ns in (0..3_000).map(|second| second * 1_000_000_000) {
            if set.take_reopen_due(now_ns) {
                tried_ns.push(now_ns / 1_000_000_000);
                assert_eq!(set.reopening.note_missing(&all, &names(&["c"]), &names(&["c"])), []);
            }
        }
        let waits: Vec<u64> = tried_ns.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(waits, [5, 9, 17, 33, 65, 129, 257, 513, 601, 601, 601]);
        assert!(set.awaits_retry());
        let left = pairs(&[("b", "no file")]);
        assert_eq!(set.reopening.note_missing(&left, &names(&["c"]), &names(&["a", "c"])), []);
        set.cancel_reopen();
        assert!(!set.awaits_retry() && !set.take_reopen_due(u64::MAX / 2));
        // The same again is another event.
        assert_eq!(set.reopening.note_missing(&all, &names(&["a", "c"]), &names(&["c"])).len(), 2);
    }
}
